package runner

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golock/locks"
)

// attempt is one attempt to get the slot. A goroutine ends it and wakes the relay, also when it has
// queued.
type attempt struct {
	ctx    context.Context
	cancel context.CancelFunc

	stopsSoon atomic.Bool // this process is about to be stopped (suspend)

	place  atomic.Int64 // in the queue; 0: not known
	pause  atomic.Pointer[locks.QuarantineError]
	queued atomic.Pointer[locks.Ticket] // nil: not in the queue

	ended  chan struct{} // closed when these are final
	ticket locks.Ticket  // nil: not joined
	lease  locks.Lease
	later  func() // what the store does when the command has started; nil: nothing
	err    error
}

// begin asks the store for the slot, after a pause. What takes no waiting is done at once.
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
			close(a.ended) // in this goroutine: nobody need be woken
			return
		}
	}
	go func() {
		defer w.Relay.Wake()
		defer close(a.ended)
		if pause > 0 {
			select {
			case <-time.After(pause):
				w.Relay.Wake() // see makeReady
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

// join joins the queue. It fetches the lease too if that is granted.
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

// tryLimit bounds how long a store over a network is tried to be reached; once queued, an outage
// ends nothing. Before a run without a slot it is reachLimitNoWait at least, however short --wait
// is: a store that is only slow is not unavailable.
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

// askLimit bounds how long a store is asked before the run is queued, whether it answers or not. 0:
// the request has its own limits.
func (w *waiter) askLimit() time.Duration {
	switch {
	case w.Wait == 0:
		return 0
	case w.Wait < 0:
		return refusalLimit
	}
	return max(min(w.Wait, refusalLimit), w.tryLimit())
}
