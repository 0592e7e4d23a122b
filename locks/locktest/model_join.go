package locktest

import (
	"slices"

	"golock/locks"
)

// newcomer makes an entry of a join, with the next ticket.
func (q *queue) newcomer(in input) entry {
	e := entry{id: in.id, claim: in.claim, replace: in.replace, hold: in.hold}
	e.claim.Ticket = q.next
	q.next++
	return e
}

// reserve gives a join a place, if it may be admitted now.
func (q *queue) reserve(in input) {
	isKnown := q.find(in.id) != nil || slices.Contains(q.evicted, in.id)
	e := q.newcomer(in)
	e.reserved = true
	if !isKnown && q.fits(e.claim) {
		q.entries = append(q.entries, e)
	}
}

// join returns the state after a join, and whether the model allows the store's answer.
func (q queue) join(in input, out output) (queue, bool) {
	if e := q.find(in.id); e != nil { // it has had a place
		e.reserved = false
		switch out.word {
		case "queued":
			return q, !q.fits(e.claim)
		case "granted":
			return q, q.admit(e, in, out)
		}
		return q, false
	}
	e := q.newcomer(in)
	if out.word == "granted" && q.admit(&e, in, out) {
		q.entries = append(q.entries, e)
		return q, len(out.replaced) == 0
	}
	inside := slices.ContainsFunc(in.within, func(id int) bool {
		o := q.find(id)
		return o != nil && o.holds && !o.ended
	})
	// A refusal may be right although the model sees a free slot.
	unsure := q.searching || (q.sleepers && q.left)
	fits := q.fits(e.claim) && !unsure
	if out.word == "evicted" && fits { // it got a slot, and the answer tells of the eviction instead of the grant
		q.admitUnseen(&e)
		q.entries = append(q.entries, e)
		return q, true
	}
	patient := !in.noWait && !inside
	switch out.word {
	case "nested":
		return q, !fits && inside
	case "busy":
		if fits || inside {
			return q, false
		}
		if !patient {
			return q, true
		}
	case "queued":
		if !patient || !unsure && !q.mayQueue(e.claim) {
			return q, false
		}
	case "granted", "evicted":
		if fits || !patient {
			return q, false
		}
	default:
		return q, false
	}
	return q.enqueue(e, in, out, unsure)
}

// enqueue returns the state after a join that has to wait. It evicts the entries that the newcomer
// replaces, and may turn the newcomer away because the queue is full. unsure means that the store
// need not have seen that the newcomer fits.
func (q queue) enqueue(e entry, in input, out output, unsure bool) (queue, bool) {
	var others []entry
	var rivals []locks.Rival
	stay, gone := 0, []int{}
	for _, o := range q.entries {
		if o.reserved { // nobody replaces it, and it does not count as a waiter
			continue
		}
		others = append(others, o)
		rivals = append(rivals, locks.Rival{Claim: o.claim, IsWaiter: o.waits(), Replace: o.replace, Leaving: o.evicted})
		if o.waits() {
			stay++
		}
	}
	for _, i := range locks.Replaced(rivals, e.claim, e.replace) {
		gone = append(gone, others[i].id)
		if rivals[i].IsWaiter {
			stay--
		}
	}
	full := in.maxQueue != nil && stay >= *in.maxQueue
	if out.word == "busy" || full {
		return q, out.word == "busy" && full
	}
	slices.Sort(gone)
	if out.word != "evicted" && !slices.Equal(gone, out.replaced) {
		return q, false
	}
	for _, id := range gone {
		q.evict(q.find(id))
	}
	isRight := !q.fits(e.claim)
	switch out.word {
	case "queued":
		isRight = q.mayQueue(e.claim)
	case "granted":
		isRight = q.fits(e.claim)
	}
	if !isRight && !unsure {
		return q, false
	}
	if out.word == "granted" && !q.admit(&e, in, out) {
		return q, false
	}
	q.entries = append(q.entries, e)
	return q, true
}
