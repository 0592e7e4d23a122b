package sql

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golock/locks/lease"
	"golock/locks/queue"
)

// The pauses between two looks of watch are 2, 4 ... 256 ms. A server may need a few of them to notice that a
// client has died; a busy server may need all.
const (
	firstWatch = 2 * time.Millisecond
	lastWatch  = 256 * time.Millisecond

	nextWake = 32 * time.Millisecond // an earlier wake-up would hit the waiter's own step
)

// wake wakes the waiters of a step, and watches them.
func (c *session) wake(ctx context.Context, q *question, sleepers []string) {
	hasWoken := c.store.dialect.Notifies // the step itself has sent the notifications
	c.watch(ctx, q, sleepers, hasWoken)
}

// watch looks for half a second whether waiters have reacted, and wakes them if not. After that the next waiter
// gets the offer of a waiter whose connection has ended. hasWoken says that the waiters were woken once already.
func (c *session) watch(ctx context.Context, q *question, sleepers []string, hasWoken bool) {
	for pause := firstWatch; pause <= lastWatch && len(sleepers) > 0; pause *= 2 {
		isFirstWake := pause == firstWatch && !hasWoken
		stillAsleep, err := c.watchOnce(ctx, q.key, sleepers, pause, isFirstWake || pause >= nextWake)
		if err == nil {
			sleepers = stillAsleep
		}
		if err == nil && pause == lastWatch {
			err = c.passOverGone(ctx, q, sleepers)
		}
		if err == nil {
			continue
		}
		c.closeConn()
		if c.store.kindOf(err) != AtOnce { // AtOnce means that a late wake-up has hit this connection
			return
		}
	}
}

// watchOnce returns the waiters that have not reacted after a pause. With wakes it wakes them first.
func (c *session) watchOnce(ctx context.Context, key string, sleepers []string, pause time.Duration, wakes bool) (still []string, err error) {
	err = c.open(ctx)
	if err == nil && wakes {
		_, err = c.conn.Wake(ctx, sleepers)
	}
	if err != nil {
		return nil, err
	}
	lease.Pause(ctx, pause)
	return c.asleep(ctx, key, sleepers)
}

// passOverGone revokes the offers to those waiters whose connection has ended, and offers their slots to other
// waiters.
func (c *session) passOverGone(ctx context.Context, q *question, sleepers []string) error {
	if len(sleepers) == 0 {
		return nil
	}
	gone, err := c.conn.Wake(ctx, sleepers)
	if err != nil || len(gone) == 0 {
		return err
	}
	_, err = c.write(ctx, fmt.Sprintf("UPDATE %s SET due=0 WHERE lock_key='%s' AND state='O' AND conn IN (%s)",
		c.store.table, q.key, strings.Join(gone, ",")))
	if err != nil {
		return err
	}
	return c.passOver(ctx, q)
}

// passOver revokes the offers that have expired, and offers free slots to other waiters.
func (c *session) passOver(ctx context.Context, q *question) error {
	_, err := c.tryStep(ctx, &question{Question: queue.Question{Step: queue.Look}, key: q.key, name: q.name})
	return err
}

// asleep returns the waiters that have not reacted: they have neither accepted their offers nor noticed that
// they were evicted.
func (c *session) asleep(ctx context.Context, key string, sleepers []string) (still []string, err error) {
	text := fmt.Sprintf("SELECT conn FROM %s WHERE lock_key='%s' AND state IN ('O','G') AND conn IN (%s)",
		c.store.table, key, strings.Join(sleepers, ","))
	answers, err := c.ask(ctx, text, shape{columns: 1})
	if err != nil {
		return nil, err
	}
	for _, f := range answers[0] {
		still = append(still, f[0])
	}
	return still, nil
}

// canWake reports whether this client can wake a waiter. It cannot if the waiter asked last before the server
// was started: its connection has ended since.
func (t *step) canWake(w *row) bool {
	return t.sameAccount(w) && w.ends-micros(w.ttl) >= t.v.start
}

// sameAccount reports whether this client and the client of an entry can wake each other. Without
// notifications that takes the same server and account; an account of MySQL includes a host.
func (t *step) sameAccount(r *row) bool {
	return r.login == t.v.login || t.store.dialect.Notifies
}

// canBeWoken reports whether a waiter behind that many others can be woken by each of them and by every holder.
func (t *step) canBeWoken(ahead int) bool {
	if t.v.now < t.v.start || ahead >= t.store.abilities().Wakes {
		return false
	}
	isOther := func(r row) bool { return !t.sameAccount(&r) }
	front := t.v.front[:min(ahead, len(t.v.front))]
	return !slices.ContainsFunc(t.v.holders, isOther) && !slices.ContainsFunc(front, isOther)
}
