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
