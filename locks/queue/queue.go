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

// withdraw revokes offers that were not accepted in time. In a quarantine it revokes all: the store
// may have forgotten who else has those slots.
func (d *decision) withdraw(holders []Entry) {
	for _, e := range holders {
		isCaller := e.ID == d.q.Entry.ID
		isStanding := !d.Quarantined && (isCaller || !e.Absent)
		if e.State != Offered || isStanding {
			continue
		}
		if e.Evicted != "" {
			e.State = Tombstone
			d.remove(e.ID, e.Evicted)
		} else {
			e.State, e.Slots, e.Fence = Waiting, nil, 0
			d.requeue(e)
		}
		if isCaller {
			d.Own = &e
		}
	}
}

// requeue makes a waiter of an entry that has lost its offer.
func (d *decision) requeue(waiter Entry) {
	d.Holders = without(d.Holders, waiter.ID)
	d.enqueue(waiter)
	d.Ahead++
	d.Total++
	if waiter.Replace != locks.ReplaceNone {
		d.Replaceable = append(slices.Clip(d.Replaceable), waiter)
	}
}

// enqueue puts a waiter into its place. It returns the number of waiters before it, if it is the entry that
// asks or its place is in the view.
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
	isInView = index < len(d.Waiters) || !d.More || e.ID == d.q.Entry.ID && d.Ahead <= index
	return index, isInView
}

// isFirst reports whether an entry comes before all waiters that are not Absent.
func (d *decision) isFirst(e *Entry) bool {
	index, isInView := d.indexOf(e)
	return isInView && !slices.ContainsFunc(d.Waiters[:index], func(w Entry) bool { return !w.Absent })
}

// before reports whether a waiter comes before another one. Two have the same ticket if a store has
// lost its data: then their IDs decide.
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
			d.out.Verdict = Granted
			d.out.Entry = d.giveSlots(w, Holding)
			d.out.Place, d.out.Fits = 0, false
		case !w.Reachable:
			d.out.Due = w.ID
			return
		default:
			d.giveSlots(w, Offered)
			d.out.Told = append(d.out.Told, w.ID)
		}
	}
	d.out.Again = d.More
}

// tellOfHold wakes a waiter that has become the first while a hold keeps the slots: only
// the first one looks when the hold is over.
func (d *decision) tellOfHold(first string) {
	isJoinOrRenewal := d.q.Step == Join || d.q.Step.Renews()
	isAfterReplaced := len(d.out.Replaced) > 0 && first != d.q.Entry.ID
	mayHaveMoved := !isJoinOrRenewal || isAfterReplaced
	if !mayHaveMoved {
		return
	}
	hasEnded := func(e Entry) bool { return e.State == Ended }
	if slices.ContainsFunc(d.Holders, hasEnded) || slices.ContainsFunc(d.out.Put, hasEnded) {
		d.out.Told = append(d.out.Told, first)
	}
}

func (d *decision) join() {
	known := d.Own
	switch {
	case known == nil || known.State == Waiting:
		d.enter()
	case known.Evicted != "":
		d.out.Verdict, d.out.By = Evicted, known.Evicted
		// The owner of an offer does not run yet. A holder may know of its grant already, and run.
		if known.State == Offered {
			d.remove(known.ID, known.Evicted)
		}
	case known.State == Tombstone || known.State == Ended:
		// The entry may have been refused, and the answer lost: then it is refused again.
		const isFull = false
		refusal := d.refusal(isFull)
		if refusal.Verdict == "" {
			d.out.Verdict = Gone
		} else {
			d.refuse(refusal)
		}
	default:
		d.keep(Granted)
	}
}

// enter puts the entry that asks into its place, unless it may not wait. The entry is a newcomer, a
// waiter that asks again, or one that the store has forgotten and that comes with its ticket.
func (d *decision) enter() {
	e := d.q.Entry
	e.State, e.Slots, e.Fence, e.Evicted, e.Absent = Waiting, nil, 0, "", false
	if d.Own != nil {
		e.Claim.Ticket = d.Own.Claim.Ticket
		d.Waiters = without(d.Waiters, e.ID)
	}
	isNewcomer := e.Claim.Ticket == 0
	if isNewcomer {
		e.Claim.Ticket = d.out.Counter + 1
	}
	mustWait := d.Quarantined || !d.isFirst(&e) || !d.fits(&e)
	if mustWait {
		var replaced []Entry
		replacedWaiters := 0
		if isNewcomer {
			replaced, replacedWaiters = d.replaces(&e)
		}
		isFull := isNewcomer && d.q.MaxQueue != nil && d.Total-replacedWaiters >= *d.q.MaxQueue
		refusal := d.refusal(isFull)
		if refusal.Verdict != "" {
			d.refuse(refusal)
			isBehindWaiters := refusal.Full && *d.q.MaxQueue > 0
			d.out.Fits = !isBehindWaiters && d.fits(&e)
			if d.Own != nil {
				d.remove(e.ID, "")
			}
			return
		}
		d.Ahead -= replacedWaiters
		d.out.Replaced = replaced
		for _, r := range replaced {
			d.takeBack(r)
		}
	}
	// Without the entries that it replaces there may be room for others, too. It gets its place before offer
	// lets them in.
	d.direct = d.isFirst(&e) || !isNewcomer
	d.out.Verdict, d.out.Entry = Queued, e
	d.out.Place = d.enqueue(e) + 1
	d.out.Fits = d.fits(&e)
}

// refusal returns the answer to a request that may not wait. It has no verdict if the request may
// wait.
func (d *decision) refusal(isFull bool) Outcome {
	o := Outcome{Verdict: Busy, Waiters: d.Total}
	for _, id := range d.q.Within {
		// A run that has ended encloses nothing.
		if slices.ContainsFunc(d.Holders, func(h Entry) bool { return h.ID == id && h.State == Holding }) {
			o.Verdict, o.Inside = Nested, id
		}
	}
	switch {
	case o.Verdict == Nested || d.q.NoWait:
		return o
	case isFull:
		o.Full = true
		return o
	}
	return Outcome{}
}

// refuse makes a refusal the answer.
func (d *decision) refuse(refusal Outcome) {
	d.out.Outcome = refusal
	d.out.Holders = slices.Clone(d.Holders)
}

// keep makes the entry that asks hold the slots that it has, or was offered.
func (d *decision) keep(v Verdict) {
	holder := *d.Own
	holder.State, holder.Absent = Holding, false
	d.put(holder)
	d.out.Verdict, d.out.Entry = v, holder
}

func (d *decision) renew() {
	known := d.Own
	isForgotten := known == nil || known.State == Waiting
	switch {
	case known != nil && known.Evicted != "":
		d.out.Verdict, d.out.By = Evicted, known.Evicted
	case known != nil && (known.State == Holding || known.State == Offered):
		d.keep(Held)
	case isForgotten && d.mayRestore(&d.q.Entry):
		d.restore(d.q.Entry)
	default:
		d.out.Verdict = Lost
	}
}

// mayRestore reports whether a holder that is missing can get back the slots that it had. If the epoch is still
// that of its last answer, the store has forgotten nothing: the holder is missing because its lease is over.
func (d *decision) mayRestore(e *Entry) bool {
	hasNewEpoch := d.q.Epoch != d.Epoch
	areTaken := slices.ContainsFunc(d.Holders, func(h Entry) bool {
		return slices.ContainsFunc(h.Slots, func(slot int) bool { return slices.Contains(e.Slots, slot) })
	})
	return hasNewEpoch && len(e.Slots) > 0 && !areTaken && d.fits(e)
}

// restore puts a holder back that the store has forgotten.
func (d *decision) restore(holder Entry) {
	holder.State = Holding
	d.out.Counter = max(d.out.Counter, holder.Fence, holder.Claim.Ticket)
	d.Waiters = without(d.Waiters, holder.ID)
	d.Holders = append(d.Holders, holder)
	d.put(holder)
	d.out.Verdict, d.out.Entry = Held, holder
}

func (d *decision) release() {
	d.out.Verdict = Released
	known := d.Own
	if known == nil {
		d.remove(d.q.Entry.ID, "")
		return
	}
	d.out.Existed = known.State != Tombstone && known.State != Ended
	isLeave := d.q.Step == Leave
	hasHold := known.State == Holding && known.HoldLeft > 0 && known.Evicted == ""
	switch {
	case known.State == Tombstone, known.State == Ended && !isLeave:
		// A repetition changes nothing.
	case hasHold && !isLeave:
		e := *known
		e.State = Ended
		d.put(e)
	default:
		d.remove(d.q.Entry.ID, "")
	}
}

// evict answers the step Evict.
func (d *decision) evict() {
	if d.Own == nil || d.Own.State == Tombstone {
		d.out.Verdict = Lost
		return
	}
	d.takeBack(*d.Own)
	d.out.Verdict = Marked
}

// takeBack evicts an entry for By. A waiter is removed. A holder is marked, and loses its hold; it keeps its
// slots until its owner has stopped.
func (d *decision) takeBack(e Entry) {
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

// replaces returns the waiters and holders that a newcomer replaces, and the number of waiters
// among them.
func (d *decision) replaces(newcomer *Entry) (replaced []Entry, waiters int) {
	all := append(slices.Clone(d.Replaceable), d.Holders...)
	rivals := make([]locks.Rival, len(all))
	for i, e := range all {
		rivals[i] = locks.Rival{Claim: e.Claim, Waits: e.State == Waiting, Replace: e.Replace, Leaving: e.Evicted != ""}
	}
	for _, i := range locks.Replaced(rivals, newcomer.Claim, newcomer.Replace) {
		replaced = append(replaced, all[i])
		if rivals[i].Waits {
			waiters++
		}
	}
	return replaced, waiters
}
