package sql

import (
	"context"
	"fmt"
	"time"
)

// glance is what a waiter sees of itself without locking the name's row.
type glance struct {
	place int
	look  time.Duration // when to look again
}

// glance looks how far a waiter has come that stands so far back that nothing
// can happen to it yet. It locks nothing and writes nothing, so that a long line
// does not hold up the grants at its front. It is not good enough, and the
// waiter has to make a step, if it has come near, if its place in the queue
// would have to be kept alive soon, and after anything that is not as usual.
func (l *line) glance(ctx context.Context, e *entry) (g glance, ok bool) {
	s := l.store
	if s.target.waiters == 0 || e.place <= s.target.waiters || e.mine.ears != 0 || s.deaf.Load() {
		return g, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() {
		if recover() != nil { // the step that follows will tell
			l.hangUp()
			ok = false
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, attemptLimit(e.ttl))
	defer cancel()
	if l.open(ctx) != nil {
		return g, false
	}
	key := e.ref.Key.String()
	rows, err := l.conn.Run(ctx, fmt.Sprintf("SELECT %[1]s,e.ends,n.pace,n.granted,"+
		"(SELECT COALESCE(MAX(since),0) FROM %[2]s WHERE lock_key='%[3]s' AND state='%[4]s'),"+
		"(SELECT COUNT(*) FROM %[2]s WHERE lock_key='%[3]s' AND state='%[5]s' AND place<=%[6]d AND (place<%[6]d OR ticket<%[7]d))"+
		" FROM %[2]s e JOIN %[2]s n ON n.lock_key=e.lock_key AND n.entry_id='' WHERE e.lock_key='%[3]s' AND e.entry_id='%[8]s' AND e.state='%[5]s'",
		s.dialect.Clock(), s.table, key, holding, waiting, place(e.mine.claim.Priority), e.mine.claim.Ticket, e.mine.id))
	if err != nil {
		l.hangUp()
		return g, false
	}
	if len(rows) != 1 || len(rows[0]) != 1 || len(rows[0][0]) != 6 {
		return g, false
	}
	var n numbers
	f := rows[0][0]
	now, ends, pace, granted, since, ahead := n.read(f[0]), n.read(f[1]), n.read(f[2]), n.read(f[3]), n.read(f[4]), int(n.read(f[5]))
	if n.err != nil || ahead < s.target.waiters {
		return g, false
	}
	still := time.Duration(0)
	if since > 0 { // else a slot is just being taken
		still = span(now - max(granted, since))
	}
	g = glance{place: ahead + 1, look: s.pollPause(ahead, e.ttl, span(pace), still)}
	return g, ends-now-micros(g.look) >= micros(e.ttl/2)
}
