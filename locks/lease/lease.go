// Package lease is what the engines whose grants expire share: the steps of an entry from
// Join to Release, the waiting loop, retries, and the description of an entry's owner.
//
// An engine provides an Entry: how to make one attempt at a step, and how a waiter sleeps
// until the store wakes it.
package lease

import (
	"context"
	"time"

	"golock/locks"
	"golock/locks/queue"
)

// DefaultTTL is for entries of others, whose TTL is not known.
const DefaultTTL = 30 * time.Second

// ListLimit bounds a question about many entries.
const ListLimit = 10 * time.Second

// Engine is embedded by a store: the methods of locks.Store, locks.Queue and locks.Leases that
// concern one entry.
type Engine struct {
	url      string
	newEntry func(locks.Request) Entry
	entryOf  func(ref locks.Ref, evictor string) Entry
}

// NewEngine takes the store's URL without secrets, and how it makes the entry of a request, and
// that of one that is there, perhaps to evict it.
func NewEngine[E Entry](url string, newEntry func(locks.Request) E, entryOf func(locks.Ref, string) E) Engine {
	return Engine{
		url:      url,
		newEntry: func(r locks.Request) Entry { return newEntry(r) },
		entryOf:  func(ref locks.Ref, evictor string) Entry { return entryOf(ref, evictor) },
	}
}

// URL implements locks.Store.
func (s *Engine) URL() string { return s.url }

// Abilities are those of a store that embeds an Engine.
func Abilities[S interface {
	locks.Queue
	locks.Leases
}](s S) locks.Abilities {
	return locks.Abilities{Queue: s, Leases: s, MaxUnits: locks.MaxUnits}
}

// Answer is what a store says about an entry. Redis sends it as JSON. Fields that it does
// not send are left out there: to decode their types would cost each start 0.08 ms.
type Answer struct {
	queue.Outcome
	Grant locks.Grant   `json:"-"` // Granted, Held
	TTL   time.Duration `json:"-"` // Granted, Held
	// Granted, Held: how far away the store is.
	Distance locks.Distance `json:"-"`
	Epoch    string         // the stretch of time in which the store forgot nothing

	Nap queue.Nap `json:"-"` // Queued: how to wait until it asks again
	// Queued, Busy, Nested: there is room, but nothing is granted for this long, and why.
	// A request that may not wait can be asked again afterwards.
	Quarantine      time.Duration
	QuarantineCause string `json:"-"`

	Holders  []locks.Entry `json:"-"` // Busy, Nested
	Replaced []locks.Entry `json:"-"` // Granted, Queued: whom it evicted
	Doubtful bool          `json:"-"` // an earlier attempt, whose answer was lost, may have done the step
}

// term is that of a grant or a renewal that was asked for at that moment.
func (a *Answer) term(sent locks.Instant) locks.Term {
	return locks.Term{Asked: sent, TTL: a.TTL, Distance: a.Distance}
}

// Entry is an engine's view of one entry. Several goroutines may call its methods.
type Entry interface {
	// Ask makes one attempt at a step. sent is the moment before the request was sent.
	Ask(ctx context.Context, s queue.Step) (a Answer, sent locks.Instant, err error)

	// Sleep returns when a waiter should ask again: after nap.For, or when the store wakes it.
	// The verdict is Granted if the store has pushed a grant; the lease then counts from
	// sent. near is called when the waiter is one of the first two. An error is final.
	Sleep(ctx context.Context, nap queue.Nap, near func()) (a Answer, sent locks.Instant, err error)

	// Events are hints about a lease, as in locks.Lease; nil if the store gives none.
	Events() <-chan struct{}

	// Close closes connections and files. Ask may be called after that.
	Close()
}
