// Package queue decides what becomes of one lock's queue. It is a pure function: it has
// no clock and no store. An engine reads a View, asks with a Question, and applies the
// Decision as one atomic change.
//
// Time enters through the View: the engine leaves out an entry whose lease is over, shows
// a holder that only its hold keeps as Ended, and marks a waiter that does not come as
// Absent.
package queue

import (
	"slices"

	"golock/locks"
	"golock/locks/lease"
)

// State is what an entry is.
type State byte

// The states.
const (
	Waiting State = 'W'
	Offered State = 'O' // it holds as soon as it accepts; its slots are taken until then
	Holding State = 'H'
	Ended   State = 'E' // nobody holds it any more; its hold keeps the slots
	Gone    State = 'G' // remembered: a late repetition of its request must not bring it back
)

// Entry is one entry of a queue.
type Entry struct {
	ID      string
	State   State
	Claim   locks.Claim
	Replace locks.Replacement
	Evicted string // by whom; "": by nobody
	Slots   []int  // Offered, Holding and Ended
	Fence   int64  // likewise
	Kept    bool   // its hold is not over: released, it becomes Ended

	// Of a waiter. An offer reaches one that is Reachable; another one has to ask again
	// before it gets a slot. One that is Absent is overdue: the others go on without it
	// until it asks again.
	Reachable, Absent bool
}

// View is the part of a queue that a decision needs. It is not changed.
type View struct {
	Counter     int64  // the highest ticket or fence so far
	Epoch       string // a stretch of time in which the store forgot nothing
	Quarantined bool   // nobody gets a slot

	Holders []Entry // all that have slots
	Waiters []Entry // the first ones, in their order
	More    bool    // there are others behind them
	Own     *Entry  // that of the question, in whatever state; nil: there is none

	Ahead       int     // if there are More: the waiters before the one that joins
	Total       int     // of all waiters
	Replaceable []Entry // all waiters that replace others, for a newcomer that does
}

// Question is a step that somebody wants to make with an entry.
type Question struct {
	Step  lease.Step // Look: of nobody's
	Entry Entry      // its ID; what a Join asks for; what a Renew believes to hold, if it is Known
	Known bool
	Epoch string // of the last answer to the entry

	NoWait   bool
	Within   []string // IDs of the enclosing runs
	MaxQueue *int
	By       string // who evicts
}

// Look hands out what is free.
const Look lease.Step = "look"

// Decision is an answer, and what has to be written so that it is true.
type Decision struct {
	Verdict  lease.Verdict
	Entry    Entry   // Granted, Held, Queued
	Place    int     // Queued: 1 is the next
	By       string  // Evicted
	Existed  bool    // Released
	Fits     bool    // Busy, Nested, Queued: only the quarantine or those before it are in its way
	Full     bool    // Busy
	Inside   string  // Nested: the innermost enclosing run
	Holders  []Entry // Busy, Nested
	Waiters  int     // likewise
	Replaced []Entry // Granted, Queued

	Counter int64    // raised if tickets or fences were given
	Put     []Entry  // new and changed entries
	Remove  []string // IDs
	Told    []string // IDs of waiters that have an offer or were evicted
	Due     string   // ID of the first waiter if it could have a slot and is not Reachable
}

// Decide answers a question.
func Decide(v View, q Question) Decision {
	other := func(e Entry) bool { return e.ID == q.Entry.ID }
	d := &decision{View: v, q: q}
	d.holders, d.waiters = slices.Clone(v.Holders), slices.Clone(v.Waiters)
	d.out.Counter = v.Counter
	switch q.Step {
	case lease.Join:
		d.waiters = slices.DeleteFunc(d.waiters, other)
		d.join()
	case lease.Renew:
		d.renew()
	case lease.Release, lease.Leave:
		d.release()
	case lease.Evict:
		d.evict()
	}
	d.offer()
	return d.out
}

// decision is one that is being made.
type decision struct {
	View
	q       Question
	holders []Entry
	waiters []Entry // a Join's own is put in when it stays
	out     Decision
}

func (d *decision) next() int64 {
	d.out.Counter++
	return d.out.Counter
}

// put writes an entry. The last one of an ID counts.
func (d *decision) put(e Entry) {
	d.out.Put = slices.DeleteFunc(d.out.Put, func(o Entry) bool { return o.ID == e.ID })
	d.out.Put = append(d.out.Put, e)
}

func without(all []Entry, id string) []Entry {
	return slices.DeleteFunc(all, func(e Entry) bool { return e.ID == id })
}

func claims(all []Entry) []locks.Claim {
	cs := make([]locks.Claim, len(all))
	for i := range all {
		cs[i] = all[i].Claim
	}
	return cs
}

func (d *decision) fits(e *Entry) bool { return locks.Admits(claims(d.holders), e.Claim) }

// hold gives an entry its slots.
func (d *decision) hold(e Entry, s State, fence int64) Entry {
	taken := map[int]bool{}
	for _, h := range d.holders {
		for _, slot := range h.Slots {
			taken[slot] = true
		}
	}
	e.State, e.Fence = s, fence
	e.Slots = locks.FreeSlots(func(slot int) bool { return taken[slot] }, e.Claim.Weight)
	d.holders = append(d.holders, e)
	d.put(e)
	return e
}

// forget takes the entry of the question out.
func (d *decision) forget(by string) {
	e := Entry{ID: d.q.Entry.ID, State: Gone, Evicted: by}
	d.holders, d.waiters = without(d.holders, e.ID), without(d.waiters, e.ID)
	d.put(e)
}

// offer gives what is free to the first waiters. Who does not take an offer is Absent to
// the next step, and loses it.
func (d *decision) offer() {
	for i := 0; i < len(d.waiters) && !d.Quarantined; i++ {
		w := d.waiters[i]
		if w.Absent {
			continue
		}
		if !d.fits(&w) {
			return
		}
		if !w.Reachable {
			d.out.Due = w.ID
			return
		}
		d.waiters = slices.Delete(d.waiters, i, i+1)
		i--
		d.hold(w, Offered, d.next())
		d.out.Told = append(d.out.Told, w.ID)
	}
}

// ahead counts the waiters before one that joins: all of them, and those that are there.
func (d *decision) ahead(mine *Entry) (all, present int) {
	for _, w := range d.waiters {
		if !w.Claim.Before(mine.Claim) {
			return all, present
		}
		all++
		if !w.Absent {
			present++
		}
	}
	if d.More {
		all = max(all, d.Ahead)
		present = max(present, 1)
	}
	return all, present
}

// mayHold reports whether an entry that joins may hold at once.
func (d *decision) mayHold(mine *Entry) bool {
	_, before := d.ahead(mine)
	return before == 0 && !d.Quarantined && d.fits(mine)
}

func (d *decision) grant(mine Entry, fence int64) {
	d.out.Verdict, d.out.Entry = lease.Granted, d.hold(mine, Holding, fence)
}

func (d *decision) join() {
	own, q := d.Own, &d.q
	over := own != nil && (own.State == Gone || own.State == Ended)
	switch {
	case own == nil || own.State == Waiting:
	case over && own.Evicted != "":
		d.out.Verdict, d.out.By = lease.Evicted, own.Evicted
		return
	case over && !q.NoWait && len(q.Within) == 0:
		d.out.Verdict = lease.Gone
		return
	case over: // it was turned away, and the answer lost
	case own.Evicted != "": // before it knew that it held
		d.out.Verdict, d.out.By = lease.Evicted, own.Evicted
		d.forget(own.Evicted)
		return
	default:
		d.out.Verdict, d.out.Entry = lease.Granted, *own
		d.out.Entry.State = Holding
		d.put(d.out.Entry)
		return
	}
	mine := q.Entry
	mine.State, mine.Absent = Waiting, false
	if own != nil && own.State == Waiting {
		mine.Claim.Ticket = own.Claim.Ticket
	}
	isNew := mine.Claim.Ticket == 0
	if isNew {
		mine.Claim.Ticket = d.Counter + 1
	}
	d.out.Counter = max(d.out.Counter, mine.Claim.Ticket) // a store that lost its data may have lost it
	fence := func() int64 {
		if isNew {
			return mine.Claim.Ticket
		}
		return d.next()
	}
	if !over && d.mayHold(&mine) {
		d.grant(mine, fence())
		return
	}
	if d.refuse(&mine, isNew, over) {
		return
	}
	if over {
		d.out.Verdict = lease.Gone
		return
	}
	if isNew {
		d.replace(&mine)
	}
	if d.mayHold(&mine) {
		d.grant(mine, fence())
		return
	}
	all, _ := d.ahead(&mine)
	at, _ := slices.BinarySearchFunc(d.waiters, mine.Claim, func(w Entry, c locks.Claim) int {
		if w.Claim.Before(c) {
			return -1
		}
		return 1
	})
	if at < len(d.waiters) || !d.More {
		d.waiters = slices.Insert(d.waiters, at, mine)
	}
	d.put(mine)
	d.out.Verdict, d.out.Entry, d.out.Place, d.out.Fits = lease.Queued, mine, all+1, d.fits(&mine)
}

// refuse turns away a request that must not wait.
func (d *decision) refuse(mine *Entry, isNew, over bool) bool {
	q := &d.q
	for _, id := range q.Within {
		// Nobody is inside a run that has ended.
		if slices.ContainsFunc(d.holders, func(h Entry) bool { return h.ID == id && h.State == Holding }) {
			d.out.Inside = id
		}
	}
	full := isNew && !q.NoWait && d.out.Inside == "" && q.MaxQueue != nil && d.Total-d.replaceableAhead(mine) >= *q.MaxQueue
	if d.out.Inside == "" && !q.NoWait && !full {
		return false
	}
	d.out.Verdict, d.out.Full = lease.Busy, full
	if d.out.Inside != "" {
		d.out.Verdict = lease.Nested
	}
	if isNew {
		d.out.Counter = d.Counter
	}
	d.out.Holders, d.out.Waiters = slices.Clone(d.holders), d.Total
	d.out.Fits = !over && !(full && *q.MaxQueue > 0) && d.fits(mine)
	if d.Own != nil && !over {
		d.forget("")
	}
	return true
}

func (d *decision) renew() {
	own := d.Own
	switch {
	case own != nil && own.Evicted != "" && own.State != Waiting && own.State != Ended:
		d.out.Verdict, d.out.By = lease.Evicted, own.Evicted
	case own != nil && (own.State == Holding || own.State == Offered):
		d.out.Verdict, d.out.Entry = lease.Held, *own
		d.out.Entry.State = Holding
		d.put(d.out.Entry)
	case own == nil && d.q.Known && d.q.Epoch != d.Epoch && d.free(&d.q.Entry):
		// The store has lost its data: the holder is put back.
		mine := d.q.Entry
		mine.State = Holding
		d.out.Counter = max(d.out.Counter, mine.Fence, mine.Claim.Ticket)
		d.holders = append(d.holders, mine)
		d.put(mine)
		d.out.Verdict, d.out.Entry = lease.Held, mine
	default:
		d.out.Verdict = lease.Lost
	}
}

// free reports whether an entry can have the very slots that it had.
func (d *decision) free(e *Entry) bool {
	return d.fits(e) && !slices.ContainsFunc(d.holders, func(h Entry) bool {
		return slices.ContainsFunc(h.Slots, func(slot int) bool { return slices.Contains(e.Slots, slot) })
	})
}

func (d *decision) release() {
	own := d.Own
	d.out.Verdict = lease.Released
	d.out.Existed = own != nil && own.State != Gone && own.State != Ended
	switch {
	case own != nil && own.State == Ended:
	case d.q.Step == lease.Release && own != nil && own.State == Holding && own.Kept && own.Evicted == "":
		e := *own
		e.State = Ended
		d.put(e)
	case own == nil || own.State != Gone:
		d.forget("")
	}
}

func (d *decision) evict() {
	own := d.Own
	switch {
	case own == nil || own.State == Gone:
		d.out.Verdict = lease.Lost
		return
	case own.State == Ended:
		d.forget(d.q.By)
	case own.State == Waiting:
		d.dismiss(*own)
	default:
		d.mark(*own)
	}
	d.out.Verdict = lease.Marked
}

// mark tells a holder to go. Its hold is void.
func (d *decision) mark(h Entry) {
	if h.Evicted != "" {
		return
	}
	h.Evicted, h.Kept = d.q.By, false
	d.put(h)
}

// dismiss ends a waiter's place.
func (d *decision) dismiss(w Entry) {
	d.waiters = without(d.waiters, w.ID)
	d.put(Entry{ID: w.ID, State: Gone, Evicted: d.q.By})
	d.out.Told = append(d.out.Told, w.ID)
}

// replaceableAhead counts the waiters that a newcomer puts out of its way.
func (d *decision) replaceableAhead(mine *Entry) (n int) {
	if mine.Replace == locks.ReplaceNone {
		return 0
	}
	for _, w := range d.Replaceable {
		if w.Claim.Before(mine.Claim) {
			n++
		}
	}
	return n
}

// replace evicts those who stand, or hold, where a newcomer wants to be.
func (d *decision) replace(mine *Entry) {
	all := append(slices.Clone(d.Replaceable), d.holders...)
	rivals := make([]locks.Rival, len(all))
	for i, e := range all {
		rivals[i] = locks.Rival{Claim: e.Claim, State: locks.Holding, Replace: e.Replace, Leaving: e.Evicted != ""}
		if e.State == Waiting {
			rivals[i].State = locks.Waiting
		}
	}
	for _, i := range locks.Replaced(rivals, mine.Claim, mine.Replace) {
		e := all[i]
		d.out.Replaced = append(d.out.Replaced, e)
		switch e.State {
		case Waiting:
			d.dismiss(e)
			d.Ahead = max(d.Ahead-1, 0)
		case Ended:
			d.holders = without(d.holders, e.ID)
			d.out.Remove = append(d.out.Remove, e.ID)
		default:
			d.mark(e)
		}
	}
}
