package locks

import (
	"context"
	"fmt"
	"time"
)

// Replacement says whom a request puts out of its way, among those that asked
// for the same themselves: the newest wins.
type Replacement string

// What a request may replace. ReplaceRunning includes ReplaceWaiting: it evicts
// the waiters ahead of it that replace anything, and the holders that replace
// the running.
const (
	ReplaceNone    Replacement = ""
	ReplaceWaiting Replacement = "waiting"
	ReplaceRunning Replacement = "running"
)

// Evicter is a Store that can take an entry back.
type Evicter interface {
	Store

	// Evict marks an entry: by says who wants it gone, in words for its owner.
	// A waiter's place ends at once, its Wait with an *EvictedError. A holder's
	// entry stays until its golock has stopped the command and released it, or
	// its time is over; its owner's Renew ends with an *EvictedError. What is
	// held without a process (Request.Hold) ends at once. ErrLost: there is no
	// such entry. Evicting twice changes nothing.
	Evict(ctx context.Context, ref Ref, by string) error
}

// Sweeper is a Store in which something stays behind that nobody uses.
type Sweeper interface {
	Store

	// Sweep removes what is dead or unused and at least olderThan old, and says
	// how many things that were. It never removes what is live, with any number
	// of sweepers and users at once.
	Sweep(ctx context.Context, olderThan time.Duration) (removed int, err error)
}

// EvictedError says who took a place or a slot back. For a holder it means the
// same as ErrLost, but the slot stays taken until it is released or its term
// ends.
type EvictedError struct{ By string }

func (e *EvictedError) Error() string { return fmt.Sprintf("evicted by %s", Printable(e.By, 200)) }

// Is makes it an ErrLost.
func (e *EvictedError) Is(target error) bool { return target == ErrLost }
