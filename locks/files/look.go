package files

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"golock/locks"
)

// view is what a look at the line shows.
type view struct {
	granted   bool
	place     int  // in the line; 1 is the next
	waiters   int  // that were there before it
	passing   bool // those in the way do something that takes a moment only
	choosing  bool // one that may go before still chooses its ticket: nothing else is known
	holders   []seat
	rivals    []seat        // those ahead that were there before it, and the holders if they are known
	picked    []seat        // and whom of them it puts out of its way
	unchanged time.Duration // for how long the line has been as it is
}

// look takes the slot if it is this entry's turn. An entry that was taken for
// dead is put at the end of the line again.
func (e *entry) look() (view, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	v, err := e.lookLocked()
	if !errors.Is(err, errGone) || e.given.Load() {
		return v, err
	}
	if _, err := e.queue.list(); err != nil {
		return v, e.queue.vanished(err)
	}
	if e.store.clock() < e.term.End() { // nobody can have taken it for dead
		return v, errTakenOut
	}
	if err := e.discard(); err != nil {
		return v, err
	}
	if err := e.enterLocked(); err != nil {
		e.term = locks.Term{} // what came into being of it counts for nothing: the next look begins anew
		if !errors.Is(err, errGone) {
			return v, err
		}
	}
	return view{passing: true, place: 1}, nil
}

func (e *entry) lookLocked() (view, error) {
	q, at, clock := e.queue, e.store.at, e.store.clock
	if e.token.kind == holds { // it could not step back
		if err := e.renameToken(e.token.as(waits)); err != nil {
			return view{}, err
		}
	}
	if e.token.kind != waits {
		return view{}, errGone
	}
	if by, ok := q.evictedBy(e.token.id); ok {
		return view{}, &locks.EvictedError{By: by}
	}
	if clock() >= e.term.Asked.Add(e.term.TTL/beats) {
		if err := e.beat(); err != nil {
			return view{}, err
		}
	}
	at("look")
	line, err := q.list()
	if err != nil {
		return view{}, q.vanished(err)
	}
	if !slices.Contains(line, e.token) {
		return view{}, errGone
	}
	if busy, err := e.othersChoose(line); err != nil || busy {
		return view{passing: true, choosing: true, place: 1}, err
	}
	// Only now everybody who may go before has a ticket to be seen.
	at("look again")
	if line, err = q.list(); err != nil {
		return view{}, q.vanished(err)
	}
	v, ahead, err := e.survey(line)
	if err != nil {
		return v, err
	}
	v.picked = e.pick(v.rivals)
	e.replace()
	if len(ahead) > 0 {
		v.passing = !slices.ContainsFunc(ahead, func(s seat) bool { return !s.record.NoWait && s.evicted == "" })
		return v, nil
	}
	if !admits(v.holders, e.claim()) {
		return v, nil
	}
	return e.take(v)
}

func (e *entry) claim() locks.Claim { return e.record.claim(e.token.ticket) }

func admits(holders []seat, c locks.Claim) bool {
	claims := make([]locks.Claim, len(holders))
	for i := range holders {
		claims[i] = holders[i].claim()
	}
	return locks.Admits(claims, c)
}

// othersChoose reports whether somebody still chooses who did so when this
// entry's ticket became visible.
func (e *entry) othersChoose(line []token) (bool, error) {
	for id, t := range e.choosing {
		if !slices.Contains(line, t) {
			delete(e.choosing, id)
			continue
		}
		s, err := e.watch.look(t)
		switch {
		case err != nil:
			return false, err
		case s.dead:
			if removed, err := e.queue.remove(t); err != nil && !removed {
				return false, err
			}
			delete(e.choosing, id)
		case s.absent:
			delete(e.choosing, id)
		}
	}
	return len(e.choosing) > 0, nil
}

// nearest is how many of those before it each waiter keeps an eye on. The one in
// front also watches the holders.
const nearest = 16

// compare orders the tokens of waiters whose records are known.
func (e *entry) compare(a, b token) int {
	switch ra, rb := e.records[a.id], e.records[b.id]; {
	case ra.claim(a.ticket).Before(rb.claim(b.ticket)):
		return -1
	case rb.claim(b.ticket).Before(ra.claim(a.ticket)):
		return 1
	}
	return strings.Compare(a.id, b.id)
}

// survey finds out who holds and who waits before this entry. The dead are
// removed.
func (e *entry) survey(line []token) (v view, ahead []seat, err error) {
	var before, behind, holding []token
	names := make([]string, 0, len(line))
	for _, t := range line {
		names = append(names, t.String())
		switch {
		case t.id == e.token.id:
		case t.kind == holds:
			holding = append(holding, t)
		case t.kind == waits:
			rec, err := e.recordOf(t)
			if err != nil {
				return v, nil, err
			}
			if older(t, e.token) && !rec.NoWait {
				v.waiters++
			}
			if e.behind(t, &rec) {
				before = append(before, t)
			} else if older(t, e.token) && !rec.NoWait {
				behind = append(behind, t)
			}
		}
	}
	now := e.store.clock()
	slices.Sort(names)
	if listing := strings.Join(names, " "); listing != e.listing {
		e.listing, e.changed = listing, now
	}
	v.unchanged = now.Sub(e.changed)
	slices.SortFunc(before, e.compare)
	for i, t := range before {
		if i >= nearest && i < len(before)-nearest {
			ahead = append(ahead, seat{token: t, queue: e.queue, record: e.records[t.id]})
			continue
		}
		s, err := e.judge(t)
		if err != nil {
			return v, nil, err
		}
		if s.absent {
			if older(t, e.token) && !e.records[t.id].NoWait {
				v.waiters--
			}
			continue
		}
		ahead = append(ahead, s)
		if older(t, e.token) {
			v.rivals = append(v.rivals, s)
		}
	}
	if e.request.MaxQueue != nil && !e.settled { // with them too it counts, and perhaps nobody else looks after them
		for _, t := range behind {
			s, err := e.judge(t)
			if err != nil {
				return v, nil, err
			}
			if s.absent {
				v.waiters--
			}
		}
	}
	v.place = len(ahead) + 1
	// Who does not wait, or may replace somebody, wants to know the holders.
	if v.place <= 2 || e.request.NoWait || e.request.MaxQueue != nil || e.request.Replace != locks.ReplaceNone || len(e.request.Within) > 0 {
		for _, t := range holding {
			s, err := e.judge(t)
			if err != nil {
				return v, nil, err
			}
			if s.absent {
				continue
			}
			v.holders = append(v.holders, s)
			v.rivals = append(v.rivals, s)
		}
	}
	return v, ahead, nil
}

// recordOf gives the record of an entry, which is read once: what an entry brought
// with it does not change.
func (e *entry) recordOf(t token) (record, error) {
	if rec, ok := e.records[t.id]; ok {
		return rec, nil
	}
	_, rec, err := e.queue.readRecord(t.id)
	switch {
	case err == nil:
		e.records[t.id] = rec
	case errors.Is(err, fs.ErrNotExist) || err == errDamaged:
		err = nil
	}
	return rec, err
}

// behind reports whether this entry stands behind a waiter.
func (e *entry) behind(t token, rec *record) bool {
	mine, its := e.claim(), rec.claim(t.ticket)
	return its.Before(mine) || (!mine.Before(its) && t.id < e.token.id)
}

// older reports whether a was in the line before b, whatever their priorities.
func older(a, b token) bool {
	return a.ticket < b.ticket || (a.ticket == b.ticket && a.id < b.id)
}

// judge looks at an entry and removes it if it is dead.
func (e *entry) judge(t token) (seat, error) {
	s, err := e.watch.look(t)
	if err == nil && s.dead {
		s.absent = true
		var removed bool
		if removed, err = e.queue.remove(t); removed {
			err = nil // what is left of it counts for nothing
		}
	}
	return s, err
}

// take makes the entry a holder if the rule still holds when everybody can see
// that it is one.
func (e *entry) take(v view) (view, error) {
	q, at, clock := e.queue, e.store.at, e.store.clock
	slots := locks.FreeSlots(func(slot int) bool { return uses(v.holders, slot) }, e.record.Weight)
	at("fence")
	fence, err := q.nextFence()
	if err != nil {
		return v, err
	}
	at("write slots")
	e.record.Slots, e.record.Fence, e.record.Granted = slots, fence, clock()
	if err := e.sign(func(p pulse) error { return q.writeRecord(e.token.id, p, &e.record) }); err != nil {
		return v, err
	}
	at("hold")
	waiting := e.token
	if err := e.renameToken(waiting.as(holds)); err != nil {
		return v, err
	}
	at("held")
	fits, err := e.fits()
	if err == nil && fits {
		err = e.raiseFence()
	}
	// Told to go since it last looked: what it fits into may be free only because
	// of the one who told it.
	by, evicted := q.evictedBy(waiting.id)
	if err == nil && fits && !evicted && clock() < e.term.End() && !e.given.Load() {
		at("granted")
		v.granted = true
		return v, nil
	}
	at("step back")
	if back := e.renameToken(waiting); back != nil {
		return v, back
	}
	if evicted {
		return v, &locks.EvictedError{By: by}
	}
	v.passing = true
	return v, err
}

// raiseFence gives a holder a higher fence if others were given since it took its
// own: it may have been held up between the two, and they are over.
func (e *entry) raiseFence() error {
	last, _, err := lastFence(e.queue.path + "/" + fencesDir)
	if err != nil || last == e.record.Fence {
		return err
	}
	e.store.at("renumber")
	if e.record.Fence, err = e.queue.nextFence(); err != nil {
		return err
	}
	return e.sign(func(p pulse) error { return e.queue.writeRecord(e.token.id, p, &e.record) })
}

// fits looks, as a holder, at all other holders, and at who has come to wait
// before it since it looked last: it may have been held up for any time.
func (e *entry) fits() (bool, error) {
	line, err := e.queue.list()
	if err != nil {
		return false, e.queue.vanished(err)
	}
	var others []seat
	mine := false
	for _, t := range line {
		mine = mine || t == e.token
		if t.kind == waits && t.id != e.token.id {
			// Who does not wait sees a holder here, and goes.
			if rec, err := e.recordOf(t); err != nil || (!rec.NoWait && e.behind(t, &rec)) {
				return false, err
			}
		}
		if t.kind != holds || t.id == e.token.id {
			continue
		}
		s, err := e.judge(t)
		switch {
		case err != nil:
			return false, err
		case s.absent:
			continue
		}
		for _, slot := range e.record.Slots {
			if slices.Contains(s.record.Slots, slot) {
				return false, nil
			}
		}
		others = append(others, s)
	}
	if !mine {
		return false, errGone
	}
	return admits(others, e.claim()), nil
}

func uses(holders []seat, slot int) bool {
	return slices.ContainsFunc(holders, func(s seat) bool { return slices.Contains(s.record.Slots, slot) })
}
