package main

import (
	"fmt"
	"time"
)

// sqlHandOff measures from the end of one command to the start of the next,
// with one behind it and with a queue, and behind a command that has run for
// seconds: until then a connection may have been given up.
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
	const while = 100 * time.Millisecond
	for _, m := range []struct {
		rounds, waiters int
		least, most     time.Duration
		title, how      string
	}{
		{p.single, 1, 0, while, "hand-off with 1 waiting", "a random part of 100 ms more"},
		{p.long, 1, 3 * time.Second, 3*time.Second + while, "hand-off after 3 s", "3 s more"},
		{p.queue, p.waiters, 0, while, fmt.Sprintf("hand-off with %d waiting", p.waiters), "a random part of 100 ms more"},
	} {
		rows := []*queued{
			{tool: b.tools["golock"], waiters: m.waiters},
			{tool: d.golock(), waiters: m.waiters},
			{tool: kind.session(d), waiters: m.waiters},
		}
		if err := b.drainAll(m.rounds, rows, m.least, m.most); err != nil {
			return err
		}
		s := section{
			title: kind.title() + ", " + m.title,
			how: "As above. A waiter of golock is queued when the server has its row, one of the other client when the server shows that it " +
				"waits; the holder stays for " + m.how + ".",
			head: queuedHead,
		}
		for _, r := range rows {
			s.rows = append(s.rows, r.cells(rows[0]))
			b.noteRatio(kind.scheme()+"-"+m.title, r.tool, r.typical, rows[0].name, rows[0].typical)
			if m.rounds == p.single && m.least == 0 && m.waiters == 1 && r != rows[0] {
				b.plot("hand-off", "locks on a server, 1 waiting", r.tool, r.gaps)
			}
		}
		s.notes = append(s.notes, kind.sessionNote())
		b.sections = append(b.sections, s)
		what := fmt.Sprintf("%s: %s, median", kind.scheme(), m.title)
		b.target(what, 2.6, 0, " ms", median(rows[1].gaps))
		b.target(what+", beyond the local store", 1.5, 0, " ms", rows[1].typical.beyond(rows[0].typical))
		if m.waiters > 1 {
			b.target(fmt.Sprintf("%s: order inversions with %d waiting", kind.scheme(), m.waiters), 0, 0, "", float64(rows[1].inversions))
		}
	}
	return nil
}
