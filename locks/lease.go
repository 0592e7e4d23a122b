package locks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Instant is a moment on CLOCK_BOOTTIME, in nanoseconds: a clock that only goes
// forward and also counts the time that the machine was suspended. Instants of
// two machines, or of two boots, have nothing to do with each other.
type Instant int64

// Clock gives the present Instant. It is a parameter so that tests can drive
// it; the real one is BootTime.
type Clock func() Instant

// BootTime reads CLOCK_BOOTTIME (clock_gettime(2)).
func BootTime() Instant {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return Instant(ts.Nano())
}

// Add is the moment d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub is the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// Term is what one answer of a leased store promises: the slot is ours until
// TTL after Asked, which was read before the request was written.
type Term struct {
	Asked Instant
	TTL   time.Duration
}

// End is the moment from which the slot must count as somebody else's. It is
// earlier than the store's own by what two good clocks may drift apart: 1 % of
// the TTL and 2 ms.
func (t Term) End() Instant { return t.Asked.Add(t.TTL - t.TTL/100 - 2*time.Millisecond) }

// Leased is a Lease that ends by itself unless it is renewed: the store cannot
// see whether its holder lives. Its methods may be called from several
// goroutines.
type Leased interface {
	Lease

	// Term is that of the last good answer: the grant's, or a renewal's.
	Term() Term

	// Renew prolongs the lease by its TTL, in one attempt that ctx bounds. If
	// the store has forgotten the lease, because it lost its data, Renew puts
	// it back where that breaks nobody's rule. ErrLost is final: the slot is
	// not ours any more. After any other error nothing is known, and another
	// attempt is in order until the term ends; it goes over a new connection.
	Renew(ctx context.Context) (Term, error)

	// Events gives hints that a renewal should be tried at once. The channel
	// is never closed and drops what nobody takes.
	Events() <-chan Event
}

// Warner is a Store that may find out, while it is used, that it cannot promise
// all that it should.
type Warner interface {
	Store

	// Warnings are what it has found out so far, a line each.
	Warnings() []string
}

// Located is a Ticket that knows its place.
type Located interface {
	Ticket

	// Place is the place in the queue when it was last looked at; 1 is the next.
	// It does no I/O and may be called at any time from any goroutine.
	Place() int
}

// Placed is a Located that tells when its turn is near. What takes its time can
// be done before the grant then.
type Placed interface {
	Located

	// WhenNear has f called once, while Wait sleeps, when the place has become
	// one of the first two. It must be called before Wait.
	WhenNear(f func())
}

// Event is a hint about a lease.
type Event int

// The hints.
const (
	Unsure  Event = iota // the connection went away
	Evicted              // somebody has taken the slot back
)

// Attacher is a Store that can find, in another process than the one that took
// it, a lease again.
type Attacher interface {
	Store

	// Attach gives the lease that ref names. It asks the store nothing; what
	// has gone shows as ErrLost in the lease's methods.
	Attach(ref Ref) Leased

	// Find gives the live entry that ref names. ErrLost: there is none.
	Find(ctx context.Context, ref Ref) (Entry, error)
}

// Pick gives the entry of a list that ref names, or ErrLost.
func Pick(entries []Entry, ref Ref) (Entry, error) {
	for _, e := range entries {
		if e.Ref == ref {
			return e, nil
		}
	}
	return Entry{}, ErrLost
}

// ErrStandsStill is the cause (context.Cause) with which who waits ends that
// because its process is about to be stopped. A step that it began would hold up
// the others for as long as it stands still: leaving the queue is then waited
// for, by which Wait or Join may return some seconds later.
var ErrStandsStill = errors.New("the process is about to be stopped")

// ErrLost says that a slot is held no longer: its lease ran out, or it was
// taken back.
var ErrLost = errors.New("the slot is not held any more")

// OutageError says that a store could not be reached for as long as it was
// tried. Nothing is known about what it holds.
type OutageError struct {
	Store string // its URL without secrets
	Err   error  // the last failure
}

func (e *OutageError) Error() string { return fmt.Sprintf("%s cannot be reached: %v", e.Store, e.Err) }

func (e *OutageError) Unwrap() error { return e.Err }
