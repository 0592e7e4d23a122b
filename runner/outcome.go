package runner

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"golock/locks"
	"golock/signals"
)

// takenBack is the error of a slot whose holder was evicted.
func takenBack(err error) error { return fmt.Errorf("the slot was taken back: %w", err) }

// tooLate is the outcome of a lease that ended before the command could begin. The store says why: an
// eviction is as one from the queue, everything else an outage.
func (r *Run) tooLate(lease locks.Lease, err error) *Outcome {
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
	return &Outcome{Kind: kind, Err: fmt.Errorf("lock %q: %w; nothing was started", r.Request.Name, err)}
}

// interruptedBy is the outcome of a run that a signal ended before its command was started.
func interruptedBy(sig syscall.Signal) *Outcome {
	if signals.IsFault(sig) {
		return &Outcome{Kind: Fault, Err: faultSent(sig)}
	}
	return &Outcome{Kind: Interrupted, Signal: sig}
}

func faultSent(sig syscall.Signal) error {
	return fmt.Errorf("another process sent golock %s, the signal of a fault", signals.Name(sig))
}
