package runner

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/signals"
)

// leaveLimit bounds how long a golock that was told to stop looks after its
// place in the queue.
const leaveLimit = 60 * time.Millisecond

// How long a store that does not answer is tried, at most.
const (
	reachLimit       = 10 * time.Second
	reachLimitAtOnce = 2 * time.Second // of a run that does not wait
)

// withdrawLimit bounds how long a golock that gives up on a store tells it so.
// Without that, what the store may have granted lasts for its TTL.
const withdrawLimit = 200 * time.Millisecond

// nearPlaces is how many waiters of a name keep their guard with them, so that
// the slot goes from hand to hand without waiting for one to start. Those behind
// start it when their turn is near.
const nearPlaces = 8

// acquired is what the waiting comes to.
type acquired struct {
	lease locks.Lease
	err   error
}

// attempt is one try to get the slot. What takes no waiting is done at once;
// the rest in a goroutine of its own, which ends with one message to got, which
// has room for it, and wakes the relay after each message.
type attempt struct {
	cancel   context.CancelFunc
	suspend  func()          // cancel, before the process is stopped
	queued   chan func() int // the place in the queue; 0: not known
	near     chan struct{}
	replaced chan []locks.Entry
	got      chan acquired
}

func (r *Run) attempt() *attempt {
	ctx, cancel := context.WithCancelCause(context.Background())
	a := &attempt{cancel: func() { cancel(nil) }, suspend: func() { cancel(locks.ErrStandsStill) }, queued: make(chan func() int, 1), near: make(chan struct{}, 1), replaced: make(chan []locks.Entry, 1), got: make(chan acquired, 1)}
	request := r.Request
	request.NoWait = r.Wait == 0

	atOnce, end := context.WithCancel(ctx)
	end()
	ticket, lease, err := r.join(atOnce, request)
	a.tell(ticket)
	if lease != nil || (err != nil && !errors.Is(err, context.Canceled)) {
		a.got <- acquired{lease, err}
	} else {
		go r.wait(ctx, request, ticket, a)
	}
	return a
}

// tell passes on whom the request has replaced.
func (a *attempt) tell(ticket locks.Ticket) {
	if t, ok := ticket.(locks.Replacer); ok && len(t.Replaced()) > 0 {
		a.replaced <- t.Replaced()
	}
}

// join gives a ticket, and the lease too if it is granted. A panic is made an
// error.
func (r *Run) join(ctx context.Context, request locks.Request) (ticket locks.Ticket, lease locks.Lease, err error) {
	defer func() {
		if v := recover(); v != nil {
			ticket, lease, err = nil, nil, locks.NewPanicError(v)
		}
	}()
	ticket, err = r.Store.Join(ctx, request)
	if err == nil && !ticket.Queued() {
		lease, err = ticket.Wait(ctx)
	}
	return ticket, lease, err
}

// wait joins, unless there is a ticket already, and waits.
func (r *Run) wait(ctx context.Context, request locks.Request, ticket locks.Ticket, a *attempt) {
	defer r.Relay.Wake()
	defer func() {
		if v := recover(); v != nil {
			a.got <- acquired{err: locks.NewPanicError(v)}
		}
	}()
	if ticket == nil {
		joining, end := r.reach(ctx)
		defer end()
		var err error
		if ticket, err = r.Store.Join(joining, request); err != nil {
			a.got <- acquired{err: err}
			return
		}
		a.tell(ticket)
	}
	if ticket.Queued() {
		place := func() int { return 0 }
		if p, ok := ticket.(locks.Located); ok {
			place = p.Place
		}
		if p, ok := ticket.(locks.Placed); ok {
			p.WhenNear(func() {
				a.near <- struct{}{}
				r.Relay.Wake()
			})
		}
		a.queued <- place
		r.Relay.Wake()
	}
	lease, err := ticket.Wait(ctx)
	a.got <- acquired{lease, err}
}

// reach bounds how long a store over a network is tried to be reached. Once
// queued, an outage ends nothing.
func (r *Run) reach(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := reachLimit
	switch {
	case !r.Store.Traits().Leased:
		return ctx, func() {}
	case r.Wait == 0:
		limit = reachLimitAtOnce
	case r.Wait > 0:
		limit = min(limit, r.Wait)
	}
	return context.WithTimeout(ctx, limit)
}

// giveUp ends the attempt. It waits a moment for what that comes to: the place
// in the queue is gone then, or the slot was granted just before.
func (a *attempt) giveUp(limit time.Duration) acquired {
	a.cancel()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case got := <-a.got:
		return got
	case <-timer.C:
		return acquired{}
	}
}

// acquire waits for the slot. It gives the lease and the signals that came
// meanwhile and are the command's, or how the run failed. Guard and desk, if any,
// are made ready while the store is being asked; what goes wrong with that shows
// when they are needed.
func (r *Run) acquire(g *guard, d *desk) (locks.Lease, []syscall.Signal, *Outcome) {
	var pending []syscall.Signal
	var until time.Time
	if r.Wait > 0 {
		until = time.Now().Add(r.Wait)
	}
	a := r.attempt()
	makeReady := func() { _, _ = g.raise(), d.open() }
	makeReady()
	waiting := false
	onlooker := onlooker{run: r}
	defer func() {
		onlooker.end(false)
		a.cancel()
		if waiting && r.Terminal {
			r.Relay.DropStop()
		}
	}()
	for {
		if r.unwanted != nil {
			if err := r.unwanted(); err != nil {
				r.giveBack(a.giveUp(releaseLimit)) // nobody is kept waiting by it
				r.withdraw(releaseLimit)
				return nil, nil, &Outcome{Kind: Unwanted, Err: err}
			}
		}
		select {
		case replaced := <-a.replaced:
			for _, e := range replaced {
				r.Say("replaced " + e.Holder())
			}
		default:
		}
		select {
		case got := <-a.got:
			var outage *locks.OutageError
			if errors.As(got.err, &outage) && !waiting {
				r.withdraw(withdrawLimit)
			}
			if got.err != nil {
				return nil, nil, r.refused(got.err, r.Wait == 0)
			}
			return got.lease, pending, nil
		case place := <-a.queued:
			r.Log(false, "waiting")
			if at := place(); at == 0 || at > nearPlaces {
				g.dismiss() // thousands may wait
				d.close()
			}
			onlooker.begin(place)
			if waiting = true; r.Terminal {
				r.Relay.CatchStop()
			}
		case <-a.near:
			makeReady()
		default:
		}
		if err := onlooker.attend(); err != nil {
			r.giveBack(a.giveUp(leaveLimit))
			return nil, nil, r.refused(err, false)
		}
		timeout := time.Duration(-1)
		if !until.IsZero() {
			timeout = max(time.Until(until), 0)
		}
		sig, ok := r.Relay.Next(onlooker.patience(timeout))
		switch {
		case !ok && (until.IsZero() || time.Now().Before(until)): // the onlooker's time
		case !ok:
			got := a.giveUp(leaveLimit)
			if got.lease != nil {
				return got.lease, pending, nil // just in time
			}
			var panicked *locks.PanicError
			if errors.As(got.err, &panicked) {
				return nil, nil, r.refused(got.err, false)
			}
			if err := got.evicted(); err != nil {
				return nil, nil, r.refused(err, false)
			}
			if out := r.outOfReach(got.err, waiting); out != nil {
				return nil, nil, out
			}
			var busy *locks.BusyError
			if !errors.As(got.err, &busy) {
				busy = r.whyBusy()
			}
			return nil, nil, &Outcome{Kind: Busy, Err: busy}
		case signals.EndsWaiting(sig):
			got := a.giveUp(leaveLimit)
			r.giveBack(got)
			if err := got.evicted(); err != nil && sig == unix.SIGTERM {
				return nil, nil, r.refused(err, false)
			}
			if !waiting {
				r.withdraw(leaveLimit)
			}
			return nil, nil, &Outcome{Kind: Interrupted, Signal: sig}
		case sig == unix.SIGTSTP:
			// A stopped process must not keep its place: it would hold up
			// everybody behind it. Here the end of the attempt is waited for.
			a.suspend()
			got := <-a.got
			r.giveBack(got)
			if err := got.evicted(); err != nil { // it is not to come again
				return nil, nil, r.refused(err, false)
			}
			onlooker.end(true)
			r.Log(false, "left the queue", "signal", "TSTP")
			r.Relay.Suspend()
			if ref, err := locks.NewRef(r.Request.Name); err == nil {
				r.Request.Ref.ID = ref.ID // what has left a queue does not come back into it
				g.introduce()
				d.close()
			}
			a = r.attempt()
		case sig != 0 && sig != unix.SIGCONT && sig != unix.SIGWINCH && sig != unix.SIGCHLD:
			pending = append(pending, sig)
		}
	}
}

// lastSignals takes in what came since the slot was granted. It gives the
// signal that told golock to stop, if there was one: the command need not be
// started then.
func (r *Run) lastSignals(pending []syscall.Signal) ([]syscall.Signal, syscall.Signal) {
	for {
		sig, ok := r.Relay.Next(0)
		switch {
		case !ok:
			return pending, 0
		case signals.EndsWaiting(sig):
			return nil, sig
		case sig != 0 && sig != unix.SIGCHLD:
			pending = append(pending, sig)
		}
	}
}

// outOfReach tells, when the time to wait is over, a store that did not answer
// from one that has none to give.
func (r *Run) outOfReach(err error, queued bool) *Outcome {
	var outage *locks.OutageError
	switch {
	case errors.As(err, &outage):
		if !queued {
			r.withdraw(withdrawLimit)
		}
		return &Outcome{Kind: Refused, Err: err}
	case r.Store.Traits().Leased && !queued:
		r.withdraw(withdrawLimit)
		return &Outcome{Kind: Refused, Err: &locks.OutageError{Store: r.Store.URL(), Err: context.DeadlineExceeded}}
	}
	return nil
}

// withdraw tells a store that was asked and whose answer is not awaited any
// more that it need not have granted anything. There is not much time for it.
func (r *Run) withdraw(limit time.Duration) {
	if store, ok := r.Store.(locks.Attacher); ok {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		_ = store.Attach(r.Request.Ref).Release(ctx)
	}
}

// evicted is the error of a request that was evicted, or of a lease that was
// before it could be of use.
func (a acquired) evicted() error {
	if l, ok := a.lease.(locks.Marked); ok {
		return l.Evicted()
	}
	if evicted(a.err) {
		return a.err
	}
	return nil
}

func evicted(err error) bool {
	var e *locks.EvictedError
	return errors.As(err, &e)
}

// giveBack releases a slot that came too late to be wanted.
func (r *Run) giveBack(a acquired) {
	if a.lease != nil {
		r.release(a.lease, Interrupted)
	}
}

// refused sorts an error of the store. A nested run that does not wait is just
// busy; one that would wait is a mistake.
func (r *Run) refused(err error, noWait bool) *Outcome {
	var panicked *locks.PanicError
	var nested *locks.NestedError
	var busy *locks.BusyError
	switch {
	case errors.As(err, &panicked):
		return &Outcome{Kind: Fault, Err: err}
	case errors.As(err, &nested) && !noWait:
		return &Outcome{Kind: Refused, Err: err}
	case errors.As(err, &busy):
		if len(busy.Holders) == 0 && busy.Reason == "" { // a kernel's lock may not tell at once
			busy.Holders = r.whyBusy().Holders
		}
		return &Outcome{Kind: Busy, Err: err}
	case evicted(err):
		return &Outcome{Kind: Busy, Err: fmt.Errorf("the place in the queue of %q is lost: %w", r.Request.Name, err)}
	}
	return &Outcome{Kind: Refused, Err: err}
}

// whyBusy asks the store who was in the way, for the message.
func (r *Run) whyBusy() *locks.BusyError {
	busy := &locks.BusyError{Name: r.Request.Name}
	ctx, cancel := context.WithTimeout(context.Background(), releaseLimit)
	defer cancel()
	for e, err := range r.Store.Entries(ctx, r.Request.Name) {
		if err != nil {
			break
		}
		if e.State == locks.Holding {
			busy.Holders = append(busy.Holders, e)
		} else {
			busy.Waiters++
		}
	}
	return busy
}
