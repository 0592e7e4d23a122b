package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"time"
)

// handOff measures from the end of one command to the start of the next,
// with a full queue behind it.
func (b *bench) handOff() error {
	rows := []*queued{
		{tool: b.tools["flock"], waiters: b.plan.waiters},
		{tool: b.tools["setlock"], waiters: b.plan.waiters},
		{tool: b.tools["s6-setlock"], waiters: b.plan.waiters},
		{tool: b.tools["chpst -l"], waiters: b.plan.waiters},
		{tool: b.tools["floor"], waiters: b.plan.waiters},
		{tool: b.tools["golock"], waiters: b.plan.waiters},
		{tool: b.tools["sem"], waiters: b.plan.semWaiters},
	}
	if err := b.drainAll(b.plan.handoff, rows, 0, 0); err != nil {
		return err
	}

	s := section{
		title: fmt.Sprintf("Hand-off with %d waiting", b.plan.waiters),
		how: "A holder holds; waiters are started one by one, the next when /proc/locks shows the one before asleep in " +
			"the queue; then the holder's command ends. Every command notes the clock at its start and its end: a gap is " +
			"from the end of one to the start of the next, with everything between: the tool's own end, the wake-up, " +
			"and the start of the command. An inversion is a command that started after one that was queued behind it.",
		head: queuedHead,
	}
	for _, r := range rows {
		s.rows = append(s.rows, r.cells(rows[0]))
		b.noteRatio("handoff", r.tool, r.typical, rows[0].name, rows[0].typical)
		b.plot("hand-off", fmt.Sprintf("locks of this machine, %d waiting (sem: %d)", b.plan.waiters, b.plan.semWaiters), r.tool, r.gaps)
	}
	s.notes = append(s.notes, floorNote)
	s.notes = append(s.notes, fmt.Sprintf("sem: %d waiting only, each seen in the pause between two of its polls before the next is started", b.plan.semWaiters))
	b.sections = append(b.sections, s)
	golock := rows[slices.IndexFunc(rows, func(r *queued) bool { return r.tool == b.tools["golock"] })]
	b.target(fmt.Sprintf("hand-off with %d waiting, against flock", b.plan.waiters), 1.1, 0, "x", golock.typical.against(rows[0].typical))
	b.target("order inversions at the hand-off", 0, 0, "", float64(golock.inversions))
	return nil
}

// queued is a tool whose hand-off is measured.
type queued struct {
	*tool
	waiters    int
	gaps       []float64 // of all rounds
	typical    paired    // the median gap of a round
	drain      paired
	inversions int
	failed     int
}

// drainAll has every tool work off a queue in each round. A holder stays for
// a random time from least to most, the same for all tools in a round.
func (b *bench) drainAll(rounds int, rows []*queued, least, most time.Duration) error {
	for _, r := range rows {
		r.typical, r.drain = paired{}, paired{}
	}
	for round := range rounds {
		stay := least
		if most > least {
			stay += rand.N(most - least)
		}
		for i := range rows {
			r := rows[(round+i)%len(rows)]
			l, err := b.place("handoff")
			if err != nil {
				return err
			}
			records, err := b.drain(r.tool, l, r.waiters, stay)
			if err != nil {
				return err
			}
			r.failed += r.waiters + 1 - len(records)
			var gaps []float64
			for i := 1; i < len(records); i++ {
				gaps = append(gaps, records[i].start-records[i-1].end)
				if records[i].tag < records[i-1].tag {
					r.inversions++
				}
			}
			r.gaps = append(r.gaps, gaps...)
			r.typical[round] = median(gaps)
			r.drain[round] = records[len(records)-1].end - records[0].end
		}
	}
	return nil
}

var queuedHead = []string{"tool", "waiting", "rounds", "failed", "gap ms median", "p90", "p95", "max", "inversions", "drain ms", "median of ratios", "ratio of medians"}

// cells are the row of a table under queuedHead.
func (r *queued) cells(base *queued) []string {
	return []string{
		r.name, count(r.waiters), count(len(r.typical)), count(r.failed), ms(median(r.gaps)), ms(quantile(r.gaps, 0.9)), ms(quantile(r.gaps, 0.95)),
		ms(quantile(r.gaps, 1)), fmt.Sprintf("%d of %d", r.inversions, len(r.gaps)), ms(median(r.drain.values())),
		ratio(r.typical.against(base.typical)), ratio(median(r.gaps) / median(base.gaps)),
	}
}

// drain queues the waiters behind a holder, lets go after a while, and returns
// the records of all in the order they were served, the holder's first.
func (b *bench) drain(t *tool, l lock, waiters int, stay time.Duration) ([]record, error) {
	h, err := b.hold(t, l)
	if err != nil {
		return nil, err
	}
	all := []*process{h.process}
	for n := 1; n <= waiters; n++ {
		p, err := b.queue(t, l, n)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	if t.store != nil {
		if err := b.listed(t, l, all); err != nil {
			return nil, err
		}
	}
	time.Sleep(stay)
	h.release()
	ran := 0
	for _, p := range all {
		end, err := p.wait()
		switch {
		case err != nil:
			return nil, err
		case end.code == 0:
			ran++
		case t.name != "sem":
			return nil, fmt.Errorf("%q ended with %d", p.argv, end.code)
		}
	}
	return readRecords(t, l, ran)
}

// listed holds golock's own view of the queue against what was started.
func (b *bench) listed(t *tool, l lock, all []*process) error {
	ls := exec.Command(t.path, "ls", l.name, "--json", "--store", t.store(l))
	ls.Env = b.env
	out, err := ls.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", ls, err)
	}
	var entries []struct {
		State string `json:"state"`
		PID   int    `json:"pid"`
	}
	if err := json.Unmarshal(out, &entries); err != nil {
		return fmt.Errorf("%s: %w", ls, err)
	}
	if len(entries) != len(all) {
		return fmt.Errorf("golock ls lists %d entries, %d are there", len(entries), len(all))
	}
	for i, e := range entries {
		if state := map[bool]string{true: "holding", false: "waiting"}[i == 0]; e.PID != all[i].pid || e.State != state {
			return fmt.Errorf("golock ls, entry %d: process %d %s, want process %d %s", i, e.PID, e.State, all[i].pid, state)
		}
	}
	return nil
}
