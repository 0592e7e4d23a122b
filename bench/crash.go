package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// crash measures how soon the next in the queue runs when a holder is killed
// with all it started, and how soon a waiter ends when it is told to.
func (b *bench) crash() error {
	type row struct {
		*tool
		grant, stop paired
	}
	rows := []*row{{b.tools["flock"], paired{}, paired{}}, {b.tools["golock"], paired{}, paired{}}}
	for round := range b.plan.crash {
		for i := range rows {
			r := rows[(round+i)%len(rows)]
			l, err := b.place("crash")
			if err != nil {
				return err
			}
			grant, err := b.killHolder(r.tool, l)
			if err != nil {
				return err
			}
			if l, err = b.place("stop"); err != nil {
				return err
			}
			stop, err := b.stopWaiter(r.tool, l)
			if err != nil {
				return err
			}
			r.grant[round], r.stop[round] = grant, stop
		}
	}

	s := section{
		title: "Crash of a holder, end of a waiter",
		how: "Next grant: a holder and its command are killed with SIGKILL, the holder first, while one waiter sleeps " +
			"behind it; the time is from before the first kill to the first instruction of the waiter's command. " +
			"Stop: a waiter is sent TERM; the time is until it has been waited for.",
		head: []string{"tool", "what", "rounds", "ms p50", "p90", "p99", "max"},
	}
	for _, r := range rows {
		for _, m := range []struct {
			what   string
			sample []float64
			pair   paired
			of     paired
		}{{"next grant after kill -9", r.grant.values(), r.grant, rows[0].grant}, {"stop while waiting", r.stop.values(), r.stop, rows[0].stop}} {
			b.noteRatio("crash, "+m.what, r.tool, m.pair, rows[0].name, m.of)
			s.rows = append(s.rows, []string{
				r.name, m.what, count(len(m.sample)), ms(median(m.sample)), ms(quantile(m.sample, 0.9)),
				ms(quantile(m.sample, 0.99)), ms(quantile(m.sample, 1)),
			})
		}
	}
	b.sections = append(b.sections, s)
	b.target("next grant after kill -9 of a holder's tree, p99", 10, 0, " ms", quantile(rows[1].grant.values(), 0.99))
	b.target("stop while waiting, p99", 20, 0, " ms", quantile(rows[1].stop.values(), 0.99))
	return nil
}

func (b *bench) killHolder(t *tool, l lock) (float64, error) {
	h, err := b.hold(t, l)
	if err != nil {
		return 0, err
	}
	defer h.release()
	next, err := b.queue(t, l, 1)
	if err != nil {
		return 0, err
	}
	victims := tree(h.pid)
	killed := now()
	for _, pid := range victims {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	if _, err := next.succeed(); err != nil {
		return 0, err
	}
	if _, err := h.wait(); err != nil {
		return 0, err
	}
	b.endStrays() // the killed command, which came to us as an orphan
	records, err := readRecords(t, l, 1)
	if err != nil {
		return 0, err
	}
	return records[0].start - killed, nil
}

func (b *bench) stopWaiter(t *tool, l lock) (float64, error) {
	h, err := b.hold(t, l)
	if err != nil {
		return 0, err
	}
	p, err := b.queue(t, l, 1)
	if err != nil {
		return 0, err
	}
	told := now()
	if err := unix.Kill(p.pid, unix.SIGTERM); err != nil {
		return 0, err
	}
	end, err := p.wait()
	if err != nil {
		return 0, err
	}
	if end.code != 128+int(unix.SIGTERM) {
		return 0, fmt.Errorf("%q ended with %d after TERM", p.argv, end.code)
	}
	h.release()
	_, err = h.succeed()
	return end.ended - told, err
}
