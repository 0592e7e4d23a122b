package runner

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golock/locks"
)

// attempt is an attempt to get the slot. Its goroutine wakes the relay when it has queued and when
// it ends.
type attempt struct {
	ctx    context.Context
	cancel context.CancelFunc

	stopsSoon atomic.Bool // set before this process is stopped (suspend)

	place  atomic.Int64 // the place in the queue; 0 if it is not known
	pause  atomic.Pointer[locks.QuarantineError]
	queued atomic.Pointer[locks.Ticket] // nil as long as the attempt has not queued

	ended  chan struct{} // closed when the fields below are final
	ticket locks.Ticket  // nil if the attempt has not joined
	lease  locks.Lease
	later  func() // called when the command has started; nil if the store has nothing to do then
	err    error
}

// begin starts an attempt to get the slot, after a pause. It asks the store at once, in this
// goroutine, for an answer that needs no waiting.
func (w *waiter) begin(pause time.Duration) {
	w.begins = time.Now().Add(pause)
	a := &attempt{ended: make(chan struct{})}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	w.attempt, w.noted = a, false
	request := w.Request
	request.NoWait = w.Wait == 0
	request.Progress = func(at int) {
		a.place.Store(int64(at))
		w.Relay.Wake()
	}
	request.Quarantined = a.pause.Store
	request.Reach = w.tryLimit()
	if w.Wait == 0 {
		request.Refusals = refusalLimitNoWait
	}
	request.JoinLimit = w.askLimit()
	request.StopsSoon = a.stopsSoon.Load
	request.Later = func(work func()) { a.later = work }
	request.Made = func(path string) { w.made.Store(&path) }
	if pause == 0 {
		atOnce := request
		atOnce.AtOnce = true
		a.join(w.Store, atOnce)
		if errors.Is(a.err, locks.ErrWouldBlock) {
			a.err = nil
		}
		if a.final() {
			close(a.ended) // no other goroutine has to be woken
			return
		}
	}
	go func() {
		defer w.Relay.Wake()
		defer close(a.ended)
		if pause > 0 {
			select {
			case <-time.After(pause):
				w.Relay.Wake() // the pause is over, so makeReady may start what the command needs
			case <-a.ctx.Done():
				a.err = a.ctx.Err()
				return
			}
		}
		if a.ticket == nil {
			a.join(w.Store, request)
			if !a.final() {
				w.Relay.Wake()
			}
		}
		if !a.final() {
			a.wait()
		}
	}()
}

func (a *attempt) final() bool { return a.lease != nil || a.err != nil }

// join joins the queue. If the slot is granted at once, it also gets the lease.
func (a *attempt) join(store locks.Store, r locks.Request) {
	defer locks.Recover(&a.err)
	ticket, err := store.Join(a.ctx, r)
	if a.err = err; err != nil {
		return
	}
	if a.ticket = ticket; ticket.Queued() {
		a.queued.Store(&ticket)
	} else {
		a.wait()
	}
}

// wait waits in the queue.
func (a *attempt) wait() {
	defer locks.Recover(&a.err)
	a.lease, a.err = a.ticket.Wait(a.ctx)
}

// tryLimit returns how long golock tries to reach a store over a network. Once the run has queued,
// an outage does not end it. For a run that may go on without a slot, the limit is at least
// reachLimitNoWait, however short --wait is: a slow store is not an unavailable one.
func (w *waiter) tryLimit() time.Duration {
	limit := min(w.Wait, reachLimit)
	switch {
	case w.Wait < 0:
		return reachLimit
	case w.Wait == 0 || w.Unavailable == RunAnyway:
		return max(limit, reachLimitNoWait)
	}
	return limit
}

// askLimit returns how long golock asks a store before the run has queued, whether the store
// answers or not.
func (w *waiter) askLimit() time.Duration {
	switch {
	case w.Wait == 0:
		return answerLimitNoWait
	case w.Wait < 0:
		return refusalLimit
	}
	return max(min(w.Wait, refusalLimit), w.tryLimit())
}
