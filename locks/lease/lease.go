// Package lease is what the engines whose grants expire share: the steps of an entry from Join to
// Release, the waiting loop, and retries.
//
// An engine provides an Entry: how to make one attempt at a step, and how a waiter sleeps until the
// store wakes it.
package lease

import (
	"context"
	"time"

	"golock/locks"
	"golock/locks/queue"
)

// DefaultTTL is the assumed TTL of an entry of another process whose TTL is not known.
const DefaultTTL = 30 * time.Second

// ListLimit limits the time of a question about many entries.
const ListLimit = 10 * time.Second

// noEvictor is the evictor of an entry that is not to be evicted.
const noEvictor = ""

// Engine has the methods of locks.Store, locks.Queue and locks.Leases that concern one entry. A store
// embeds it.
type Engine struct {
	url      string
	newEntry func(locks.Request) Entry
	entryOf  func(ref locks.Ref, evictor string) Entry
}

// NewEngine takes the store's URL without secrets, and two functions. newEntry makes the Entry of a
// request. entryOf makes the Entry of one that is in the store already; its second argument is the evictor, which
// is empty unless the entry is to be evicted.
func NewEngine[E Entry](url string, newEntry func(locks.Request) E, entryOf func(locks.Ref, string) E) Engine {
	return Engine{
		url:      url,
		newEntry: func(r locks.Request) Entry { return newEntry(r) },
		entryOf:  func(ref locks.Ref, evictor string) Entry { return entryOf(ref, evictor) },
	}
}

// URL implements locks.Store.
func (s *Engine) URL() string { return s.url }

// Abilities returns the abilities of a store that embeds an Engine.
func Abilities[S interface {
	locks.Queue
	locks.Leases
}](s S) locks.Abilities {
	return locks.Abilities{Queue: s, Leases: s, MaxUnits: locks.MaxUnits}
}

// Answer is what a store says about an entry. Redis sends some of the fields as JSON. The decoder leaves out
// the others: they would cost each start 0.08 ms.
type Answer struct {
	queue.Outcome
	Grant    locks.Grant    `json:"-"` // Granted, Held: what the entry has
	TTL      time.Duration  `json:"-"` // Granted, Held: the TTL of its lease
	Distance locks.Distance `json:"-"` // Granted, Held: how far away the store is
	Epoch    string         // the name of the store's present epoch (queue.View.Epoch)

	Nap queue.Nap `json:"-"` // Queued: how the waiter waits until it asks again

	// Queued, Busy, Nested: the rest of the quarantine and its cause, if the entry would fit. So a request
	// that may not wait can ask again after the quarantine. If the entry does not fit, Quarantine is 0.
	Quarantine      time.Duration
	QuarantineCause string `json:"-"`

	Holders  []locks.Entry `json:"-"` // Busy, Nested: who has the slots
	Replaced []locks.Entry `json:"-"` // Granted, Queued: the entries that this one evicted
	Doubtful bool          `json:"-"` // an earlier attempt, whose answer was lost, may have done the step
}

// term returns the term of a grant or a renewal. sent is the moment before the request was sent.
func (a *Answer) term(sent locks.Instant) locks.Term {
	return locks.Term{Asked: sent, TTL: a.TTL, Distance: a.Distance}
}

// Entry makes the steps of one entry in a store. Each engine implements it. Several goroutines may call its
// methods.
type Entry interface {
	// Ask makes one attempt at a step, and limits its time (AttemptLimit). sent is the moment before the request
	// was sent. What the last answer said of the entry, its ticket, its slots and the epoch, belongs to the next
	// question (queue.Question): the store may have forgotten it.
	Ask(ctx context.Context, s queue.Step) (a Answer, sent locks.Instant, err error)

	// Sleep returns when a waiter should ask again: after nap.For, or when the store wakes it. The verdict is
	// Granted if the store has pushed a grant; the lease then counts from sent. A store that also tells sleeping
	// waiters that they are next calls onNext then. Others tell the place only in the answer to Ask. An error is
	// final.
	Sleep(ctx context.Context, nap queue.Nap, onNext func()) (a Answer, sent locks.Instant, err error)

	// Events gives hints about a lease, as in locks.Lease. It is nil if the store gives none.
	Events() <-chan struct{}

	// Close closes connections and files. Ask may be called afterwards: it opens them again.
	Close()
}
