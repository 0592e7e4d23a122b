package queue

// Step is what a store is asked to do with an entry. Each may be sent again, any number
// of times and late: the second time changes nothing.
type Step string

// The steps.
const (
	Join    Step = "join"    // enter the queue, or ask whether its turn has come
	Renew   Step = "renew"   // prolong the lease, or restore it in a store that forgot it
	Hold    Step = "hold"    // a renewal with which the hold begins (locks.Request.HoldsLater)
	Release Step = "release" // give up the slot or the place
	Leave   Step = "leave"   // a release before a grant is known: no hold stays behind
	Evict   Step = "evict"   // take the slot or the place back from the owner
	Look    Step = "look"    // hand out what is free, for no entry
)

// Renews reports whether the step prolongs a lease.
func (s Step) Renews() bool { return s == Renew || s == Hold }

// HasEntry reports whether who asks for the step has an entry already. (It may also be so of a Join.)
func (s Step) HasEntry() bool { return s.Renews() || s == Release || s == Leave }

// Verdict is what a step came to.
type Verdict string

// The verdicts.
const (
	Granted  Verdict = "granted"
	Queued   Verdict = "waiting"
	Busy     Verdict = "busy"   // no slot, and the request does not wait
	Nested   Verdict = "nested" // refused as Busy is, because it would wait for an enclosing run
	Gone     Verdict = "gone"   // the entry has left or was removed
	Evicted  Verdict = "evicted"
	Held     Verdict = "held"
	Lost     Verdict = "lost"
	Released Verdict = "released"
	Marked   Verdict = "marked" // evicted: the owner is told
)

// Outcome is what a step came to for its entry, as far as the queue decides it: without the
// grant, the times and what depends on the store.
type Outcome struct {
	Verdict Verdict
	Place   int    // Queued: 1 is the next
	Inside  string // Nested: the ID of the enclosing run
	Waiters int    // Busy, Nested: how many wait
	Full    bool   // Busy: no more may wait
	By      string // Evicted: who did it
	Existed bool   // Released: the entry was there
}
