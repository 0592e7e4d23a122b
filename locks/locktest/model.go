package locktest

import (
	"fmt"
	"slices"
	"strings"

	"golock/locks"
)

// This file is the model of one lock: a pure function from the state of a queue, an input and its
// output to the next state, or to the verdict that no store may answer so. The model has no clock:
// the end of a hold is an event like the others.
//
// A grant to a waiter is an event of its own, because in every store a waiter finds out by itself
// that its turn has come. Until that event the other entries see it as a waiter.

// kind is what happens to an entry.
type kind string

const (
	opJoin    kind = "join"
	opGrant   kind = "grant"   // the grant of an entry that was queued
	opUnseen  kind = "unseen"  // perhaps a grant that its owner did not see: it left, or was evicted
	opReserve kind = "reserve" // perhaps a place in the queue that a join had before it took its slot
	opLeave   kind = "leave"   // a waiter leaves the queue
	opEvicted kind = "evicted" // a waiter is told that it was evicted
	opRelease kind = "release" // a holder gives its slots back
	opRenew   kind = "renew"   // a holder renews its lease
	opEvict   kind = "evict"   // somebody evicts an entry
	opHoldEnd kind = "hold ends"
	opList    kind = "list"
)

// input is what is done, to which entry.
type input struct {
	kind  kind
	lock  int // the number of the name
	id    int // the number of the entry, in the order of arrival
	claim locks.Claim

	// These fields belong to a grant. changing has the slots that were released or taken while the store
	// made the grant: the store may have counted them as taken. rank is the number of grants with a lower
	// fence, or -1 if the fence does not tell the order of grants.
	changing []int
	rank     int

	// These fields belong to a join.
	noWait   bool
	maxQueue *int
	replace  locks.Replacement
	hold     bool
	within   []int
}

type output struct {
	// word is "granted", "queued", "busy", "nested" or "evicted" for a join. For the others it is "lost",
	// "evicted", or "" if they succeeded.
	word     string
	slots    []int
	fence    int64
	replaced []int
	holders  []listed
	queue    []int
}

// listed is a holder in the output of opList.
type listed struct {
	id                   int
	slots                []int
	ended, evicted, hold bool // hold means that the entry keeps its slots after its release
}

// promises say in what a store differs from one that makes each change of the queue at once and in
// order, which is the zero value.
type promises struct {
	unordered bool // the kernel decides which waiter is next, and which free slot it gets
	searching bool // the store tries one unit after the other, so a refusal does not prove that all are taken
	sleepers  bool // a waiter that has left may still get the slot for a moment
	reserving bool // a join may have a place in the queue for a moment, although it gets a slot
	scanning  bool // the store reads one holder after the other, and may count a slot as taken that is released meanwhile
}

// queue is the state of a name. The methods that change it work on copies.
type queue struct {
	promises
	entries []entry // in the order of their tickets
	evicted []int   // IDs of evicted waiters that have not been told yet
	next    int64   // the ticket of the next newcomer
	fence   int64   // the fence of the last grant
	grants  int     // the number of grants that their owners know of
	left    bool    // a waiter has left
}

type entry struct {
	id      int
	claim   locks.Claim
	replace locks.Replacement
	slots   []int // nil for a waiter
	holds   bool
	hold    bool // the entry keeps its slots after its release
	ended   bool // the entry was released, and only its hold keeps the slots
	evicted bool // the entry was evicted and still holds
	unseen  bool // the entry holds, and its owner does not know that yet

	// The entry has a place in the queue, and is about to take a slot. Others are not refused because of
	// its place, if there is room for both.
	reserved bool
}

func (q *queue) find(id int) *entry {
	if i := slices.IndexFunc(q.entries, func(e entry) bool { return e.id == id }); i >= 0 {
		return &q.entries[i]
	}
	return nil
}

func (q *queue) remove(id int) {
	q.entries = slices.DeleteFunc(q.entries, func(e entry) bool { return e.id == id })
}

// takers returns the claims of the holders, and of the entries that take their slots before a claim gets any.
func (q *queue) takers(c locks.Claim) (claims []locks.Claim) {
	for _, e := range q.entries {
		if e.holds || e.takesBefore(c) {
			claims = append(claims, e.claim)
		}
	}
	return claims
}

func (e entry) waits() bool { return !e.holds && !e.reserved }

// takesBefore reports whether the entry is about to take its slots before a claim gets any.
func (e entry) takesBefore(c locks.Claim) bool { return e.reserved && e.claim.Before(c) }

// waiters returns the IDs of the entries that do not hold, the next one first.
func (q *queue) waiters() (ids []int) {
	waiting := slices.DeleteFunc(slices.Clone(q.entries), func(e entry) bool { return e.holds })
	slices.SortFunc(waiting, func(a, b entry) int { return a.claim.Compare(b.claim) })
	for _, e := range waiting {
		ids = append(ids, e.id)
	}
	return ids
}

// fits reports whether a claim may be admitted now.
func (q *queue) fits(c locks.Claim) bool {
	isBefore := func(e entry) bool { return e.waits() && e.claim.Before(c) }
	return (q.unordered || !slices.ContainsFunc(q.entries, isBefore)) && locks.Admits(q.takers(c), c)
}

// mayQueue reports whether a claim may get a place in the queue.
func (q *queue) mayQueue(c locks.Claim) bool {
	return !q.fits(c) || slices.ContainsFunc(q.entries, func(e entry) bool { return e.takesBefore(c) })
}

func (q *queue) isTaken(slot int) bool {
	return slices.ContainsFunc(q.entries, func(e entry) bool { return slices.Contains(e.slots, slot) })
}

func (q *queue) mayGet(c locks.Claim, slots, changing []int) bool {
	if !q.unordered {
		return slices.Equal(slots, locks.FreeSlots(func(s int) bool {
			return q.isTaken(s) || (slices.Contains(changing, s) && !slices.Contains(slots, s))
		}, c.Weight))
	}
	if c.Max == 0 {
		return len(slots) == 0
	}
	isWrong := func(slot int) bool { return slot < 0 || slot >= c.Max || q.isTaken(slot) }
	return len(slots) == c.Weight && !slices.ContainsFunc(slots, isWrong)
}

// admit makes an entry a holder with the grant in out, if the model allows that.
func (q *queue) admit(e *entry, in input, out output) bool {
	if (in.rank >= 0 && in.rank != q.grants) || (out.fence <= q.fence && !q.unordered) {
		return false
	}
	if !q.fits(e.claim) || !q.mayGet(e.claim, out.slots, in.changing) {
		return false
	}
	e.holds, e.slots = true, out.slots
	q.fence = out.fence
	q.grants++
	return true
}

// admitUnseen makes an entry a holder that does not know it yet.
func (q *queue) admitUnseen(e *entry) {
	e.holds, e.unseen, e.slots = true, true, locks.FreeSlots(q.isTaken, e.claim.Weight)
}

// after returns the state after an event, and whether the model allows the event.
func (q queue) after(in input, out output) (queue, bool) {
	q.entries, q.evicted = slices.Clone(q.entries), slices.Clone(q.evicted)
	e := q.find(in.id)
	held := e != nil && e.holds && !e.ended
	switch in.kind {
	case opJoin:
		return q.join(in, out)
	case opGrant:
		return q, e != nil && e.waits() && q.admit(e, in, out)
	case opUnseen:
		if e != nil && e.waits() && q.fits(e.claim) && (!q.unordered || (q.sleepers && !q.searching)) {
			q.admitUnseen(e)
		}
		return q, true
	case opReserve:
		q.reserve(in)
		return q, true
	case opLeave, opEvicted:
		if slices.Contains(q.evicted, in.id) {
			q.evicted = slices.DeleteFunc(q.evicted, func(id int) bool { return id == in.id })
			return q, true
		}
		if e == nil || (e.holds && !e.unseen) || (in.kind == opEvicted && !e.evicted) {
			return q, false
		}
		q.left = true
		q.remove(in.id)
		return q, true
	case opRelease:
		if out.word == "lost" || !held {
			return q, out.word == "lost" && !held
		}
		if e.hold && !e.evicted {
			e.ended = true
		} else {
			q.remove(in.id)
		}
		return q, true
	case opRenew:
		if out.word == "lost" {
			return q, !held
		}
		return q, held && e.evicted == (out.word == "evicted")
	case opEvict:
		if e != nil && e.reserved { // then its join does not succeed
			return q, false
		}
		if e == nil || out.word == "lost" {
			return q, e == nil && (out.word == "lost" || slices.Contains(q.evicted, in.id))
		}
		q.evict(e)
		return q, true
	case opHoldEnd:
		if e != nil && e.ended {
			q.remove(in.id)
		} else if e != nil {
			e.hold = false
		}
		return q, true
	case opList:
		return q, q.shows(out)
	}
	return q, false
}

// evict evicts an entry. It removes a waiter, or an entry that only its hold keeps, and marks any other holder.
func (q *queue) evict(e *entry) {
	switch {
	case !e.holds:
		q.evicted = append(q.evicted, e.id)
		slices.Sort(q.evicted)
		q.remove(e.id)
	case e.ended:
		q.remove(e.id)
	default:
		e.evicted = true
	}
}

func (q *queue) shows(out output) bool {
	var holders []listed
	for _, e := range q.entries {
		if e.holds {
			holders = append(holders, listed{e.id, e.slots, e.ended, e.evicted, e.hold && !e.evicted && !e.ended})
		}
	}
	slices.SortFunc(holders, func(a, b listed) int { return a.id - b.id })
	same := func(a, b listed) bool { // an offer may show no hold yet
		return a.id == b.id && slices.Equal(a.slots, b.slots) &&
			a.ended == b.ended && a.evicted == b.evicted && (a.hold || !b.hold)
	}
	return slices.EqualFunc(holders, out.holders, same) && slices.Equal(q.waiters(), out.queue)
}

// String returns a text that only equal states have. It has no tickets, because only their order counts.
func (q queue) String() string {
	var b strings.Builder
	fmt.Fprint(&b, "fence ", q.fence, " evicted ", q.evicted, " left ", q.left)
	for _, e := range q.entries {
		fmt.Fprintf(&b, "; %d%v holds %t hold %t ended %t evicted %t unseen %t reserved %t",
			e.id, e.slots, e.holds, e.hold, e.ended, e.evicted, e.unseen, e.reserved)
	}
	return b.String()
}

func (in input) String() string {
	s := fmt.Sprintf("%s %d", in.kind, in.id)
	if in.kind != opJoin {
		return s
	}
	if in.maxQueue != nil {
		s += fmt.Sprint(" max-queue ", *in.maxQueue)
	}
	return s + fmt.Sprintf(" %+v no-wait %t replace %q hold %t within %v",
		in.claim, in.noWait, in.replace, in.hold, in.within)
}

func (out output) String() string {
	s := out.word
	if out.slots != nil {
		s += fmt.Sprintf(" %v fence %d", out.slots, out.fence)
	}
	if len(out.replaced) > 0 {
		s += fmt.Sprintf(" replaced %v", out.replaced)
	}
	if out.holders != nil || out.queue != nil {
		s += fmt.Sprintf("%v queue %v", out.holders, out.queue)
	}
	return s
}
