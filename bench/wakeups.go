package main

import "fmt"

// tellsNote explains the rows without -q.
const tellsNote = "golock run without -q tells its user that it waits, a line after one, three, seven, fifteen ... seconds, and wakes up for it"

// wakeUps watches a waiter and its holder do nothing.
func (b *bench) wakeUps() error {
	type row struct {
		*tool
		state  string
		pids   []int
		before activity
		spent  activity
	}
	var rows []*row
	var holders []*holder
	var all []*process
	for _, name := range []string{"flock", "sem", "golock", "golock -q"} {
		t := b.tools[name]
		l, err := b.place("wakeups")
		if err != nil {
			return err
		}
		h, err := b.hold(t, l)
		if err != nil {
			return err
		}
		p, err := b.queue(t, l, 1)
		if err != nil {
			return err
		}
		holders, all = append(holders, h), append(all, h.process, p)
		// The holder's command sleeps in the kernel; it is not counted.
		rows = append(rows, &row{tool: t, state: "waiting", pids: tree(p.pid)}, &row{tool: t, state: "holding", pids: []int{h.pid}})
	}
	if err := b.pause(settle); err != nil {
		return err
	}
	for _, r := range rows {
		var err error
		if r.before, err = activityOf(r.pids...); err != nil {
			return err
		}
	}
	if err := b.pause(b.plan.window); err != nil {
		return err
	}
	for _, r := range rows {
		after, err := activityOf(r.pids...)
		if err != nil {
			return err
		}
		r.spent = after.since(r.before)
	}
	for _, h := range holders {
		h.release()
	}
	for _, p := range all {
		if _, err := p.succeed(); err != nil {
			return err
		}
	}

	s := section{
		title: fmt.Sprintf("Wake-ups in %d s of waiting", b.plan.window),
		how: fmt.Sprintf("All tools are watched in the same window, which begins %d s after the last of them was seen "+
			"asleep. A wake-up is a context switch, voluntary or not, of any thread.", settle),
		head: []string{"tool", "state", "threads", "context switches", "cpu µs"},
	}
	for _, r := range rows {
		s.rows = append(s.rows, []string{
			r.name, r.state, count(r.spent.threads), count(r.spent.switches), fmt.Sprintf("%.0f", r.spent.cpu),
		})
		if r.tool == b.tools["golock -q"] {
			b.note(fmt.Sprintf("wakeups: %s, %s, in %d s", r.name, r.state, b.plan.window), "", []float64{float64(r.spent.switches)})
			b.target(fmt.Sprintf("wake-ups in %d s while %s, with -q", b.plan.window, r.state), 0, 0, "", float64(r.spent.switches))
		}
	}
	s.notes = append(s.notes, tellsNote)
	b.sections = append(b.sections, s)
	return nil
}
