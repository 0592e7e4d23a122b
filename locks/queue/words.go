package queue

// Step is what a store is asked to do with an entry. A step may be repeated, any number of times
// and late: a repetition changes nothing.
type Step string

// The steps.
const (
	Join    Step = "join"    // enter the queue, or ask whether its turn has come
	Renew   Step = "renew"   // prolong the lease, or restore it in a store that forgot it
	Hold    Step = "hold"    // a renewal with which the hold begins (locks.Request.HoldsLater)
	Release Step = "release" // give up the slot or the place
	Leave   Step = "leave"   // a release by an owner that knows of no grant: no hold stays behind
	Evict   Step = "evict"   // take the slot or the place back from the owner
	Look    Step = "look"    // the step only hands out free slots; no entry asks
)

// Renews reports whether the step prolongs a lease.
func (s Step) Renews() bool { return s == Renew || s == Hold }

// HasEntry reports whether only the owner of an entry asks for the step, which has joined before. (A Join comes
// from a newcomer or from an owner.)
func (s Step) HasEntry() bool { return s.Renews() || s == Release || s == Leave }

// Verdict says what a step came to.
type Verdict string

// The verdicts.
const (
	Granted  Verdict = "granted"
	Queued   Verdict = "waiting"
	Busy     Verdict = "busy"   // no slot, and the request does not wait
	Nested   Verdict = "nested" // no slot, and the request would wait for a run that encloses it
	Gone     Verdict = "gone"   // the entry has left or was removed
	Evicted  Verdict = "evicted"
	Held     Verdict = "held"
	Lost     Verdict = "lost"
	Released Verdict = "released"
	Marked   Verdict = "marked" // the answer to an Evict: the owner will be told
)

// Outcome is what a step came to for its entry, as far as the queue decides it: without the
// grant, the times and what depends on the store.
type Outcome struct {
	Verdict Verdict
	Place   int    // Queued: the place in the queue; 1 is the next
	Inside  string // Nested: the ID of the enclosing run
	Waiters int    // Busy, Nested: the number of waiters
	Full    bool   // Busy: the queue has as many waiters as the request allows (Question.MaxQueue)
	By      string // Evicted: who evicted the entry
	Existed bool   // Released: the entry was in the queue
}
