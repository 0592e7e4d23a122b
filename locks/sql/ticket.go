package sql

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golock/locks"
)

// ticket is a request of ours that was granted or queued.
type ticket struct {
	entry  *entry
	lease  *lease // granted at once
	line   *line  // of a queued one; the lease gets it
	queued bool
	place  atomic.Int64  // in the queue, by the last answer
	look   time.Duration // until when the store wants to be asked again
	quiet  time.Time     // until then nothing is granted to anybody
	near   func()        // to be told, once, when the turn is near; nil: nobody

	replaced []locks.Entry
}

// Queued implements locks.Ticket.
func (t *ticket) Queued() bool { return t.queued }

// Place implements locks.Located.
func (t *ticket) Place() int { return int(t.place.Load()) }

// WhenNear implements locks.Placed.
func (t *ticket) WhenNear(f func()) { t.near = f }

// Replaced implements locks.Replacer.
func (t *ticket) Replaced() []locks.Entry { return t.replaced }

func (t *ticket) isNear(place int) {
	if t.near != nil && place <= 2 {
		t.near()
		t.near = nil
	}
}

// Wait implements locks.Ticket. It sleeps until it is woken or the time that
// the last answer named is over, and looks; from far back only at its place.
// Every look that is more than that also keeps the place alive; a waiter that was
// taken for dead gets its old place back.
func (t *ticket) Wait(ctx context.Context) (locks.Lease, error) {
	if !t.queued {
		return t.lease, nil
	}
	e := t.entry
	pause, keep, retry := t.look, shortestPoll, retryPause
	var outage error // the last look failed with it
	moved := func(from, to int) {
		if keep = shortestPoll; to < from {
			keep = keepConn
		}
		t.place.Store(int64(to))
	}
	for {
		if err := t.line.sleep(ctx, e, pause, keep); err != nil && !errors.Is(err, context.Canceled) {
			if !isPassing(err) {
				return nil, t.leave(ctx, err)
			}
		}
		if ctx.Err() != nil {
			return nil, t.leave(ctx, t.why(ctx, outage))
		}
		if outage == nil { // else one attempt is enough
			if g, ok := t.line.glance(ctx, e); ok {
				moved(e.place, g.place)
				e.place, pause = g.place, g.look
				continue
			}
		}
		place := e.place
		a, asked, err := e.ask(ctx, t.line, join)
		switch {
		case err != nil && ctx.Err() != nil:
			continue
		case err != nil && !isPassing(err):
			return nil, t.leave(ctx, err)
		case err != nil: // a server that is too busy is not to be made busier
			outage, pause = err, retry+rand.N(retry/2)
			if e.place > e.store.target.waiters { // those in front must be back before they are taken for dead
				retry = min(retry*3/2, longestPause)
			}
			e.mine.ears = 0 // nor is there a connection to be woken over
		case a.word == granted:
			return newLease(e, t.line, asked, a.crowd), nil
		case a.word == queued:
			outage, pause, retry, t.quiet = nil, a.look, retryPause, time.Now().Add(a.quiet)
			moved(place, a.place)
			t.isNear(a.place)
		default:
			t.line.close()
			return nil, e.refused(a)
		}
	}
}

// why is the error of a waiting that ctx has ended.
func (t *ticket) why(ctx context.Context, outage error) error {
	if outage != nil {
		return &locks.OutageError{Store: t.entry.store.URL(), Err: outage}
	}
	if left := time.Until(t.quiet); left > 0 {
		return &locks.BusyError{Name: t.entry.name, Reason: whyQuiet(left)}
	}
	return ctx.Err()
}

// leave gives the place up, for a reason. A connection that is there is used for
// it: to make another one may take longer than there is time.
func (t *ticket) leave(ctx context.Context, why error) error {
	t.entry.giveUp(ctx, t.line)
	return why
}

// keepConn is for how long a waiter that the store does not wake keeps its
// connection for its next look if it has come further since the last one. In a
// line that moves quickly those are a dozen, and to connect costs more than to
// look.
const keepConn = 250 * time.Millisecond

// sleep waits to be woken, for d at most. A waiter that the store does not wake
// keeps no connection meanwhile, if that is longer than keep; one that it would
// wake over a connection that is lost comes again soon.
func (l *line) sleep(ctx context.Context, e *entry, d, keep time.Duration) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case e.mine.ears == 0:
		if d > keep {
			l.hangUp()
		}
		pause(ctx, d)
		return nil
	case l.conn == nil || e.mine.ears != l.number:
		pause(ctx, min(d, retryPause))
		return nil
	}
	defer func() {
		if v := recover(); v != nil {
			err = &refusal{err: locks.NewPanicError(v)}
		}
		if err != nil {
			l.hangUp()
		}
	}()
	// A connection that has silently died never answers.
	bound, cancel := context.WithTimeout(ctx, d+attemptLimit(e.ttl))
	defer cancel()
	_, err = l.conn.Wait(bound, Sleeper{Table: l.store.table, Key: e.ref.Key.String(), ID: e.mine.id, Conn: e.mine.ears}, d)
	return err
}
