package runner

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/runner/progress"
	"golock/signals"
)

const (
	// leaveLimit bounds how long a golock that was told to stop waits to leave the queue. Half of it
	// is for withdraw: together less than 100 ms.
	leaveLimit = 60 * time.Millisecond

	// withdrawLimit bounds how long a golock that gives up tries to tell the store, so that a grant
	// that the store may have made does not last for its TTL.
	withdrawLimit = 200 * time.Millisecond

	// How long golock tries to reach a store.
	reachLimit       = 10 * time.Second
	reachLimitNoWait = 2 * time.Second

	// nearPlaces is how many waiters of a lock keep a watchdog, so that a hand-off does not wait for
	// one to start. The others, perhaps thousands, start theirs at readyPlace.
	nearPlaces = 64
	readyPlace = 2
)

// waiter waits for the slot of a run. It belongs to the goroutine that owns the run. What takes no
// waiting is done at once; a goroutine does the rest. It ends with a final result, and wakes the
// relay after each one.
type waiter struct {
	*Run
	watchdog *watchdog
	status   *statusServer
	unwanted func() *Outcome // checked at every wake-up: an outcome ends the waiting; may be nil

	cancel   context.CancelCauseFunc // of the attempt; nil: before the first
	results  chan waitResult         // the last one is final
	place    *atomic.Int64           // in the queue; 0: not known
	pause    atomic.Pointer[locks.QuarantineError]
	ticket   locks.Ticket // nil: not queued
	progress progress.Reporter
	pending  []syscall.Signal // that came meanwhile and are the command's
}

// waitResult is what has become of an attempt. Without lease and error it has queued.
type waitResult struct {
	ticket locks.Ticket
	lease  locks.Lease
	err    error
}

func (r *waitResult) final() bool { return r.lease != nil || r.err != nil }

// wait gives the lease, or how the run failed.
func (w *waiter) wait() (locks.Lease, *Outcome) {
	if w.unwanted == nil {
		w.unwanted = func() *Outcome { return nil }
	}
	if failed := w.delay(); failed != nil {
		return nil, failed
	}
	began, deadline := time.Now(), time.Time{}
	if w.Wait > 0 {
		deadline = began.Add(w.Wait)
	}
	w.progress = progress.Reporter{
		Store: w.Store, Request: &w.Request, Until: deadline, Report: w.Waits, Wake: w.Relay.Wake,
		Quarantine: w.pause.Load,
	}
	if w.Terminal { // before it can be in the queue: see suspend
		w.Relay.CatchStop()
	}
	w.begin()
	defer func() {
		w.progress.End(false)
		w.cancel(nil)
		if w.Terminal {
			w.Relay.DropStop()
		}
	}()
	w.makeReady()
	for {
		if failed := w.unwanted(); failed != nil {
			_ = w.leave(nil, releaseLimit) // nobody is kept waiting by it
			return nil, failed
		}
		select {
		case got := <-w.results:
			if got.final() {
				return w.received(got)
			}
			w.hasQueued(got.ticket)
		default:
		}
		if err := w.progress.Update(); err != nil {
			_ = w.leave(nil, leaveLimit)
			return nil, w.refusal(err)
		}
		if isNear(w.place.Load()) {
			w.makeReady()
		}
		end := deadline
		if w.Wait > 0 && w.ticket == nil { // see tryLimit
			end = began.Add(max(w.Wait, w.tryLimit()))
		}
		left := time.Duration(math.MaxInt64)
		if !end.IsZero() {
			left = max(time.Until(end), 0)
		}
		sig, ok := w.Relay.Next(w.progress.Patience(left))
		if !ok && !end.IsZero() && !time.Now().Before(end) {
			return w.timedOut()
		}
		if failed := w.onSignal(sig); failed != nil {
			return nil, failed
		}
	}
}

// onSignal takes a signal, or 0. An outcome ends the run.
func (w *waiter) onSignal(sig syscall.Signal) *Outcome {
	switch {
	case signals.EndsWaiting(sig):
		return w.interrupted(sig)
	case sig == unix.SIGTSTP:
		return w.suspend()
	case sig != 0 && sig != unix.SIGCONT && sig != unix.SIGWINCH && sig != unix.SIGCHLD:
		w.pending = append(w.pending, sig)
	}
	return nil
}

// delay waits a random time before the store is asked.
func (w *waiter) delay() *Outcome {
	if w.Jitter <= 0 {
		return nil
	}
	pause := rand.N(w.Jitter)
	w.Log(false, "waits a random time", "for", pause)
	until := time.Now().Add(pause)
	for left := time.Until(until); left > 0; left = time.Until(until) {
		if failed := w.unwanted(); failed != nil {
			return failed
		}
		sig, _ := w.Relay.Next(left)
		if failed := w.onSignal(sig); failed != nil {
			return failed
		}
	}
	return nil
}

// begin asks the store for the slot.
func (w *waiter) begin() {
	var ctx context.Context
	ctx, w.cancel = context.WithCancelCause(context.Background())
	w.ticket, w.results = nil, make(chan waitResult, 2)
	request := w.Request
	request.NoWait = w.Wait == 0
	place := new(atomic.Int64)
	w.place = place
	request.Progress = func(at int) {
		if before := place.Swap(int64(at)); isNear(int64(at)) && !isNear(before) {
			w.Relay.Wake()
		}
	}
	w.pause.Store(nil)
	request.Quarantined = w.pause.Store
	atOnce, cancel := context.WithCancel(ctx)
	cancel()
	got := w.join(atOnce, atOnce, request)
	if errors.Is(got.err, context.Canceled) {
		got.err = nil
	}
	if got.ticket != nil || got.final() {
		w.results <- got // received in this goroutine: nobody need be woken
	}
	if got.final() {
		return
	}
	go func() {
		defer w.Relay.Wake()
		if got.ticket == nil {
			joining := ctx
			if locks.KindOf(w.Store) == locks.LeaseQueue {
				var cancel context.CancelFunc
				joining, cancel = context.WithTimeout(ctx, w.tryLimit())
				defer cancel()
			}
			if got = w.join(joining, ctx, request); !got.final() {
				w.results <- got
				w.Relay.Wake()
			}
		}
		if !got.final() {
			got.wait(ctx)
		}
		w.results <- got
	}()
}

// isNear reports whether a place in the queue is one whose watchdog should be there.
func isNear(place int64) bool { return place > 0 && place <= readyPlace }

// join gives a ticket, and the lease too if it is granted.
func (w *waiter) join(joining, ctx context.Context, request locks.Request) (got waitResult) {
	defer locks.Recover(&got.err)
	if got.ticket, got.err = w.Store.Join(joining, request); got.err == nil && !got.ticket.Queued() {
		got.wait(ctx)
	}
	return got
}

// wait waits in the queue.
func (r *waitResult) wait(ctx context.Context) {
	defer locks.Recover(&r.err)
	r.lease, r.err = r.ticket.Wait(ctx)
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

// makeReady starts what the command will need. An error shows again when that is needed.
func (w *waiter) makeReady() {
	_ = w.watchdog.spawn()
	_ = w.status.open()
}

func (w *waiter) hasQueued(ticket locks.Ticket) {
	w.ticket = ticket
	w.sayReplaced(ticket)
	w.Log(false, "waiting")
	if at := w.place.Load(); at == 0 || at > nearPlaces {
		w.watchdog.dismiss()
		w.status.close()
	}
	w.progress.Begin(w.place)
}

// received takes the result of an attempt that was not given up.
func (w *waiter) received(got waitResult) (locks.Lease, *Outcome) {
	if w.ticket == nil {
		w.sayReplaced(got.ticket)
	}
	if got.err == nil {
		return got.lease, nil
	}
	if isA[*locks.OutageError](got.err) {
		w.withdraw(withdrawLimit)
	}
	return nil, w.refusal(got.err)
}

func (w *waiter) sayReplaced(ticket locks.Ticket) {
	if ticket == nil {
		return
	}
	for _, e := range ticket.Replaced() {
		w.Say("replaced " + e.Holder())
	}
}

// giveUp ends the attempt. It waits for the result, at most limit: the place in the queue is gone
// then, or the slot was granted just before.
func (w *waiter) giveUp(cause error, limit time.Duration) (got waitResult) {
	w.cancel(cause)
	for late := time.After(limit); !got.final(); {
		select {
		case got = <-w.results:
			w.ticket = got.ticket
		case <-late:
			return waitResult{}
		}
	}
	return got
}

// leave gives up and releases a slot that was granted too late. The error says that it was evicted.
func (w *waiter) leave(cause error, limit time.Duration) error {
	got := w.giveUp(cause, limit)
	switch {
	case got.lease != nil:
		w.release(got.lease, true)()
		return got.lease.Evicted()
	case isA[*locks.EvictedError](got.err):
		return got.err
	}
	w.withdraw(min(limit, releaseLimit) / 2)
	return nil
}

// noteJoined takes the ticket if it has come just now: it knows of an eviction.
func (w *waiter) noteJoined() {
	select {
	case got := <-w.results:
		w.ticket = got.ticket
		if got.final() {
			w.results <- got // the last one, so there is room
		}
	default:
	}
}

// timedOut ends the waiting at its deadline.
func (w *waiter) timedOut() (locks.Lease, *Outcome) {
	got := w.giveUp(nil, withdrawLimit)
	outage := isA[*locks.OutageError](got.err)
	switch {
	case got.lease != nil:
		return got.lease, nil // just in time
	case isA[*locks.PanicError](got.err), isA[*locks.EvictedError](got.err):
		return nil, w.refusal(got.err)
	case outage, w.ticket == nil && locks.KindOf(w.Store) == locks.LeaseQueue:
		if w.withdraw(withdrawLimit); !outage {
			got.err = &locks.OutageError{Store: w.Store.URL(), Err: context.DeadlineExceeded}
		}
		return nil, &Outcome{Kind: Refused, Err: got.err}
	case !isA[*locks.BusyError](got.err):
		got.err = w.whyBusy()
	}
	return nil, &Outcome{Kind: Busy, Err: got.err}
}

// interrupted ends the waiting because of a signal.
func (w *waiter) interrupted(sig syscall.Signal) *Outcome {
	if w.cancel == nil { // nothing was asked of the store
		return interruptedBy(sig)
	}
	w.noteJoined()
	var evicted error
	if w.ticket != nil {
		evicted = w.ticket.Evicted()
	}
	if err := w.leave(nil, leaveLimit); evicted == nil {
		evicted = err
	}
	if evicted != nil && sig == unix.SIGTERM {
		return w.refusal(evicted)
	}
	return interruptedBy(sig)
}

// suspend leaves the queue, stops golock, and joins anew when it is continued: a stopped process in
// the queue would hold up everybody behind it. So it waits for the end of the attempt.
func (w *waiter) suspend() *Outcome {
	if w.cancel == nil { // in delay, without a terminal: with one the signal stops golock by itself
		w.Relay.Suspend()
		return nil
	}
	if err := w.leave(locks.ErrStandsStill, math.MaxInt64); err != nil {
		return w.refusal(err)
	}
	w.progress.End(true)
	w.Log(false, "left the queue", "signal", "TSTP")
	w.Relay.Suspend()
	if ref, err := locks.NewRef(w.Request.Name); err == nil {
		w.Request.Ref.ID = ref.ID // an entry that has left a queue never comes back into it
		w.watchdog.dismiss()      // it would release the old one
		w.status.close()
	}
	w.begin()
	w.makeReady()
	return nil
}

// withdraw tells a store that has not answered yet to forget the request.
func (w *waiter) withdraw(limit time.Duration) {
	if store, ok := w.Store.(locks.LeaseStore); ok && w.ticket == nil {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		_ = store.Attach(w.Request.Ref).Release(ctx)
	}
}

// refusal is the outcome of an error of the store. A nested run that does not wait is just busy;
// one that would wait is a mistake.
func (w *waiter) refusal(err error) *Outcome {
	busy, isBusy := errors.AsType[*locks.BusyError](err)
	switch {
	case isA[*locks.PanicError](err):
		return &Outcome{Kind: Fault, Err: err}
	case isA[*locks.NestedError](err) && w.Wait != 0:
		return &Outcome{Kind: Refused, Err: err}
	case isBusy:
		if len(busy.Holders) == 0 && busy.Reason == "" { // a kernel lock may not tell at once
			busy.Holders = w.whyBusy().Holders
		}
		return &Outcome{Kind: Busy, Err: err}
	case isA[*locks.EvictedError](err):
		return &Outcome{Kind: Busy, Err: fmt.Errorf("the place in the queue of %q is lost: %w", w.Request.Name, err)}
	}
	return &Outcome{Kind: Refused, Err: err}
}

// whyBusy asks the store who was in the way, for the message.
func (w *waiter) whyBusy() *locks.BusyError {
	busy := &locks.BusyError{Name: w.Request.Name}
	ctx, cancel := context.WithTimeout(context.Background(), releaseLimit)
	defer cancel()
	for e, err := range w.Store.Entries(ctx, w.Request.Name) {
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
