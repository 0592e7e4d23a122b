package sql

import (
	"context"
	"fmt"
	"time"

	"golock/locks/lease"
)

// peekPosition looks how far a waiter has come that stands so far back that nothing
// can happen to it yet. It locks nothing and writes nothing, so that a long queue
// does not hold up the grants at its front. It is not good enough, and the waiter has
// to make a step, if it has come near, if its place would have to be kept alive soon,
// and after anything that is not as usual.
func (c *session) peekPosition(ctx context.Context, key string, k known) (a lease.Answer, ok bool) {
	s := c.store
	if s.target.waiters == 0 || k.place <= s.target.waiters || k.mine.wakeConn != 0 || s.noNotify.Load() {
		return a, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() {
		if recover() != nil { // the step that follows will tell
			c.hangUp()
			ok = false
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, lease.AttemptLimit(k.ttl))
	defer cancel()
	if c.open(ctx) != nil {
		return a, false
	}
	rows, err := c.conn.Run(ctx, fmt.Sprintf("SELECT %[1]s,e.ends,n.pace,n.granted,"+
		"(SELECT COALESCE(MAX(since),0) FROM %[2]s WHERE lock_key='%[3]s' AND state='%[4]s'),"+
		"(SELECT COUNT(*) FROM %[2]s WHERE lock_key='%[3]s' AND state='%[5]s' AND place<=%[6]d AND (place<%[6]d OR ticket<%[7]d))"+
		" FROM %[2]s e JOIN %[2]s n ON n.lock_key=e.lock_key AND n.entry_id='' WHERE e.lock_key='%[3]s' AND e.entry_id='%[8]s' AND e.state='%[5]s'",
		s.dialect.Clock(), s.table, key, holding, waiting, place(k.mine.claim.Priority), k.mine.claim.Ticket, k.mine.id))
	if err != nil {
		c.hangUp()
		return a, false
	}
	if len(rows) != 1 || len(rows[0]) != 1 || len(rows[0][0]) != 6 {
		return a, false
	}
	var n numbers
	f := rows[0][0]
	now, ends, pace, granted, since, ahead := n.read(f[0]), n.read(f[1]), n.read(f[2]), n.read(f[3]), n.read(f[4]), int(n.read(f[5]))
	if n.err != nil || ahead < s.target.waiters {
		return a, false
	}
	still := time.Duration(0)
	if since > 0 { // else a slot is just being taken
		still = span(now - max(granted, since))
	}
	a = lease.Answer{Verdict: lease.Queued, Place: ahead + 1, Recheck: s.pollPause(ahead, k.ttl, span(pace), still)}
	return a, ends-now-micros(a.Recheck) >= micros(k.ttl/2)
}
