package queue

import (
	"time"

	"golock/locks"
)

// Stored is what locks checks of an entry, which has that lease and hold.
func (e *Entry) Stored(ttl, hold time.Duration) *locks.Stored {
	return &locks.Stored{
		Claim: e.Claim, Replace: e.Replace, Slots: e.Slots, Fence: e.Fence, TTL: ttl, Hold: hold,
		Holds: e.State == Offered || e.State == Holding || e.State == Ended,
	}
}

// needsAll reports whether the answer depends on invalid entries. Who holds keeps what it has, and
// what is given up or evicted goes.
func (d *decision) needsAll() bool {
	hasSlots := d.Own != nil && !d.Own.Invalid && (d.Own.State == Holding || d.Own.State == Offered)
	return len(d.Invalid) > 0 && (d.q.Step == Join || d.q.Step.Renews() && !hasSlots)
}

// repaired is what an eviction makes of an invalid entry that may hold: an exclusive holder, so that
// nobody gets a slot until its owner has stopped or its time is over.
func (e Entry) repaired(by string) Entry {
	return Entry{
		ID: e.ID, State: Holding, Evicted: by, Claim: locks.Claim{Weight: 1, Max: 1}, Slots: []int{0}, Reachable: e.Reachable,
	}
}
