package queue

import (
	"slices"

	"golock/locks"
)

// join answers the step Join.
func (d *decision) join() {
	known := d.Caller
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
	if d.Caller != nil {
		e.Claim.Ticket = d.Caller.Claim.Ticket
		d.Waiters = without(d.Waiters, e.ID)
	}
	isNewcomer := e.Claim.Ticket == 0
	if isNewcomer {
		e.Claim.Ticket = d.out.Counter + 1
	}
	mustWait := d.Quarantined || !d.isFirst(&e) || !d.fits(&e)
	if mustWait {
		isRefused := d.refuseOrReplace(&e, isNewcomer)
		if isRefused {
			return
		}
	}
	// The entries that it replaces may make room for other waiters too. So it gets its place before offer
	// serves them.
	d.direct = d.isFirst(&e) || !isNewcomer
	d.out.Verdict, d.out.Entry = Queued, e
	d.out.Place = d.enqueue(e) + 1
	d.out.Fits = d.fits(&e)
}

// refuseOrReplace refuses an entry that must wait and may not. Otherwise it evicts the entries that the entry
// replaces.
func (d *decision) refuseOrReplace(e *Entry, isNewcomer bool) (isRefused bool) {
	var replaced []Entry
	replacedWaiters := 0
	if isNewcomer {
		replaced, replacedWaiters = d.replaces(e)
	}
	isFull := isNewcomer && d.q.MaxQueue != nil && d.Total-replacedWaiters >= *d.q.MaxQueue
	refusal := d.refusal(isFull)
	if refusal.Verdict != "" {
		d.refuse(refusal)
		isBehindWaiters := refusal.Full && *d.q.MaxQueue > 0
		d.out.Fits = !isBehindWaiters && d.fits(e)
		if d.Caller != nil {
			d.remove(e.ID, "")
		}
		return true
	}
	d.Ahead -= replacedWaiters
	d.out.Replaced = replaced
	for _, r := range replaced {
		d.takeBack(r)
	}
	return false
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

// replaces returns the waiters and holders that a newcomer replaces, and the number of waiters
// among them.
func (d *decision) replaces(newcomer *Entry) (replaced []Entry, waiters int) {
	all := append(slices.Clone(d.Replaceable), d.Holders...)
	rivals := make([]locks.Rival, len(all))
	for i, e := range all {
		rivals[i] = locks.Rival{Claim: e.Claim, IsWaiter: e.State == Waiting, Replace: e.Replace, Leaving: e.Evicted != ""}
	}
	for _, i := range locks.Replaced(rivals, newcomer.Claim, newcomer.Replace) {
		replaced = append(replaced, all[i])
		if rivals[i].IsWaiter {
			waiters++
		}
	}
	return replaced, waiters
}
