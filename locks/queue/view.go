package queue

import (
	"time"

	"golock/locks"
)

// State is that of an entry.
type State byte

// The states.
const (
	Waiting   State = 'W'
	Offered   State = 'O' // its slots are taken; it holds when it accepts them
	Holding   State = 'H'
	Ended     State = 'E' // its owner has released it; its hold keeps the slots
	Tombstone State = 'G' // it has left: a late repetition of its request must not bring it back
)

// Entry is one entry of a queue.
type Entry struct {
	ID      string
	State   State
	Claim   locks.Claim
	Replace locks.Replacement
	Evicted string // who evicted it; "" if nobody did
	Slots   []int  // of an entry that is Offered, Holding or Ended
	Fence   int64  // of an entry that is Offered, Holding or Ended
	Invalid bool   // the store could not read the entry: only its ID, state, evictor and times count

	Reachable bool // a waiter that an offer reaches; another one has to ask before it gets a slot
	Absent    bool // a waiter that is overdue: it loses an offer, and is passed over until it asks

	// HoldLeft is what is left of the hold of a holder: if it releases its slots before that is over,
	// its entry becomes Ended. Left is how long it takes until a waiter is overdue, or a holder's
	// lease and hold are over, unless somebody prolongs them. It is 0 if the store does not tell.
	HoldLeft, Left time.Duration
}

// View is the part of a queue that a decision needs. Decide does not change it.
type View struct {
	Counter int64  // the highest ticket or fence so far
	Epoch   string // a stretch of time in which the store forgot nothing

	Quarantined    bool          // nobody gets a slot
	QuarantineLeft time.Duration // the rest of the quarantine; 0 if the store does not tell

	// Invalid are entries of the queue whose time may not be over and whose claims and slots are not
	// known. Nobody gets a slot, and nobody joins, as long as there are any.
	Invalid []locks.InvalidEntry

	Holders []Entry // all that have slots
	Waiters []Entry // the first ones, in order; at least one that is not Absent, if there is any
	More    bool    // there are others behind them
	Own     *Entry  // the entry that asks, in any state; nil if the store has none

	Ahead       int     // if More: the number of waiters before a newcomer that is not in Waiters
	Total       int     // number of all waiters
	Replaceable []Entry // all waiters with Replace, for a newcomer with Replace
}

// Question is a step with an entry.
type Question struct {
	Step  Step
	Entry Entry  // its ID; what a Join asks for; what a Renew believes to hold, if it has slots
	Epoch string // of the last answer to the entry

	NoWait   bool
	Within   []string // IDs of the enclosing runs
	MaxQueue *int
	By       string // who evicts
}

// Enclosing gives the IDs of the runs that enclose a request, as a Question has them.
func Enclosing(r locks.Request) (within []string) {
	for _, w := range r.Within {
		within = append(within, w.ID.String())
	}
	return within
}

// Decision is an outcome, and the changes that make it true.
type Decision struct {
	Outcome
	Holders  []Entry // Busy, Nested: all that have slots
	Replaced []Entry // Granted, Queued: whom it has evicted
	Entry    Entry   // Granted, Held, Queued: as it is now
	Fits     bool    // Busy, Nested, Queued: only the quarantine or waiters before it are in its way

	Counter int64    // raised if tickets or fences were given
	Put     []Entry  // the new and the changed entries
	Told    []string // the IDs of waiters to wake: they have an offer, were evicted, or have to ask again
	Due     string   // the ID of the first waiter, if it could have a slot and is not Reachable
	Again   bool     // slots may be left for waiters that the view does not show: Look with a longer view

	// Invalid are entries because of which the question cannot be answered. Then there is
	// nothing else.
	Invalid []locks.InvalidEntry
}
