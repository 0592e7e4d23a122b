package queue

import (
	"slices"
)

// keep makes the entry that asks hold the slots that it has, or was offered.
func (d *decision) keep(v Verdict) {
	holder := *d.Caller
	holder.State, holder.Absent = Holding, false
	d.put(holder)
	d.out.Verdict, d.out.Entry = v, holder
}

// renew answers the steps Renew and Hold.
func (d *decision) renew() {
	known := d.Caller
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

// release answers the steps Release and Leave. Only a Release leaves a hold behind.
func (d *decision) release() {
	d.out.Verdict = Released
	known := d.Caller
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
	if d.Caller == nil || d.Caller.State == Tombstone {
		d.out.Verdict = Lost
		return
	}
	d.takeBack(*d.Caller)
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
