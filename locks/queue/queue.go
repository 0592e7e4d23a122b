// Package queue decides what becomes of one lock's queue. Decide is a pure function,
// without a clock and a store. An engine reads a View, asks with a Question, and applies
// the Decision as one atomic change.
//
// Time enters through the View: the engine leaves out an entry whose lease is over, shows
// a holder that only its hold keeps as Ended, and marks as Absent a waiter, or the owner
// of an offer, that does not answer.
//
// A waiter accepts an offer without a Question, by making its entry Holding in one atomic
// step. So an engine changes an Offered entry only while it is still Offered, and
// otherwise asks for another Decision.
package queue

import (
	"cmp"
	"slices"

	"golock/locks"
)

// Decide answers a question.
func Decide(v View, q Question) Decision {
	d := &decision{View: v, q: q}
	d.Holders, d.Waiters = slices.Clone(v.Holders), slices.Clone(v.Waiters)
	d.out.Counter = v.Counter
	if d.dependsOnInvalid() {
		return Decision{Invalid: v.Invalid}
	}
	d.withdraw(v.Holders)
	switch q.Step {
	case Join:
		d.join()
	case Renew, Hold:
		d.renew()
	case Release, Leave:
		d.release()
	case Evict:
		d.evict()
	}
	d.offer()
	return d.out
}

// decision is a Decision that is being made. Its Holders and Waiters change as it is made.
type decision struct {
	View
	q      Question
	direct bool // the entry that asks needs no offer: the answer is its grant
	out    Decision
}

// put changes an entry. The last change of an ID counts.
func (d *decision) put(e Entry) {
	d.out.Put = slices.DeleteFunc(d.out.Put, func(o Entry) bool { return o.ID == e.ID })
	d.out.Put = append(d.out.Put, e)
}

func without(all []Entry, id string) []Entry {
	return slices.DeleteFunc(all, func(e Entry) bool { return e.ID == id })
}

// fits reports whether the rule of admission lets an entry in beside the holders.
func (d *decision) fits(e *Entry) bool {
	claims := make([]locks.Claim, len(d.Holders))
	for i, h := range d.Holders {
		claims[i] = h.Claim
	}
	return locks.Admits(claims, e.Claim)
}

// giveSlots gives an entry the lowest free slots and a fence.
func (d *decision) giveSlots(e Entry, s State) Entry {
	taken := map[int]bool{}
	for _, h := range d.Holders {
		for _, slot := range h.Slots {
			taken[slot] = true
		}
	}
	d.out.Counter++
	e.State, e.Fence = s, d.out.Counter
	e.Slots = locks.FreeSlots(func(slot int) bool { return taken[slot] }, e.Claim.Weight)
	d.Holders = append(d.Holders, e)
	d.put(e)
	return e
}

// remove leaves only the tombstone of an entry.
func (d *decision) remove(id, by string) {
	d.Holders, d.Waiters = without(d.Holders, id), without(d.Waiters, id)
	d.put(Entry{ID: id, State: Tombstone, Evicted: by})
}

// enqueue puts a waiter into its place. It returns the number of waiters before it. That number is known only
// if the waiter is the entry that asks, or if its place is in the view.
func (d *decision) enqueue(e Entry) int {
	// The counter may be lower than the ticket if the store has lost its data.
	d.out.Counter = max(d.out.Counter, e.Claim.Ticket)
	d.put(e)
	index, isInView := d.indexOf(&e)
	if !isInView {
		return max(index, d.Ahead)
	}
	d.Waiters = slices.Insert(d.Waiters, index, e)
	return index
}

// indexOf returns the index that an entry has, or would have, among the waiters of the view.
// isInView reports that no waiter outside the view is before the entry.
func (d *decision) indexOf(e *Entry) (index int, isInView bool) {
	for index < len(d.Waiters) && d.Waiters[index].before(e) {
		index++
	}
	isInside := index < len(d.Waiters)
	isRightBehind := e.ID == d.q.Entry.ID && d.Ahead <= index // Ahead counts also the waiters outside the view
	return index, isInside || !d.More || isRightBehind
}

// isFirst reports whether an entry comes before all waiters that are not Absent.
func (d *decision) isFirst(e *Entry) bool {
	index, isInView := d.indexOf(e)
	return isInView && !slices.ContainsFunc(d.Waiters[:index], func(w Entry) bool { return !w.Absent })
}

// before reports whether a waiter comes before another one. If a store has lost its data, two waiters may have
// the same ticket: then their IDs decide.
func (e *Entry) before(o *Entry) bool {
	return cmp.Or(e.Claim.Compare(o.Claim), cmp.Compare(e.ID, o.ID)) < 0
}
