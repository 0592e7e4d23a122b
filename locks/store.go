// Package locks is the contract between the runner and the stores: what is
// asked of a store (Request), what it gives (Admission, Lease, Grant), what it
// shows (Entry), what it can do (Abilities), and the admission rule (rule.go).
//
// A name in a store has an ordered queue of entries. An entry waits or holds;
// only the first waiter may be admitted.
//
// Abilities, a struct, is the only way in which a store says what it can do. It was
// chosen instead of types (a Store, a larger interface, a type assertion) for three
// reasons. Two thirds of the callers need a fact, not a method: whether a flag makes
// sense, whether a watchdog is needed. A test or a decorator that wraps a store keeps
// its abilities, whereas embedding an interface hides the methods that it lacks. And
// the methods of an optional ability are a field that is nil where the store lacks it,
// so that nobody can call what is not there, and no store has methods that only refuse.
package locks

import (
	"context"
	"time"
)

// Store is one place where locks live. Opening one does no I/O: errors of the place
// itself (unreachable, refused, not writable) come from its methods. Several goroutines
// MAY call the methods at once.
//
// How to add a store. The conformance suite (package locktest) has the tests that are named
// here. A store adds TestConformance, and tests of what only that store can get wrong.
//
//  1. Write a package below locks with Open or New, and add the scheme of its URL to the
//     table in locks/open. If only the full program can link it, add a stub for it to
//     locks/open/lean.go. URL MUST have no secrets and MUST open the same store again.
//     (locks/open: TestURLs)
//  2. Decide which kind it is. One kernel lock: implement kernel.Lock, and let Join call
//     kernel.Join. Grants that expire: embed lease.Engine, implement lease.Entry, and let
//     package queue decide. The smallest example is locktest/memory. A step MUST wake the
//     waiters that the decision names (Told, Due). Abilities MUST do no I/O.
//  3. Join MUST be one atomic step that may be repeated: an attempt whose answer was lost
//     MUST NOT make a second entry. A store that queues MUST admit only the first waiter,
//     by the rule of Admits. (Rule, FirstComeFirstServed, WaiterIsNotOvertaken, Histories;
//     locktest.LostAnswers)
//  4. Fences MUST grow with every grant of a name, also after the store has lost its data,
//     and slots MUST be the lowest that are free. (FenceGrows, Slots)
//  5. A dead entry MUST NOT count: from the moment of its death if the kernel reports it, else
//     after its TTL. A holder that has a process MUST keep its slot until that process has
//     ended. (KilledHolder, KilledWaiters, DeadDoNotCount)
//  6. Wait MUST leave the queue when its context ends, and Join MUST refuse a request of a
//     process inside the lock that would wait for itself. (LeaveQueue, Nested)
//  7. Entries MUST show every live entry and change nothing. (Names, Entries)
//  8. A store with a Queue: its methods do what Queue says, and Join heeds Claim.Priority,
//     MaxQueue, Replace and Hold. (Find, Sweep, Forget, Priority, MaxQueue, EvictWaiter,
//     EvictHolder, Replace*, Hold*)
//  9. A store with Leases: a Lease MUST NOT be renewed after it was lost. An entry that has
//     left MUST NOT come back, although a request of its owner may arrive minutes late: it
//     leaves a tombstone, also if a hold kept its slot for a while. (Attach, Ended)
//  10. Examine MUST find everything on which a promise of the store depends, and MUST leave
//     nothing behind. (locktest.Examine in the tests of the store)
//  11. Call locktest.Run in a test named TestConformance, locktest.LostAnswers behind a proxy,
//     and locktest.Chaos while the store is restarted or cut off, if it can be.
type Store interface {
	// Join puts one entry into the queue of r.Name, in one atomic step. It never waits
	// for a slot: the admission is granted already, or queued. (In a quarantine the Wait of
	// a request that does not queue lasts until the quarantine is over.) Join tries a store
	// that cannot be reached again until ctx ends.
	//
	// Errors: *BusyError if the request cannot be granted now and may not wait, or if an
	// enclosing run holds the name and no slot is free; *OutageError if ctx ended before
	// the store was reached, or it refuses for a temporary reason; ErrWouldBlock as
	// Request.AtOnce says. Any other error means that the store could not be used. After
	// an error nothing of the request is left in the store. Only a networked store that
	// cannot be told to remove the entry keeps it for its TTL.
	Join(ctx context.Context, r Request) (Admission, error)

	// Entries gives the live entries of one name, or of all names ("") name by name:
	// holders first, then waiters in their order. It changes nothing. What was read before
	// an error is returned too.
	Entries(ctx context.Context, name string) ([]Entry, error)

	// Examine checks, for doctor, everything that a promise depends on. It may take and
	// release the slot of a name that nobody else uses; nothing stays behind. An error
	// says that the store could not be examined at all; findings before it are returned
	// too. ttl is the TTL of the runs in question.
	Examine(ctx context.Context, ttl time.Duration) ([]Finding, error)

	// Abilities says what the store can do. The answer is always the same.
	Abilities() Abilities

	// URL is the store's address without secrets. It opens the same store again.
	URL() string

	// Close closes what the store has open. It is called after its leases were released.
	Close() error
}

// Abilities are what a store can do beyond what every Store does.
type Abilities struct {
	// Queue is nil for a plain store, which is one kernel lock: its URL says which, and a
	// name is only a label. Other tools may use the same lock.
	Queue Queue

	// Leases is nil if a slot lasts as long as its holder lives, because the kernel knows whether
	// it does. A store that has Leases has a Queue too.
	Leases Leases

	// MaxUnits is the largest max and weight that the store can count.
	MaxUnits int

	// NoMax, NoWeight and NoShared say, for the user, why a request cannot have a max above
	// MaxUnits, a weight above 1, or no max at all. A reason is empty if a request can.
	NoMax, NoWeight, NoShared string

	// InheritorsKeep says that a process that has inherited a slot may keep it after the holder has
	// released it.
	InheritorsKeep bool

	// EvictsTogether says that to evict many entries costs hardly more than to evict
	// one. Otherwise a caller with little time evicts them one by one.
	EvictsTogether bool

	// Unprotected lists the commands that golock has become (KeptByCommand) and that have closed the
	// descriptor of their slot: the command runs on, although the slot is free. It lists the entries of one
	// name, or of all names (""), and changes nothing. A later run of the name removes the records from
	// which the store knows them. Unprotected is nil if the store cannot know them.
	Unprotected func(ctx context.Context, name string) ([]Entry, error)
}

// Queue is what a store can do that serves in strict order and keeps what the kernel does
// not know: priorities, holds, evictions.
type Queue interface {
	// Find gives the live entry that ref names, or ErrLost. It changes nothing.
	Find(ctx context.Context, ref Ref) (Entry, error)

	// Evict marks entries of one lock as evicted. by tells their owners who evicts them. A waiter
	// loses its place at once; its Wait ends with an *EvictedError. A holder's entry stays until
	// its golock has stopped the command and released the slot, or until the entry is dead. The
	// owner's Renew returns an *EvictedError. The hold (Request.Hold) of an entry that a process has
	// released ends at once; any other hold ends with the release.
	//
	// Evict returns an error, or nil, for each of refs. ErrLost says that there is no such entry.
	// After any other error its owner may not have been told; the mark stays if it was made. A
	// second eviction changes nothing, but repeats what failed in the first.
	Evict(ctx context.Context, refs []Ref, by string) []error

	// Sweep removes dead entries and unused data that are at least olderThan old, of one name or,
	// if that is empty, of all. It returns their number. It never removes anything that is in
	// use, with any number of sweepers and users at once.
	Sweep(ctx context.Context, name string, olderThan time.Duration) (removed int, err error)

	// Forget removes everything that is left of a name, also live entries. So it is only for a name that
	// the caller has made up and nobody else uses.
	Forget(ctx context.Context, name string) error
}

// Leases is what a store can do that cannot see whether a holder lives. Its grants expire unless they
// are renewed.
type Leases interface {
	// Attach returns the lease that ref names, which another process may have taken. It asks the
	// store nothing; the lease's methods return ErrLost if the entry is gone. Its Term is not
	// known before the first renewal.
	Attach(ref Ref) Lease

	// Warnings returns a line for each problem that the store has found while it was used. If waiting is
	// true, these are the problems that make waiters hear late of their turn, otherwise those that weaken
	// the store's promises.
	Warnings(waiting bool) []string
}

// Holds returns nil if the entry that ref names holds a slot, and ErrLost or an *EvictedError if it
// does not. After any other error nothing is known.
func Holds(ctx context.Context, q Queue, ref Ref) error {
	e, err := q.Find(ctx, ref)
	switch {
	case err != nil:
		return err
	case e.State != Holding || e.Ended:
		return ErrLost
	case e.Evicted != "":
		return &EvictedError{By: e.Evicted}
	}
	return nil
}
