package locktest

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"golock/locks"
)

// The state machine that a name in a store is: a pure function from a state, a
// question and its answer to the next state, or to "that cannot be". It knows
// nothing of time: what happens by itself (the end of a hold) is an event like
// the others.
//
// A grant is an event of its own. Every store that keeps a queue lets a waiter
// find out by itself that it is its turn, so between the moment from which it
// could be admitted and the grant anything may happen, and all of it sees a
// waiter.

// kind is what happens to an entry.
type kind string

const (
	joining   kind = "join"
	granting  kind = "grant"   // of one that was queued
	unseen    kind = "unseen"  // perhaps a grant that its owner did not live to see: it left, or was evicted
	leaving   kind = "leave"   // the queue
	dismissed kind = "evicted" // a waiter is told that it was
	giving    kind = "release" // a slot
	renewing  kind = "renew"   // a lease
	evicting  kind = "evict"   // an entry, by somebody else
	holdOver  kind = "hold over"
	listing   kind = "list"
)

// asked is an event: what is done, to which entry.
type asked struct {
	kind  kind
	lock  int // which name
	id    int // which entry; they are numbered as they come
	claim locks.Claim

	// Of a grant only.
	fading []int // the slots that may count as taken: they were given back, or taken, while it was made
	rank   int   // how many have a lower fence; -1: it is not known whether they come before

	// Of a join only.
	noWait  bool
	most    *int // MaxQueue
	replace locks.Replacement
	hold    bool
	within  []int
}

// told is the answer.
type told struct {
	word     string // "granted", "queued", "busy", "nested", "evicted" of a join; "", "lost", "evicted" of the rest
	slots    []int
	fence    int64
	replaced []int
	holders  []seen
	queue    []int
}

// seen is a holder as it is listed.
type seen struct {
	id                   int
	slots                []int
	ended, evicted, kept bool // kept: will stay after its release
}

// promises are what a store promises of its queue. The zero value is a store
// that keeps all of it in one step each.
type promises struct {
	unordered bool // the kernel decides who is next, and which of the free slots it is
	searching bool // free units are looked for one after the other: a refusal proves nothing
	sleepers  bool // who left may get what it waited for, for a moment: so does one
	scanning  bool // holders are looked at one after the other: a slot that is given back just then may count as taken
}

// line is the state. It is never changed: the methods that change it work on
// copies.
type line struct {
	promises
	entries []placed // in the order of their tickets
	evicted []int    // were waiting, and have not been told yet
	next    int64    // ticket
	fence   int64    // the last
	grants  int      // so far, of those that their owners know of
	ghosts  bool     // somebody has left
}

// placed is an entry that waits or holds.
type placed struct {
	id      int
	claim   locks.Claim
	replace locks.Replacement
	slots   []int // nil: waits
	fence   int64
	holds   bool
	hold    bool // stays after its release
	ended   bool // only stays
	marked  bool // evicted, and still holds
	unseen  bool // holds, and nobody knows
}

func (l line) copy() line {
	l.entries, l.evicted = slices.Clone(l.entries), slices.Clone(l.evicted)
	return l
}

func (l *line) find(id int) *placed {
	for i := range l.entries {
		if l.entries[i].id == id {
			return &l.entries[i]
		}
	}
	return nil
}

func (l *line) remove(id int) {
	l.entries = slices.DeleteFunc(l.entries, func(e placed) bool { return e.id == id })
}

func (l *line) holders() (cs []locks.Claim) {
	for _, e := range l.entries {
		if e.holds {
			cs = append(cs, e.claim)
		}
	}
	return cs
}

// waiters are those in the queue, the next one first.
func (l *line) waiters() (ws []placed) {
	for _, e := range l.entries {
		if !e.holds {
			ws = append(ws, e)
		}
	}
	slices.SortStableFunc(ws, func(a, b placed) int {
		if a.claim.Before(b.claim) {
			return -1
		}
		return 1
	})
	return ws
}

// fits says whether a claim may be admitted now.
func (l *line) fits(c locks.Claim) bool {
	if !l.unordered {
		for _, e := range l.entries {
			if !e.holds && e.claim.Before(c) {
				return false
			}
		}
	}
	return locks.Admits(l.holders(), c)
}

func (l *line) taken(slot int) bool {
	return slices.ContainsFunc(l.entries, func(e placed) bool { return slices.Contains(e.slots, slot) })
}

// lowest are the slots that a claim gets.
func (l *line) lowest(c locks.Claim) []int { return locks.FreeSlots(l.taken, c.Weight) }

// rightSlots says whether these are what a claim may get.
func (l *line) rightSlots(c locks.Claim, slots, fading []int) bool {
	if !l.unordered {
		return slices.Equal(slots, locks.FreeSlots(func(s int) bool {
			return l.taken(s) || (slices.Contains(fading, s) && !slices.Contains(slots, s))
		}, c.Weight))
	}
	if c.Max == 0 {
		return len(slots) == 0
	}
	return len(slots) == c.Weight && !slices.ContainsFunc(slots, func(s int) bool { return s < 0 || s >= c.Max || l.taken(s) })
}

// admit makes an entry a holder with that grant, if it may be.
func (l *line) admit(e *placed, q asked, a told) bool {
	if (q.rank >= 0 && q.rank != l.grants) || (a.fence <= l.fence && !l.unordered) {
		return false
	}
	if !l.fits(e.claim) || !l.rightSlots(e.claim, a.slots, q.fading) {
		return false
	}
	e.holds, e.slots, e.fence = true, a.slots, a.fence
	l.fence = a.fence
	l.grants++
	return true
}

// after is the state after an event, and whether it may happen so.
func (l line) after(q asked, a told) (line, bool) {
	l = l.copy()
	e := l.find(q.id)
	switch q.kind {
	case joining:
		return l.join(q, a)
	case granting:
		return l, e != nil && !e.holds && l.admit(e, q, a)
	case unseen:
		if e != nil && !e.holds && l.fits(e.claim) && (!l.unordered || (l.sleepers && !l.searching)) {
			e.holds, e.unseen, e.slots = true, true, l.lowest(e.claim)
		}
		return l, true
	case leaving, dismissed:
		was := slices.Contains(l.evicted, q.id)
		l.evicted = slices.DeleteFunc(l.evicted, func(id int) bool { return id == q.id })
		if was {
			return l, true
		}
		if e == nil || (e.holds && !e.unseen) || (q.kind == dismissed && !e.marked) {
			return l, false
		}
		l.ghosts = true
		l.remove(q.id)
		return l, true
	case giving:
		held := e != nil && e.holds && !e.ended
		if a.word == "lost" || !held {
			return l, a.word == "lost" && !held
		}
		if e.hold && !e.marked {
			e.ended = true
		} else {
			l.remove(q.id)
		}
		return l, true
	case renewing:
		switch held := e != nil && e.holds && !e.ended; a.word {
		case "lost":
			return l, !held
		case "evicted":
			return l, held && e.marked
		default:
			return l, held && !e.marked
		}
	case evicting:
		if e == nil || a.word == "lost" {
			return l, e == nil && (a.word == "lost" || slices.Contains(l.evicted, q.id))
		}
		l.evict(e)
		return l, true
	case holdOver:
		if e != nil && e.ended {
			l.remove(q.id)
		} else if e != nil {
			e.hold = false
		}
		return l, true
	case listing:
		return l, l.shows(a)
	}
	return l, false
}

// evict takes an entry back: a waiter's place and what only stays at once.
func (l *line) evict(e *placed) {
	switch {
	case !e.holds:
		l.evicted = append(l.evicted, e.id)
		slices.Sort(l.evicted)
		l.remove(e.id)
	case e.ended:
		l.remove(e.id)
	default:
		e.marked = true
	}
}

func (l line) join(q asked, a told) (line, bool) {
	e := placed{id: q.id, claim: q.claim, replace: q.replace, hold: q.hold}
	e.claim.Ticket = l.next
	l.next++
	if a.word == "granted" && l.admit(&e, q, a) {
		l.entries = append(l.entries, e)
		return l, len(a.replaced) == 0
	}
	inside := slices.ContainsFunc(q.within, func(id int) bool {
		o := l.find(id)
		return o != nil && o.holds && !o.ended
	})
	unsure := l.searching || (l.sleepers && l.ghosts) // a refusal may be right all the same
	fits := l.fits(e.claim) && !unsure
	if a.word == "evicted" && fits { // it was told of nothing else
		e.holds, e.unseen, e.slots = true, true, l.lowest(e.claim)
		l.entries = append(l.entries, e)
		return l, true
	}
	patient := !q.noWait && !inside
	switch a.word {
	case "nested":
		return l, !fits && inside
	case "busy":
		if fits || inside {
			return l, false
		}
		if !patient {
			return l, true
		}
	case "queued", "granted", "evicted":
		if fits || !patient {
			return l, false
		}
	default:
		return l, false
	}
	// It has to wait: whom does it replace, and are there too many?
	rivals := make([]locks.Rival, len(l.entries))
	for i, o := range l.entries {
		rivals[i] = locks.Rival{Claim: o.claim, State: locks.Holding, Replace: o.replace, Leaving: o.marked}
		if !o.holds {
			rivals[i].State = locks.Waiting
		}
	}
	stay, gone := len(l.waiters()), []int{}
	for _, i := range locks.Replaced(rivals, e.claim, e.replace) {
		gone = append(gone, l.entries[i].id)
		if !l.entries[i].holds {
			stay--
		}
	}
	full := q.most != nil && stay >= *q.most
	if a.word == "busy" || full {
		return l, a.word == "busy" && full
	}
	slices.Sort(gone)
	if a.word != "evicted" && !slices.Equal(gone, a.replaced) {
		return l, false
	}
	for _, id := range gone {
		l.evict(l.find(id))
	}
	if l.fits(e.claim) != (a.word == "granted") && !unsure {
		return l, false
	}
	if a.word == "granted" && !l.admit(&e, q, a) {
		return l, false
	}
	l.entries = append(l.entries, e)
	return l, true
}

// shows says whether that is what there is to be listed.
func (l *line) shows(a told) bool {
	var holders []seen
	var queue []int
	for _, e := range l.entries {
		if e.holds {
			holders = append(holders, seen{e.id, e.slots, e.ended, e.marked, e.hold && !e.marked && !e.ended})
		}
	}
	for _, e := range l.waiters() {
		queue = append(queue, e.id)
	}
	slices.SortFunc(holders, func(a, b seen) int { return a.id - b.id })
	same := func(a, b seen) bool { // an offer may show no hold yet
		return a.id == b.id && slices.Equal(a.slots, b.slots) && a.ended == b.ended && a.evicted == b.evicted && (a.kept || !b.kept)
	}
	return slices.EqualFunc(holders, a.holders, same) && slices.Equal(queue, a.queue)
}

// key tells states apart. Of the tickets only their order counts.
func (l line) key() string {
	var b strings.Builder
	fmt.Fprint(&b, l.fence, l.evicted, l.ghosts)
	for _, e := range l.entries {
		fmt.Fprint(&b, ";", e.id, e.slots, e.holds, e.hold, e.ended, e.marked, e.unseen)
	}
	return b.String()
}

func (l line) hash() uint64 {
	h := fnv.New64a()
	h.Write([]byte(l.key()))
	return h.Sum64()
}

func (l line) String() string {
	var b strings.Builder
	for _, e := range l.entries {
		if !e.holds {
			continue
		}
		fmt.Fprintf(&b, "%d holds %v", e.id, e.slots)
		for word, is := range map[string]bool{" (stays)": e.ended, " (evicted)": e.marked, " (unseen)": e.unseen} {
			if is {
				b.WriteString(word)
			}
		}
		b.WriteString("; ")
	}
	b.WriteString("queue")
	for _, e := range l.waiters() {
		fmt.Fprintf(&b, " %d", e.id)
	}
	return b.String()
}

func (q asked) String() string {
	s := string(q.kind)
	if q.kind != listing {
		s += fmt.Sprintf(" %d", q.id)
	}
	if q.kind != joining {
		return s
	}
	s += fmt.Sprintf(" max %d", q.claim.Max)
	if q.claim.Weight != 1 {
		s += fmt.Sprintf(" weight %d", q.claim.Weight)
	}
	if q.claim.Priority != 0 {
		s += fmt.Sprintf(" priority %d", q.claim.Priority)
	}
	if q.noWait {
		s += " no-wait"
	}
	if q.most != nil {
		s += fmt.Sprintf(" max-queue %d", *q.most)
	}
	if q.replace != "" {
		s += " replace " + string(q.replace)
	}
	if q.hold {
		s += " hold"
	}
	if len(q.within) > 0 {
		s += fmt.Sprintf(" within %v", q.within)
	}
	return s
}

func (a told) String() string {
	s := a.word
	if a.fence != 0 || a.slots != nil {
		s += fmt.Sprintf(" %v fence %d", a.slots, a.fence)
	}
	if len(a.replaced) > 0 {
		s += fmt.Sprintf(" replaced %v", a.replaced)
	}
	if a.holders != nil || a.queue != nil {
		s += fmt.Sprintf("%v queue %v", a.holders, a.queue)
	}
	return s
}
