package files

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// step is what somebody wants to be done with an entry.
type step struct {
	*watch
	question queue.Question
	own      member                      // the entry; as it is to be if it is new
	foreign  bool                        // the entry may be dead: this is not its owner
	thorough bool                        // everybody is judged, not only those in front
	blind    bool                        // waiters are judged only if one of them gets a slot
	mustBe   bool                        // the entry is there, or nothing is done
	force    bool                        // a version is made also if nothing changes
	entry    *entry                      // of a join: whose it is
	spare    func(s *observedEntry) bool // of the dead; nil: nobody
}

// result is what a step came to.
type result struct {
	queue.Decision
	state   *state // that was true at the end
	version int64
	unsure  bool // an attempt whose end is not known may have done the step
	missing bool // mustBe, and the entry is not there

	observed map[string]*observedEntry // by ID: who was judged
	removed  map[string]bool           // the records of those who are gone
}

// nearest is how many of the first waiters, and of those before its own entry, a step
// judges.
const nearest = 4

// Pauses after a version was made by somebody else. They grow until all who come at
// once have room.
const (
	shortestPause = 500 * time.Microsecond
	longestPause  = 64 * time.Millisecond
)

// decide asks until the answer is true: the version that it was read from is still the
// highest, or the one that it needs could be made.
func (p *step) decide(ctx context.Context) (r result, err error) {
	r.removed = map[string]bool{}
	pause := shortestPause
	for {
		done, err := p.try(&r)
		if err != nil {
			return r, err
		}
		if done {
			break
		}
		if p.canBeFolded() {
			p.entry.ask()
		}
		lease.Pause(ctx, rand.N(pause))
		if pause = min(2*pause, longestPause); ctx.Err() != nil {
			return r, ctx.Err()
		}
	}
	if p.entry != nil {
		if err := p.entry.unask(); err != nil {
			return r, err
		}
	}
	// What has left a state does not come back with the same record.
	for name := range r.removed {
		if !r.state.has(name) {
			_ = p.removeRecord(name) // a sweep finds it
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
	s, l, text, err := h.current()
	if err != nil || s == nil {
		return false, err
	}
	version := l.highest
	r.observed = map[string]*observedEntry{}
	next, changed, err := p.answer(s, r)
	if err != nil {
		return false, err
	}
	if p.blind && (r.Verdict != lease.Queued || len(r.Told)+len(r.removed) > 0) {
		p.blind = false
		next, changed, err = p.answer(s, r)
		if err != nil {
			return false, err
		}
	}
	if !changed && !p.force {
		r.state, r.version = s, version
		return p.isHighest(version)
	}
	if next, err = p.fold(h, l, next, r); err != nil {
		return false, err
	}
	if p.entry != nil && next.find(p.own.id) != nil {
		if err := p.entry.create(); err != nil {
			return false, err
		}
	}
	done, unsure, err := h.commit(version, text, next)
	r.unsure = r.unsure || (unsure && !done)
	if done {
		r.state, r.version = next, version+1
	}
	return done, err
}

// answer makes the next state.
func (p *step) answer(s *state, r *result) (next *state, changed bool, err error) {
	v, dead, err := p.view(s, r)
	if err != nil {
		return nil, false, err
	}
	if r.missing = p.mustBe && v.Own == nil; r.missing {
		return s, false, nil
	}
	r.Decision = queue.Decide(v, p.question)
	next, changed = p.apply(s, &v, dead, r)
	return next, changed, nil
}

// current reads the highest version. There is no state if it went away meanwhile.
func (h *handle) current() (s *state, l listing, text []byte, err error) {
	if l, err = h.list(); err != nil {
		return nil, l, nil, err
	}
	name := versionName(l.highest)
	text, err = h.readVersion(l.highest)
	if err == unix.ENOENT {
		if latest, err := h.list(); err != nil || latest.highest > l.highest {
			return nil, l, nil, err
		}
		return nil, l, nil, h.damaged(name, unix.ENOENT)
	}
	if err != nil && err != errForeign {
		return nil, l, nil, h.fault("read", name, err)
	}
	if err == nil {
		s, err = parseState(text)
	}
	if err != nil {
		return nil, l, nil, h.damaged(name, err)
	}
	return s, l, text, nil
}

// read gives the present state without a decision. What f reads of it is as old.
func (d *directory) read(f func(*state) error) (s *state, version int64, err error) {
	for err == nil {
		var h *handle
		if h, err = d.open(); err != nil {
			break
		}
		var l listing
		s, l, _, err = h.current()
		h.close()
		if err != nil || s == nil {
			continue
		}
		if f != nil {
			if err = f(s); err != nil {
				break
			}
		}
		if same, err := d.isHighest(l.highest); same || err != nil {
			return s, l.highest, err
		}
	}
	return nil, 0, err
}

// view shows a state to the decision. Those who have died are left out, and told by ID.
func (p *step) view(s *state, r *result) (v queue.View, dead map[string]bool, err error) {
	dead = map[string]bool{}
	v.Counter = max(s.counter, time.Now().UnixMicro())
	var all, waiters []*member
	for i := range s.entries {
		if m := &s.entries[i]; m.state == queue.Waiting {
			waiters = append(waiters, m)
		} else {
			all = append(all, m)
		}
	}
	slices.SortFunc(waiters, inOrder)
	own, gone := slices.IndexFunc(waiters, func(m *member) bool { return m.id == p.own.id }), 0
	for i, m := range append(all, waiters...) {
		e, isOwn, place := m.entry(), m.id == p.own.id, i-len(all)
		judged := true
		switch {
		case isOwn && (m.state == queue.Waiting || m.state == queue.Gone):
			judged = p.foreign && m.state == queue.Waiting
		case m.state == queue.Waiting:
			judged = p.thorough || (!p.blind && (place < nearest || (place < own && place >= own-nearest)))
		case m.state == queue.Gone:
			gone++
			judged = p.thorough || (!p.blind && gone <= nearest)
		}
		seen := r.observed[m.id]
		if judged && seen == nil {
			if seen, err = p.judge(m); err != nil {
				return v, nil, err
			}
			r.observed[m.id] = seen
		}
		if judged && seen.dead && (!isOwn || p.foreign) && (p.spare == nil || !p.spare(seen)) {
			dead[m.id] = true
			continue
		}
		if isOwn {
			v.Own = &e
		}
		switch m.state {
		case queue.Gone:
		case queue.Waiting:
			v.Waiters = append(v.Waiters, e)
			if m.replace != locks.ReplaceNone {
				v.Replaceable = append(v.Replaceable, e)
			}
		default:
			e.Kept = seen.rest > 0
			if seen.left == 0 && e.Kept && (!isOwn || p.foreign) {
				e.State = queue.Ended
			}
			v.Holders = append(v.Holders, e)
		}
	}
	v.Total = len(v.Waiters)
	return v, dead, nil
}

// apply makes the next state of a decision.
func (p *step) apply(s *state, v *queue.View, dead map[string]bool, r *result) (next *state, changed bool) {
	next = &state{nonce: rand.Uint64(), counter: s.counter, entries: make([]member, 0, len(s.entries)+1)}
	if r.Counter > v.Counter {
		next.counter, changed = r.Counter, true
	}
	put := map[string]queue.Entry{}
	for _, e := range r.Put {
		put[e.ID] = e
	}
	ends := p.question.Step == lease.Release || p.question.Step == lease.Leave
	for _, m := range s.entries {
		n, stays := m, !dead[m.id]
		if e, ok := put[m.id]; ok {
			n, stays = p.changed(m, e, r)
			delete(put, m.id)
		}
		if m.id == p.own.id {
			n.life = max(m.life, p.own.life)
			stays = stays && (m.state != queue.Gone || !ends)
		}
		if !stays || n.life != m.life {
			r.removed[m.record()] = true
		}
		changed = changed || !stays || m != n
		if stays {
			next.entries = append(next.entries, n)
		}
	}
	if e, ok := put[p.own.id]; ok && e.State != queue.Gone {
		n, _ := p.changed(p.own, e, r)
		next.entries, changed = append(next.entries, n), true
	}
	return next, changed
}

// changed is an entry after a decision, and whether it stays.
func (p *step) changed(m member, e queue.Entry, r *result) (member, bool) {
	was := m.state
	m.state, m.ticket, m.evicted, m.fence, m.slots = e.State, e.Claim.Ticket, e.Evicted, e.Fence, locks.FormatSlots(e.Slots)
	seen := r.observed[m.id]
	switch e.State {
	case queue.Gone: // a waiter must hear by whom
		m = member{id: m.id, life: m.life, state: queue.Gone, ticket: m.ticket, weight: 1, evicted: e.Evicted, ttl: m.ttl}
		return m, was == queue.Waiting && e.Evicted != ""
	case queue.Ended:
		if seen != nil && was == queue.Holding {
			m.rest = seen.rest
		}
	case queue.Offered, queue.Holding:
		m.state = queue.Holding
		isOwn := m.id == p.own.id && p.entry != nil
		mine := isOwn || (seen != nil && seen.record.Clock != "" && seen.record.Clock == p.store.clockName())
		if m.granted == 0 && mine && (was != queue.Holding || (isOwn && m.hold > 0)) {
			m.granted = p.store.clock()
		}
	}
	return m, true
}
