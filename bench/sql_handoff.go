package main

import (
	"fmt"
	"time"
)

// sqlHandOff measures from the end of one command to the start of the next,
// with one behind it and with a queue.
func (b *bench) sqlHandOff(kind sqlKind) error {
	d, err := b.startDatabase(kind, false)
	if err != nil {
		return err
	}
	defer d.stop()
	if err := d.used(); err != nil {
		return err
	}
	p := b.plan.sql
	for _, m := range []struct{ rounds, waiters int }{{p.single, 1}, {p.queue, p.waiters}} {
		rows := []*queued{
			{tool: b.tools["golock"], waiters: m.waiters},
			{tool: d.golock(), waiters: m.waiters},
			{tool: kind.session(d), waiters: m.waiters},
		}
		if err := b.drainAll(m.rounds, rows, 100*time.Millisecond); err != nil {
			return err
		}
		s := section{
			title: fmt.Sprintf("%s, hand-off with %d waiting", kind.title(), m.waiters),
			how: "As above. A waiter of golock is queued when the server has its row, one of the other client when the server shows that it " +
				"waits; the holder stays for a random part of 100 ms more.",
			head: queuedHead,
		}
		for _, r := range rows {
			s.rows = append(s.rows, r.cells(rows[0]))
		}
		s.notes = append(s.notes, kind.sessionNote())
		b.sections = append(b.sections, s)
		what := fmt.Sprintf("%s: hand-off with %d waiting, median", kind.scheme(), m.waiters)
		b.target(what, 2.6, 0, " ms", median(rows[1].gaps))
		b.target(what+", beyond the local store", 1.5, 0, " ms", rows[1].typical.beyond(rows[0].typical))
		if m.waiters > 1 {
			b.target(fmt.Sprintf("%s: order inversions with %d waiting", kind.scheme(), m.waiters), 0, 0, "", float64(rows[1].inversions))
		}
	}
	return nil
}
