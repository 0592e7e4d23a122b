package leasefile

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golock/locks"
)

// ticket is a request of ours that was granted or queued.
type ticket struct {
	entry  *entry
	lease  *lease // granted at once
	queued bool
	view   view // the line when it was last looked at
	place  atomic.Int64
	near   func() // to be told, once, when the turn is near; nil: nobody

	replaced []locks.Entry
}

// Queued implements locks.Ticket.
func (t *ticket) Queued() bool { return t.queued }

// Place implements locks.Located.
func (t *ticket) Place() int { return int(t.place.Load()) }

// Replaced implements locks.Replacer.
func (t *ticket) Replaced() []locks.Entry { return t.replaced }

// WhenNear implements locks.Placed.
func (t *ticket) WhenNear(f func()) { t.near = f }

// How long a waiter sleeps between two looks: a quarter of the time for which
// the line has not changed, so that short commands follow each other quickly,
// within bounds that grow with its place.
const (
	shortestLook = 2 * time.Millisecond
	longestLook  = 100 * time.Millisecond // of the one in front
	slowestLook  = time.Second            // of anybody
	leaveWait    = 30 * time.Millisecond  // what the one who leaves waits for that
)

// nextLook is when to look again. It is never later than a third of the TTL:
// each look keeps the place alive.
func (v view) nextLook(ttl time.Duration) time.Duration {
	if v.passing {
		return passing
	}
	place := time.Duration(max(v.place, 1))
	d := min(max(v.quiet/4, place*shortestLook), place*longestLook)
	return min(d, slowestLook, ttl/beats)
}

// Wait implements locks.Ticket. Nothing is pushed over a shared file system: it
// looks, sleeps and looks again.
func (t *ticket) Wait(ctx context.Context) (locks.Lease, error) {
	if !t.queued {
		return t.lease, nil
	}
	e := t.entry
	ttl := e.record.TTL
	alarm := time.NewTimer(t.view.nextLook(ttl))
	defer alarm.Stop()
	var outage error // the last look failed with it
	for {
		if t.near != nil && t.view.place <= 2 {
			t.near()
			t.near = nil
		}
		select {
		case <-ctx.Done():
			return nil, t.leave(ctx, outage)
		case <-alarm.C:
		}
		// A look that is late is answered by leave, which waits for it.
		v, err := await(ctx, e.look, func(view, error) {})
		next := retryPause
		var fault *locks.PanicError
		switch {
		case err == nil && v.granted:
			return newLease(e), nil
		case errors.As(err, &fault):
			_ = t.leave(ctx, nil)
			return nil, err
		case ctx.Err() != nil:
			if err != nil && !errors.Is(err, ctx.Err()) {
				outage = err
			}
			return nil, t.leave(ctx, outage)
		case err == nil:
			t.view, outage, next = v, nil, v.nextLook(ttl)
			t.place.Store(int64(v.place))
		case mayPassInLine(err):
			outage = err
		default:
			_ = t.leave(ctx, nil)
			return nil, err
		}
		alarm.Reset(min(next, ttl/beats))
	}
}

// leave gives the place up. It waits a moment for that; a file system that hangs
// does the rest later, or the TTL does.
func (t *ticket) leave(ctx context.Context, outage error) error {
	left := make(chan struct{})
	t.entry.given.Store(true)
	go func() {
		defer close(left)
		t.entry.leave()
	}()
	patience := time.NewTimer(leaveWait)
	defer patience.Stop()
	select {
	case <-left:
	case <-patience.C:
	}
	if outage != nil {
		return &locks.OutageError{Store: t.entry.store.URL(), Err: outage}
	}
	return ctx.Err()
}
