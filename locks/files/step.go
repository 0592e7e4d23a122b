package files

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// step is a question about an entry, to be decided and committed as a version.
type step struct {
	*directory
	question queue.Question // none: the state is only read
	member   member         // the entry; as it is to be if it is new
	entry    *entry         // the entry that asks; nil if none does

	mustExist   bool // the entry was in the queue: if it is not any more, nothing is done
	isList      bool // no version is made, and what is read is of one moment
	force       bool // a version is made even if nothing changes
	skipWaiters bool // waiters are observed only if not all just wait on

	keep func(o *observedEntry) bool // which dead entries stay; nil if none does
}

// step is one of the entry.
func (e *entry) step(how queue.Step) *step {
	return &step{directory: e.dir, member: e.member, entry: e, question: queue.Question{Step: how, Entry: e.member.Entry}}
}

// result is what a step came to.
type result struct {
	queue.Decision
	view    queue.View
	state   *state // that was true at the end
	version int64
	unsure  bool // an attempt whose end is not known may have done the step

	observed map[string]*observedEntry // by ID
	dead     map[string]bool           // IDs of those that are left out, as they have died
	removed  map[string]bool           // records of entries that are gone
}

// Pauses after somebody else made the version. They grow until all that come at once have
// room: with a long queue or on a busy machine an attempt takes long.
const (
	shortestPause = 500 * time.Microsecond
	longestPause  = 64 * time.Millisecond
	pauseAttempts = 16 // the longest pause is the time of this number of attempts, if they take longer
)

// maxStale is how many attempts of a step may meet a file that another host is just removing.
const maxStale = 16

// decide repeats attempts until the answer is true: it is that of a version that cannot
// have been removed since, or the next one could be made.
func (p *step) decide(ctx context.Context) (r result, err error) {
	r.removed = map[string]bool{}
	pause := shortestPause
	for stale := 0; ; {
		begun := time.Now()
		done, err := p.try(&r)
		if errors.Is(err, unix.ESTALE) && stale < maxStale {
			stale++
			done, err = false, nil
		}
		if err != nil {
			return r, err
		}
		took := time.Since(begun)
		if done {
			break
		}
		if p.canBeRequested() {
			p.entry.putRequest()
		}
		lease.Pause(ctx, rand.N(pause))
		if pause = min(2*pause, max(longestPause, pauseAttempts*took)); ctx.Err() != nil {
			return r, ctx.Err()
		}
	}
	// An entry that has left a state does not come back with the same record.
	records := map[string]bool{}
	if len(r.removed) > 0 {
		records = r.state.records()
	}
	for name := range r.removed {
		if !records[name] {
			_ = p.removeRecord(name) // if that fails, a sweep finds it
		}
	}
	return r, nil
}

// try is one attempt.
func (p *step) try(r *result) (done bool, err error) {
	h, err := p.open()
	if err != nil {
		return false, err
	}
	defer h.close()
	s, l, err := h.current()
	if err != nil || s == nil {
		return false, err
	}
	if p.entry != nil {
		p.entry.noteAnswer()
	}
	r.observed = map[string]*observedEntry{}
	next, changed := s, false
	if p.question.Step != "" {
		next, changed, err = p.answer(s, r)
	}
	if err == nil && p.skipWaiters && (r.Verdict != queue.Queued || len(r.Told)+len(r.removed) > 0) {
		p.skipWaiters = false
		next, changed, err = p.answer(s, r)
	}
	if err != nil {
		return false, err
	}
	if p.isList || !changed && !p.force {
		r.state, r.version = s, l.highest
		allowed := p.store.kept
		if p.isList {
			allowed = 1
		}
		since, err := p.madeSince(l.highest)
		return since >= 0 && since < allowed, err
	}
	if next, err = p.admitRequests(h, l, next, r); err != nil {
		return false, err
	}
	if p.question.Step == queue.Join && next.find(p.member.ID) != nil {
		if err := p.entry.create(); err != nil {
			return false, err
		}
	}
	done, err = h.commit(l.highest, next)
	if err == errTaken {
		return false, nil
	}
	r.unsure = r.unsure || !done
	if done {
		r.state, r.version = next, l.highest+1
	}
	return done, err
}

// answer makes the next state.
func (p *step) answer(s *state, r *result) (next *state, changed bool, err error) {
	v, err := p.view(s, r)
	if err != nil {
		return nil, false, err
	}
	if p.mustExist && v.Own == nil {
		r.Decision = queue.Decision{Outcome: queue.Outcome{Verdict: queue.Gone}}
		return s, false, nil
	}
	v.Invalid = p.invalid(s, r.dead)
	r.view, r.Decision = v, queue.Decide(v, p.question)
	if len(r.Invalid) > 0 {
		return nil, false, lease.Invalid(r.Invalid)
	}
	next, changed = p.apply(s, v.Counter, r)
	return next, changed, nil
}

// view shows a state to the decision, without the entries that have died.
func (p *step) view(s *state, r *result) (v queue.View, err error) {
	// It observes all waiters if their number counts, or if it replaces or sweeps them.
	q := &p.question
	all := q.Step == queue.Look || q.MaxQueue != nil || q.Entry.Replace != locks.ReplaceNone && p.member.Claim.Ticket == 0
	r.dead = map[string]bool{}
	v.Counter = max(s.counter, time.Now().UnixMicro())
	var holders, others []*member
	for i := range s.entries {
		if m := &s.entries[i]; m.hasSlots() {
			holders = append(holders, m)
		} else {
			others = append(others, m)
		}
	}
	slices.SortFunc(others, inOrder)
	own := slices.IndexFunc(others, func(m *member) bool { return m.ID == p.member.ID })
	for i, m := range append(holders, others...) {
		place := i - len(holders)
		near := place < queue.ObservedPlaces || (place < own && place >= own-queue.ObservedPlaces)
		isOwn := m.ID == p.member.ID
		mine := isOwn && p.entry != nil && !p.entry.attached // another process may be dead
		if m.hasSlots() || !mine && (isOwn || all || near && !p.skipWaiters) {
			if r.observed[m.ID] == nil {
				if r.observed[m.ID], err = p.observe(m, p.isList); err != nil {
					return v, err
				}
			}
		}
		seen := r.observed[m.ID]
		if seen != nil && seen.dead && !mine && (p.keep == nil || !p.keep(seen)) {
			r.dead[m.ID] = true
			continue
		}
		e := m.Entry
		if isOwn {
			v.Own = &e
		}
		switch {
		case m.hasSlots():
			e.HoldLeft = seen.holdLeft
			if seen.ttlLeft == 0 && e.HoldLeft > 0 && !mine {
				e.State = queue.Ended
			}
			v.Holders = append(v.Holders, e)
		case m.State == queue.Waiting:
			v.Waiters = append(v.Waiters, e)
			if m.Replace != locks.ReplaceNone {
				v.Replaceable = append(v.Replaceable, e)
			}
		}
	}
	v.Total = len(v.Waiters)
	return v, nil
}

// apply makes the next state of a decision.
func (p *step) apply(s *state, counter int64, r *result) (next *state, changed bool) {
	next = &state{nonce: rand.Uint64(), counter: s.counter, extra: s.extra, entries: make([]member, 0, len(s.entries)+1)}
	if r.Counter > counter {
		next.counter, changed = r.Counter, true
	}
	put := map[string]queue.Entry{}
	for _, e := range r.Put {
		put[e.ID] = e
	}
	ends := p.question.Step == queue.Release || p.question.Step == queue.Leave
	for _, m := range s.entries {
		n, stays := m, !r.dead[m.ID]
		if e, ok := put[m.ID]; ok {
			n, stays = p.changed(m, e, r)
			changed = changed || !reflect.DeepEqual(m, n)
			delete(put, m.ID)
		}
		if m.ID == p.member.ID {
			n.life = max(m.life, p.member.life)
			stays = stays && (m.State != queue.Tombstone || !ends)
		}
		if !stays || n.life != m.life {
			r.removed[m.record()], changed = true, true
		}
		if stays {
			next.entries = append(next.entries, n)
		}
	}
	if e, ok := put[p.member.ID]; ok && e.State != queue.Tombstone {
		n, _ := p.changed(p.member, e, r)
		next.entries, changed = append(next.entries, n), true
	}
	return next, changed
}

// changed is an entry after a decision, and whether it stays.
func (p *step) changed(m member, e queue.Entry, r *result) (member, bool) {
	was, seen := m.State, r.observed[m.ID]
	e.HoldLeft = 0 // that is asked anew each time
	m.Entry, m.flaw, m.line = e, nil, ""
	switch e.State {
	case queue.Tombstone: // a waiter must hear by whom
		m.Claim.Weight = 1 // each entry in a state has one
		return m, was == queue.Waiting && e.Evicted != ""
	case queue.Ended:
		if seen != nil && was == queue.Holding {
			m.rest = seen.holdLeft
		}
	case queue.Offered, queue.Holding: // an offer is a grant here
		m.State = queue.Holding
		mine := m.ID == p.member.ID && p.entry != nil && p.question.Step == queue.Join
		sameClock := mine || seen != nil && seen.sameClock
		// A hold is worth a version of its own, in which the holder notes a grant from another clock.
		if m.granted == 0 && sameClock && (was != queue.Holding || mine && m.hold > 0) {
			m.granted = p.store.clock()
		}
		if m.ID == p.member.ID && p.question.Step == queue.Hold { // the hold counts from now
			m.granted, m.hold = p.store.clock(), p.entry.request.LaterHold()
		}
	}
	return m, true
}
