package queue

import (
	"time"

	"golock/locks"
)

// Stored returns what locks.Stored.Check needs of an entry. Its lease and its hold are not in the
// Entry.
func (e *Entry) Stored(ttl, hold time.Duration) *locks.Stored {
	return &locks.Stored{
		Claim: e.Claim, Replace: e.Replace, Slots: e.Slots, Fence: e.Fence, TTL: ttl, Hold: hold,
		Holds: e.State == Offered || e.State == Holding || e.State == Ended,
	}
}

// dependsOnInvalid reports whether the answer depends on invalid entries. They do not matter for the renewal of
// a holder, which keeps what it has, nor for an entry that leaves or is evicted.
func (d *decision) dependsOnInvalid() bool {
	if len(d.Invalid) == 0 {
		return false
	}
	hasSlots := d.Caller != nil && !d.Caller.Invalid && (d.Caller.State == Holding || d.Caller.State == Offered)
	return d.q.Step == Join || d.q.Step.Renews() && !hasSlots
}

// repaired returns what an eviction puts in the place of an invalid entry that may hold. It is an
// exclusive holder, so that nobody gets a slot until its owner has stopped or its time is over.
func (e Entry) repaired(by string) Entry {
	return Entry{
		ID: e.ID, State: Holding, Evicted: by, Claim: locks.Claim{Weight: 1, Max: 1}, Slots: []int{0}, Reachable: e.Reachable,
	}
}
