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
	if d.needsAll() {
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

// decision is one in the making. Its Holders and Waiters change with each step.
type decision struct {
	View
	q      Question
	direct bool // the entry in question needs no offer: the answer is its grant
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

func (d *decision) fits(e *Entry) bool {
	claims := make([]locks.Claim, len(d.Holders))
	for i, h := range d.Holders {
		claims[i] = h.Claim
	}
	return locks.Admits(claims, e.Claim)
}

// hold gives an entry its slots.
func (d *decision) hold(e Entry, s State) Entry {
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

// remove ends an entry.
func (d *decision) remove(id, by string) {
	d.Holders, d.Waiters = without(d.Holders, id), without(d.Waiters, id)
	d.put(Entry{ID: id, State: Tombstone, Evicted: by})
}

// withdraw takes offers back that nobody accepts. In a quarantine it takes back all: the
// store may have forgotten who else has those slots.
func (d *decision) withdraw(holders []Entry) {
	for _, e := range holders {
		own := e.ID == d.q.Entry.ID
		if e.State != Offered || !d.Quarantined && (own || !e.Absent) {
			continue
		}
		if e.Evicted != "" {
			e.State = Tombstone
			d.remove(e.ID, e.Evicted)
		} else {
			d.Holders = without(d.Holders, e.ID)
			e.State, e.Slots, e.Fence = Waiting, nil, 0
			d.enqueue(e)
			d.Ahead, d.Total = d.Ahead+1, d.Total+1
			if e.Replace != locks.ReplaceNone {
				d.Replaceable = append(slices.Clip(d.Replaceable), e)
			}
		}
		if own {
			d.Own = &e
		}
	}
}

// enqueue puts a waiter into its place, and returns how many are before it.
func (d *decision) enqueue(e Entry) int {
	d.out.Counter = max(d.out.Counter, e.Claim.Ticket) // a store that lost its data may have lost it
	d.put(e)
	at, _, known := d.ahead(&e)
	if !known {
		return max(at, d.Ahead)
	}
	d.Waiters = slices.Insert(d.Waiters, at, e)
	return at
}

// ahead returns an entry's index among the waiters of the view. first means that it comes before
// all that are not Absent. known means that no waiter outside the view is before it.
func (d *decision) ahead(e *Entry) (at int, first, known bool) {
	first = true
	for ; at < len(d.Waiters) && d.Waiters[at].before(e); at++ {
		first = first && d.Waiters[at].Absent
	}
	known = at < len(d.Waiters) || !d.More || e.ID == d.q.Entry.ID && d.Ahead <= at
	return at, first && known, known
}

// before is the order of waiters. Two have the same ticket if a store has lost its data.
func (e *Entry) before(o *Entry) bool {
	return cmp.Or(e.Claim.Compare(o.Claim), cmp.Compare(e.ID, o.ID)) < 0
}

// offer hands out what is free to the first waiters.
func (d *decision) offer() {
	if d.Quarantined || len(d.Invalid) > 0 {
		return
	}
	for _, w := range d.Waiters {
		switch {
		case w.Absent:
		case !d.fits(&w):
			d.tellOfHold(w.ID)
			return
		case d.direct && w.ID == d.q.Entry.ID:
			d.out.Verdict, d.out.Entry = Granted, d.hold(w, Holding)
			d.out.Place, d.out.Fits = 0, false
		case !w.Reachable:
			d.out.Due = w.ID
			return
		default:
			d.hold(w, Offered)
			d.out.Told = append(d.out.Told, w.ID)
		}
	}
	d.out.Again = d.More
}

// tellOfHold wakes a waiter that has become the first while a hold keeps the slots: only
// the first one looks when the hold is over.
func (d *decision) tellOfHold(first string) {
	moved := d.q.Step != Join && !d.q.Step.Renews() || len(d.out.Replaced) > 0 && first != d.q.Entry.ID
	ended := func(e Entry) bool { return e.State == Ended }
	if moved && (slices.ContainsFunc(d.Holders, ended) || slices.ContainsFunc(d.out.Put, ended)) {
		d.out.Told = append(d.out.Told, first)
	}
}

func (d *decision) join() {
	own, q := d.Own, &d.q
	over := own != nil && (own.State == Tombstone || own.State == Ended)
	switch {
	case own == nil || own.State == Waiting:
	case own.Evicted != "":
		d.out.Verdict, d.out.By = Evicted, own.Evicted
		if own.State == Offered { // a holder may know already, and run
			d.remove(own.ID, own.Evicted)
		}
		return
	case over: // perhaps it was turned away, and the answer lost
	default:
		d.keep(Granted)
		return
	}
	mine := q.Entry
	mine.State, mine.Slots, mine.Fence, mine.Evicted, mine.Absent = Waiting, nil, 0, "", false
	if own != nil && own.State == Waiting {
		mine.Claim.Ticket = own.Claim.Ticket
		d.Waiters = without(d.Waiters, own.ID)
	}
	isNew := mine.Claim.Ticket == 0
	if isNew {
		mine.Claim.Ticket = d.out.Counter + 1
	}
	if _, first, _ := d.ahead(&mine); over || !first || d.Quarantined || !d.fits(&mine) {
		var replaced []Entry
		waiters := 0 // of those
		if isNew && !over {
			replaced, waiters = d.replaces(&mine)
		}
		full := isNew && !over && q.MaxQueue != nil && d.Total-waiters >= *q.MaxQueue
		if d.refuse(&mine, full, over) {
			return
		}
		if over {
			d.out.Verdict = Gone
			return
		}
		d.Ahead -= waiters
		d.out.Replaced = replaced
		for _, e := range replaced {
			d.end(e)
		}
	}
	// Its replacements may let others in: that comes after its arrival.
	_, first, _ := d.ahead(&mine)
	d.direct = first || !isNew
	d.out.Verdict, d.out.Entry = Queued, mine
	d.out.Place, d.out.Fits = d.enqueue(mine)+1, d.fits(&mine)
}

// keep makes the entry in question hold what it has, or was offered.
func (d *decision) keep(v Verdict) {
	mine := *d.Own
	mine.State, mine.Absent = Holding, false
	d.put(mine)
	d.out.Verdict, d.out.Entry = v, mine
}

// refuse turns away a request that must not wait.
func (d *decision) refuse(mine *Entry, full, over bool) bool {
	q := &d.q
	for _, id := range q.Within {
		// A run that has ended encloses nothing.
		if slices.ContainsFunc(d.Holders, func(h Entry) bool { return h.ID == id && h.State == Holding }) {
			d.out.Inside = id
		}
	}
	full = full && !q.NoWait && d.out.Inside == ""
	if d.out.Inside == "" && !q.NoWait && !full {
		return false
	}
	d.out.Verdict, d.out.Full = Busy, full
	if d.out.Inside != "" {
		d.out.Verdict = Nested
	}
	d.out.Holders, d.out.Waiters = slices.Clone(d.Holders), d.Total
	d.out.Fits = !over && !(full && *q.MaxQueue > 0) && d.fits(mine)
	if d.Own != nil && !over {
		d.remove(q.Entry.ID, "")
	}
	return true
}

func (d *decision) renew() {
	own := d.Own
	switch {
	case own != nil && own.Evicted != "":
		d.out.Verdict, d.out.By = Evicted, own.Evicted
	case own != nil && (own.State == Holding || own.State == Offered):
		d.keep(Held)
	case (own == nil || own.State == Waiting) && len(d.q.Entry.Slots) > 0 && d.q.Epoch != d.Epoch && d.free(&d.q.Entry):
		// The store has lost data: the holder is put back.
		mine := d.q.Entry
		mine.State = Holding
		d.out.Counter = max(d.out.Counter, mine.Fence, mine.Claim.Ticket)
		d.Waiters = without(d.Waiters, mine.ID)
		d.Holders = append(d.Holders, mine)
		d.put(mine)
		d.out.Verdict, d.out.Entry = Held, mine
	default:
		d.out.Verdict = Lost
	}
}

// free reports whether an entry can have the very slots that it had.
func (d *decision) free(e *Entry) bool {
	return d.fits(e) && !slices.ContainsFunc(d.Holders, func(h Entry) bool {
		return slices.ContainsFunc(h.Slots, func(slot int) bool { return slices.Contains(e.Slots, slot) })
	})
}

func (d *decision) release() {
	own, leaves := d.Own, d.q.Step == Leave
	d.out.Verdict = Released
	d.out.Existed = own != nil && own.State != Tombstone && own.State != Ended
	switch {
	case own != nil && (own.State == Tombstone || own.State == Ended && !leaves):
	case own != nil && own.State == Holding && own.HoldLeft > 0 && own.Evicted == "" && !leaves:
		e := *own
		e.State = Ended
		d.put(e)
	default:
		d.remove(d.q.Entry.ID, "")
	}
}

func (d *decision) evict() {
	if d.Own == nil || d.Own.State == Tombstone {
		d.out.Verdict = Lost
		return
	}
	d.end(*d.Own)
	d.out.Verdict = Marked
}

// end takes an entry back from its owner. A holder is marked as evicted; its hold is void.
func (d *decision) end(e Entry) {
	switch {
	case e.State == Waiting || e.State == Ended:
		d.remove(e.ID, d.q.By)
	case e.Invalid:
		d.put(e.repaired(d.q.By))
	case e.Evicted == "":
		e.Evicted, e.HoldLeft = d.q.By, 0
		d.put(e)
	}
	if e.State == Waiting || e.State == Offered {
		d.out.Told = append(d.out.Told, e.ID)
	}
}

// replaces returns the waiters and holders that a newcomer replaces, and how many wait.
func (d *decision) replaces(mine *Entry) (replaced []Entry, waiters int) {
	all := append(slices.Clone(d.Replaceable), d.Holders...)
	rivals := make([]locks.Rival, len(all))
	for i, e := range all {
		rivals[i] = locks.Rival{Claim: e.Claim, Waits: e.State == Waiting, Replace: e.Replace, Leaving: e.Evicted != ""}
	}
	for _, i := range locks.Replaced(rivals, mine.Claim, mine.Replace) {
		replaced = append(replaced, all[i])
		if rivals[i].Waits {
			waiters++
		}
	}
	return replaced, waiters
}
