package main

import (
	"fmt"
	"time"
)

// settle is how many seconds pass before sleepers are watched: starting up has
// a tail, of timers that run out and threads that go to sleep.
const settle = 3

// many puts a crowd on one name.
func (b *bench) many() error {
	type row struct {
		*tool
		queued, drained    paired
		pss, cpu, switches []float64
	}
	rows := []*row{{tool: b.tools["flock"]}, {tool: b.tools["golock -q"]}}
	for _, r := range rows {
		r.queued, r.drained = paired{}, paired{}
	}
	for round := range b.plan.manyRounds {
		for i := range rows {
			r := rows[(round+i)%len(rows)]
			l, err := b.place("many")
			if err != nil {
				return err
			}
			h, err := b.hold(r.tool, l)
			if err != nil {
				return err
			}
			all := []*process{h.process}
			var pids []int
			for n := range b.plan.many {
				p, err := b.start(r.argv(l, b.stamp.section(l, n+1)...))
				if err != nil {
					return err
				}
				all, pids = append(all, p), append(pids, p.pid)
			}
			err = b.until("all waiters are blocked", 2*time.Millisecond, func() (bool, error) {
				n, err := blocked(l)
				return n == b.plan.many, err
			})
			if err != nil {
				return err
			}
			queued := now() - all[1].begun

			if err := b.pause(settle); err != nil {
				return err
			}
			before, err := activityOf(pids...)
			if err != nil {
				return err
			}
			if err := b.pause(b.plan.manyIdle); err != nil {
				return err
			}
			after, err := activityOf(pids...)
			if err != nil {
				return err
			}
			pss := 0.0
			for _, pid := range pids {
				f, err := footprintOf(pid)
				if err != nil {
					return err
				}
				pss += f.pss
			}

			h.release()
			for _, p := range all {
				if _, err := p.succeed(); err != nil {
					return err
				}
			}
			records, err := readRecords(r.tool, l, b.plan.many+1)
			if err != nil {
				return err
			}
			idle := after.since(before)
			r.queued[round] = queued
			r.drained[round] = records[len(records)-1].end - records[0].end
			r.pss = append(r.pss, pss/float64(len(pids)))
			r.cpu = append(r.cpu, idle.cpu)
			r.switches = append(r.switches, float64(idle.switches))
		}
	}

	s := section{
		title: fmt.Sprintf("%d waiters on one name", b.plan.many),
		how: fmt.Sprintf("All are started at once behind a holder. Queued: from before the first start until /proc/locks "+
			"shows every one asleep. Idle: the sum over all waiters in the %d s that begin %d s after that, worst round. Drain: from the end of the "+
			"holder's command to the end of the last one's.", b.plan.manyIdle, settle),
		head: []string{"tool", "rounds", "queued ms", "idle cpu µs", "idle context switches", "Pss each MiB", "drain ms", "drain, of flock's"},
	}
	for _, r := range rows {
		what := fmt.Sprintf("many, %d waiting", b.plan.many)
		b.noteRatio(what+", queued", r.tool, r.queued, rows[0].name, rows[0].queued)
		b.noteRatio(what+", drain", r.tool, r.drained, rows[0].name, rows[0].drained)
		s.rows = append(s.rows, []string{
			r.name, count(len(r.queued)), ms(median(r.queued.values())), fmt.Sprintf("%.0f", quantile(r.cpu, 1)),
			fmt.Sprintf("%.0f", quantile(r.switches, 1)), mib(median(r.pss)), ms(median(r.drained.values())),
			ratio(r.drained.against(rows[0].drained)),
		})
	}
	s.notes = append(s.notes, tellsNote)
	b.sections = append(b.sections, s)
	b.note(fmt.Sprintf("many, %d waiting: golock run -q, wake-ups in %d s", b.plan.many, b.plan.manyIdle), "", rows[1].switches)
	b.note(fmt.Sprintf("many, %d waiting: golock run -q, Pss each", b.plan.many), "MiB", inMiB(rows[1].pss))
	b.target(fmt.Sprintf("wake-ups of %d waiters in %d s", b.plan.many, b.plan.manyIdle), 0, 0, "", quantile(rows[1].switches, 1))
	return nil
}
