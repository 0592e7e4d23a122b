package main

import (
	"fmt"
	"time"
)

// redisHandOff measures from the end of one command to the start of the next,
// with one behind it and with a queue.
func (b *bench) redisHandOff() error {
	srv, err := b.startServer()
	if err != nil {
		return err
	}
	defer srv.stop()
	p := b.plan.redis
	for _, m := range []struct{ rounds, waiters int }{{p.single, 1}, {p.queue, p.waiters}} {
		rows := []*queued{
			{tool: b.tools["golock"], waiters: m.waiters},
			{tool: srv.golock(b), waiters: m.waiters},
			{tool: srv.poll(b), waiters: m.waiters},
		}
		// A client that polls must not always be met in the same moment of its
		// pause: the holder stays for a part of that.
		if err := b.drainAll(m.rounds, rows, 0, 100*time.Millisecond); err != nil {
			return err
		}
		s := section{
			title: fmt.Sprintf("Redis, hand-off with %d waiting", m.waiters),
			how: "As above. A waiter of golock on Redis is queued when it has subscribed, one of the polling client when it has " +
				"asked for the first time; the holder stays for a random part of 100 ms more.",
			head: queuedHead,
		}
		for _, r := range rows {
			s.rows = append(s.rows, r.cells(rows[0]))
			b.noteRatio(fmt.Sprintf("redis-handoff, %d waiting", m.waiters), r.tool, r.typical, rows[0].name, rows[0].typical)
			if m.waiters == 1 && r != rows[0] {
				b.plot("hand-off", "locks on a server, 1 waiting", r.tool, r.gaps)
			}
		}
		s.notes = append(s.notes, pollNote)
		b.sections = append(b.sections, s)
		if m.waiters == 1 {
			b.target("redis: hand-off with 1 waiting, beyond the local store", 0.5, 0, " ms", rows[1].typical.beyond(rows[0].typical))
			b.target("redis: hand-off with 1 waiting, median", 1, 0, " ms", median(rows[1].gaps))
		} else {
			b.target(fmt.Sprintf("redis: order inversions with %d waiting", m.waiters), 0, 0, "", float64(rows[1].inversions))
		}
	}
	return nil
}
