package queue

import (
	"slices"
	"time"

	"golock/locks"
)

// State is the state of an entry.
type State byte

// The states.
const (
	Waiting   State = 'W'
	Offered   State = 'O' // slots are reserved for the entry; it holds them when it accepts the offer
	Holding   State = 'H'
	Ended     State = 'E' // the owner has released the entry; its hold keeps the slots
	Tombstone State = 'G' // the entry has left: a late repetition of its request must not bring it back
)

// Entry is one entry of a queue.
type Entry struct {
	ID      string
	State   State
	Claim   locks.Claim
	Replace locks.Replacement
	Evicted string // who evicted the entry; empty if nobody did
	Slots   []int  // the slots of an entry that is Offered, Holding or Ended
	Fence   int64  // the fence of an entry that is Offered, Holding or Ended
	Invalid bool   // the store could not read the entry: only its ID, state, evictor and times count

	Reachable bool // an offer reaches this waiter; without it, the waiter must ask before it gets a slot
	Absent    bool // this waiter is overdue: it loses an offer, and is passed over until it asks

	// HoldLeft is the rest of the hold of a holder: if the holder releases its slots before the hold
	// is over, its entry becomes Ended.
	HoldLeft time.Duration

	// Left is the time until a waiter is overdue, or until both the lease and the hold of a holder are
	// over, unless somebody prolongs them. It is 0 if the store does not know it.
	Left time.Duration
}

// View is the part of a queue that a decision needs. Decide does not change it.
type View struct {
	Counter int64  // the highest ticket or fence so far
	Epoch   string // the name of the present epoch: in an epoch the store forgets nothing

	Quarantined    bool          // nobody gets a slot
	QuarantineLeft time.Duration // the rest of the quarantine; 0 if the store does not know it

	// Invalid are entries of the queue that may be alive, and whose claims and slots the store could
	// not read. Nobody gets a slot, and nobody joins, as long as there are any.
	Invalid []locks.InvalidEntry

	Holders []Entry // all entries that have slots
	Waiters []Entry // the first waiters, in order; at least one that is not Absent, if there is any
	More    bool    // there are waiters behind those in Waiters
	Caller  *Entry  // the entry that asks, in any state; nil if the store does not have it

	Ahead       int     // the number of all waiters before the entry that asks; Decide uses it for a Join, if More
	Total       int     // the number of all waiters
	Replaceable []Entry // all waiters with Replace; only a newcomer with Replace needs them
}

// Served returns the view after all waiters that could have a slot have taken it.
func (v View) Served() View {
	waiters := slices.Clone(v.Waiters)
	for i := range waiters {
		waiters[i].Reachable = true
	}
	v.Waiters, v.Holders = waiters, slices.Clone(v.Holders)
	for _, e := range Decide(v, Question{Step: Look}).Put {
		if e.State == Offered {
			v.Holders, v.Waiters = append(v.Holders, e), without(v.Waiters, e.ID)
			v.Total--
		}
	}
	return v
}

// Question asks for a step of an entry.
type Question struct {
	Step Step

	// Entry has the ID of the entry. For a Join it also has what the request asks for. For a Renew
	// it also has what its owner believes to hold, if that is known.
	Entry Entry
	Epoch string // the epoch of the last answer that the entry got

	NoWait   bool     // the request does not queue
	Within   []string // IDs of the enclosing runs
	MaxQueue *int     // the request does not queue behind this number of waiters; nil if there is no limit
	By       string   // who evicts
}

// Enclosing returns the IDs of the runs that enclose a request, in the form of Question.Within.
func Enclosing(r locks.Request) (within []string) {
	for _, w := range r.Within {
		within = append(within, w.ID.String())
	}
	return within
}

// Decision is an outcome, and the changes that make it true.
type Decision struct {
	Outcome
	Holders  []Entry // Busy, Nested: all entries that have slots
	Replaced []Entry // Granted, Queued: the entries that this one has evicted
	Entry    Entry   // Granted, Held, Queued: the entry after the step
	Fits     bool    // Busy, Nested, Queued: only the quarantine or waiters before it are in its way

	Counter int64    // View.Counter, raised if tickets or fences were given
	Put     []Entry  // the new and the changed entries
	Told    []string // the IDs of waiters to wake: they have an offer, were evicted, or have to ask again
	Due     string   // the ID of the first waiter, if it could have a slot and is not Reachable
	Again   bool     // slots may be left for waiters that the view does not show: Look with a longer view

	// Invalid are the entries because of which the question cannot be answered. If there are any,
	// all other fields are empty.
	Invalid []locks.InvalidEntry
}
