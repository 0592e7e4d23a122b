package runner

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"golock/locks"
	"golock/signals"
)

// takenBackError is the error of a slot whose holder was evicted.
type takenBackError struct{ error }

func takenBack(err error) error { return &takenBackError{err} }

func (e *takenBackError) Error() string { return fmt.Sprintf("the slot was taken back: %v", e.error) }

func (e *takenBackError) Unwrap() error { return e.error }

// outcomeOfLateGrant is the outcome of a run whose lease ended before the command could begin. It asks the store
// why. If the run was evicted, it ends as Busy, like a waiter that is evicted. Otherwise it ends as Refused,
// with err.
func (r *Run) outcomeOfLateGrant(lease locks.Lease, err error) *Outcome {
	ctx, cancel := context.WithTimeout(context.Background(), lease.Term().RenewalLimit())
	defer cancel()
	_, why := lease.Renew(ctx)
	if evicted, ok := errors.AsType[*locks.EvictedError](why); ok {
		return r.lostBefore(Busy, takenBack(evicted))
	}
	return r.lostBefore(Refused, err)
}

// lostBefore is the outcome of a slot that was lost before the command could begin.
func (r *Run) lostBefore(kind Kind, err error) *Outcome {
	return &Outcome{Kind: kind, Err: fmt.Errorf("%s: %w; nothing was started", r.lockText(), err)}
}

// lockText names the locks of the run in a message.
func (r *Run) lockText() string {
	if len(r.Earlier) == 0 {
		return fmt.Sprintf("lock %q", r.Request.Name)
	}
	text := "locks"
	for i, name := range r.Names() {
		if i > 0 {
			text += ","
		}
		text += fmt.Sprintf(" %q", name)
	}
	return text
}

// interruptedBy is the outcome of a run that a signal ended before its command was started.
func interruptedBy(sig syscall.Signal) *Outcome {
	if signals.IsFault(sig) {
		return &Outcome{Kind: Fault, Err: faultSent(sig)}
	}
	return &Outcome{Kind: Interrupted, Signal: sig}
}

// faultSent is the error of a golock to which another process sent the signal of a fault.
func faultSent(sig syscall.Signal) error {
	return fmt.Errorf("another process sent golock %s, the signal of a fault", signals.Name(sig))
}

// outcomeOf converts an error of the store to an outcome. A nested run that does not wait ends as
// Busy. A nested run that would wait for the run around it is a mistake.
func (w *waitPhase) outcomeOf(err error) *Outcome {
	busy, isBusy := errors.AsType[*locks.BusyError](err)
	switch {
	case errors.As(err, new(*locks.PanicError)):
		return &Outcome{Kind: Fault, Err: err}
	case isBusy && busy.Inside != nil && w.WaitLimit != 0:
		return &Outcome{Kind: Refused, Err: err}
	case isBusy:
		if len(busy.Holders) == 0 && busy.Reason == "" { // a plain store does not name the holders in its refusal
			found := w.whyBusy()
			busy.Holders, busy.Waiters = found.Holders, max(busy.Waiters, found.Waiters)
		}
		return &Outcome{Kind: Busy, Err: err}
	case errors.As(err, new(*takenBackError)):
		return w.lostBefore(Busy, err)
	case errors.As(err, new(*locks.EvictedError)):
		return &Outcome{Kind: Busy, Err: fmt.Errorf("lock %q: the place in the queue is lost: %w", w.current().Name, err)}
	}
	return &Outcome{Kind: Refused, Err: err}
}

// whyBusy asks the store who holds the slot and how many wait. If the store does not answer, the error names
// nobody.
func (w *waitPhase) whyBusy() *locks.BusyError {
	name := w.current().Name
	busy := &locks.BusyError{Name: name}
	ctx, cancel := context.WithTimeout(context.Background(), releaseLimit)
	defer cancel()
	entries, _ := w.Store.Entries(ctx, name)
	for _, e := range entries {
		if e.State == locks.Holding {
			busy.Holders = append(busy.Holders, e)
		} else {
			busy.Waiters++
		}
	}
	return busy
}
