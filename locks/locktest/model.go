package locktest

import (
	"fmt"
	"slices"
	"strings"

	"golock/locks"
)

// The model of a name in a store: a pure function from a queue, an input and its
// output to the next queue, or to "that cannot be". It knows nothing of time:
// the end of a hold is an event like the others.
//
// A grant is an event of its own. In every store a waiter finds out by itself
// that it is its turn. Whatever happens between the moment from which it could
// be admitted and the grant sees a waiter.

// kind is what happens to an entry.
type kind string

const (
	opJoin    kind = "join"
	opGrant   kind = "grant"   // of one that was queued
	opUnseen  kind = "unseen"  // perhaps a grant that its owner did not see: it left, or was evicted
	opLeave   kind = "leave"   // the queue
	opEvicted kind = "evicted" // a waiter is told that it was
	opRelease kind = "release" // a slot
	opRenew   kind = "renew"   // a lease
	opEvict   kind = "evict"   // an entry, by somebody else
	opHoldEnd kind = "hold ends"
	opList    kind = "list"
)

// input is what is done, to which entry.
type input struct {
	kind  kind
	lock  int // which name
	id    int // which entry; they are numbered as they come
	claim locks.Claim

	// Of a grant only.
	changing []int // the slots that may count as taken: they were given back, or taken, while it was made
	rank     int   // how many have a lower fence; -1: it is not known whether they come before

	// Of a join only.
	noWait   bool
	maxQueue *int
	replace  locks.Replacement
	hold     bool
	within   []int
}

type output struct {
	word     string // "granted", "queued", "busy", "nested", "evicted" of a join; "", "lost", "evicted" of the rest
	slots    []int
	fence    int64
	replaced []int
	holders  []listed
	queue    []int
}

// listed is a holder as it is listed.
type listed struct {
	id                   int
	slots                []int
	ended, evicted, hold bool // hold: will stay after its release
}

// promises are what a store promises of its queue. The zero value is a store
// that keeps all of it in one step each.
type promises struct {
	unordered bool // the kernel decides who is next, and which of the free slots it is
	searching bool // free units are looked for one after the other: a refusal proves nothing
	sleepers  bool // who left may get what it waited for, for a moment: so does one
	scanning  bool // holders are looked at one after the other: a slot that is given back just then may count as taken
}

// queue is the state of a name. The methods that change it work on copies.
type queue struct {
	promises
	entries []entry // in the order of their tickets
	evicted []int   // were waiting, and have not been told yet
	next    int64   // ticket
	fence   int64   // the last
	grants  int     // so far, of those that their owners know of
	left    bool    // somebody has left
}

type entry struct {
	id      int
	claim   locks.Claim
	replace locks.Replacement
	slots   []int // nil: waits
	holds   bool
	hold    bool // stays after its release
	ended   bool // only stays
	evicted bool // and still holds
	unseen  bool // holds, and nobody knows
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

func (q *queue) holders() (claims []locks.Claim) {
	for _, e := range q.entries {
		if e.holds {
			claims = append(claims, e.claim)
		}
	}
	return claims
}

// waiters are the IDs of those in the queue, the next one first.
func (q *queue) waiters() (ids []int) {
	waiting := slices.DeleteFunc(slices.Clone(q.entries), func(e entry) bool { return e.holds })
	slices.SortFunc(waiting, func(a, b entry) int { return a.claim.Compare(b.claim) })
	for _, e := range waiting {
		ids = append(ids, e.id)
	}
	return ids
}

// fits says whether a claim may be admitted now.
func (q *queue) fits(c locks.Claim) bool {
	isBefore := func(e entry) bool { return !e.holds && e.claim.Before(c) }
	return (q.unordered || !slices.ContainsFunc(q.entries, isBefore)) && locks.Admits(q.holders(), c)
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

// admit makes an entry a holder with that grant, if it may be.
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

// after is the state after an event, and whether it may happen so.
func (q queue) after(in input, out output) (queue, bool) {
	q.entries, q.evicted = slices.Clone(q.entries), slices.Clone(q.evicted)
	e := q.find(in.id)
	held := e != nil && e.holds && !e.ended
	switch in.kind {
	case opJoin:
		return q.join(in, out)
	case opGrant:
		return q, e != nil && !e.holds && q.admit(e, in, out)
	case opUnseen:
		if e != nil && !e.holds && q.fits(e.claim) && (!q.unordered || (q.sleepers && !q.searching)) {
			q.admitUnseen(e)
		}
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

// evict takes an entry back: a waiter's place and what only stays at once.
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

func (q queue) join(in input, out output) (queue, bool) {
	e := entry{id: in.id, claim: in.claim, replace: in.replace, hold: in.hold}
	e.claim.Ticket = q.next
	q.next++
	if out.word == "granted" && q.admit(&e, in, out) {
		q.entries = append(q.entries, e)
		return q, len(out.replaced) == 0
	}
	inside := slices.ContainsFunc(in.within, func(id int) bool {
		o := q.find(id)
		return o != nil && o.holds && !o.ended
	})
	unsure := q.searching || (q.sleepers && q.left) // a refusal may be right all the same
	fits := q.fits(e.claim) && !unsure
	if out.word == "evicted" && fits { // it was told of nothing else
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
	case "queued", "granted", "evicted":
		if fits || !patient {
			return q, false
		}
	default:
		return q, false
	}
	// It has to wait: whom does it replace, and are there too many?
	rivals := make([]locks.Rival, len(q.entries))
	for i, o := range q.entries {
		rivals[i] = locks.Rival{Claim: o.claim, Waits: !o.holds, Replace: o.replace, Leaving: o.evicted}
	}
	stay, gone := len(q.waiters()), []int{}
	for _, i := range locks.Replaced(rivals, e.claim, e.replace) {
		gone = append(gone, q.entries[i].id)
		if !q.entries[i].holds {
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
	if q.fits(e.claim) != (out.word == "granted") && !unsure {
		return q, false
	}
	if out.word == "granted" && !q.admit(&e, in, out) {
		return q, false
	}
	q.entries = append(q.entries, e)
	return q, true
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

// String tells states apart. Of the tickets only their order counts.
func (q queue) String() string {
	var b strings.Builder
	fmt.Fprint(&b, "fence ", q.fence, " evicted ", q.evicted, " left ", q.left)
	for _, e := range q.entries {
		fmt.Fprintf(&b, "; %d%v holds %t hold %t ended %t evicted %t unseen %t",
			e.id, e.slots, e.holds, e.hold, e.ended, e.evicted, e.unseen)
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
