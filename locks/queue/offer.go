package queue

import (
	"slices"

	"golock/locks"
)

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
			d.Caller = &e
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
	mayBeNewFirst := !isJoinOrRenewal || isAfterReplaced
	if !mayBeNewFirst {
		return
	}
	hasEnded := func(e Entry) bool { return e.State == Ended }
	if slices.ContainsFunc(d.Holders, hasEnded) || slices.ContainsFunc(d.out.Put, hasEnded) {
		d.out.Told = append(d.out.Told, first)
	}
}
