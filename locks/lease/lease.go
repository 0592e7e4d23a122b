// Package lease is what the engines whose grants expire have in common: the
// steps of an entry from Join to Release, the waiting loop, retries, and what an
// entry tells about its owner.
//
// An engine provides an Entry: how one attempt of a step is put to its store, and
// how a waiter sleeps until the store wakes it.
package lease

import (
	"context"
	"time"

	"golock/locks"
)

// MaxUnits is the largest weight: every unit has a slot number.
const MaxUnits = 1 << 16

// DefaultTTL is for requests that name none.
const DefaultTTL = 30 * time.Second

// ListLimit bounds a question about many entries whose caller sets no bound.
const ListLimit = 10 * time.Second

// Traits are those of every engine here.
func Traits() locks.Traits {
	return locks.Traits{MaxUnits: MaxUnits}
}

// Step is what a store is asked to do with an entry. Every step may be sent again,
// any number of times and late: the second time changes nothing.
type Step string

// The steps.
const (
	Join    Step = "join"    // enter the queue, or look whether it is its turn
	Renew   Step = "renew"   // prolong the lease, or put it back into a store that forgot it
	Release Step = "release" // end what it holds, or its place
	Leave   Step = "leave"   // release for one that knows of no grant: no hold stays behind
	Evict   Step = "evict"   // take it back from its owner
)

// Verdict is what the store made of a step.
type Verdict string

// The verdicts.
const (
	Granted  Verdict = "granted"
	Queued   Verdict = "waiting"
	Busy     Verdict = "busy"   // no slot, and the request does not wait
	Nested   Verdict = "nested" // likewise: it would wait for a run around itself
	Gone     Verdict = "gone"   // the entry has left or was taken out
	Evicted  Verdict = "evicted"
	Held     Verdict = "held"
	Lost     Verdict = "lost"
	Released Verdict = "released"
	Marked   Verdict = "marked" // its owner is told that it is evicted
)

// Answer is what a store says about an entry.
type Answer struct {
	Verdict Verdict
	Grant   locks.Grant   // Granted, Held
	TTL     time.Duration // likewise
	Epoch   string        // of the store: a stretch of time in which it forgot nothing

	Place   int           // Queued: 1 is the next
	Recheck time.Duration // Queued: when to ask again
	// Queued, Busy, Nested: holders leave room, but nothing is granted for this long,
	// because of this. A request that may not wait can be asked again afterwards.
	Quarantine      time.Duration
	QuarantineCause string

	Inside   string        // Nested: the ID of the enclosing run
	Waiters  int           // Busy, Nested
	Reason   string        // Busy: what else is in the way
	Full     bool          // Busy: no more may wait
	Holders  []locks.Entry // Busy, Nested
	Replaced []locks.Entry // Granted, Queued: whom it evicted
	By       string        // Evicted: who did it

	Existed  bool // Released: the entry was there
	Doubtful bool // an earlier attempt, whose answer was lost, may have done the step
}

// Entry is one entry of this process in a store, as its engine knows it. Several
// goroutines may call its methods.
type Entry interface {
	// Ask makes one attempt at a step. sent is the moment before the request was
	// written.
	Ask(ctx context.Context, s Step) (a Answer, sent locks.Instant, err error)

	// Sleep returns when a waiter should ask again: after d, or as soon as the
	// store wakes it. A verdict of Granted is a grant that the store has pushed;
	// sent is then that of the last Ask. near is called when one of the first two
	// places is reached. Only an error that is final is returned.
	Sleep(ctx context.Context, d time.Duration, near func()) (a Answer, sent locks.Instant, err error)

	// Events are hints about a lease, as in locks.RenewableLease; nil: there are none.
	Events() <-chan locks.Event

	// Close gives back what the entry keeps open. It may be asked again after that.
	Close()
}
