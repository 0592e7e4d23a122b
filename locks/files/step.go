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
	question queue.Question // without a Step, the state is only read
	member   member         // the entry, as a newcomer asks to be
	entry    *entry         // the entry that asks; nil if none does

	mustExist   bool // the entry was in the queue: if it is not any more, nothing is done
	isList      bool // no version is made, and what is read is of one moment
	force       bool // a version is made even if nothing changes
	skipWaiters bool // waiters are observed only if the step does more than queue

	keep func(o *observedEntry) bool // which dead entries stay; nil if none does
}

// step returns a step of the entry.
func (e *entry) step(how queue.Step) *step {
	return &step{directory: e.dir, member: e.member, entry: e, question: queue.Question{Step: how, Entry: e.member.Entry}}
}

// result is what a step came to.
type result struct {
	queue.Decision
	view    queue.View
	state   *state // the state after the step
	version int64
	unsure  bool // an attempt whose result is not known may have done the step

	observed map[string]*observedEntry // the entries that were observed, by ID
	dead     map[string]bool           // the IDs of dead entries, which are left out
	removed  map[string]bool           // the records of entries that have left the state
}

// The pauses after another process has made the next version first. They grow until all processes that
// come at once have had their turn: with a long queue or on a busy machine an attempt takes long.
const (
	shortestPause = 500 * time.Microsecond
	longestPause  = 64 * time.Millisecond
	pauseAttempts = 16 // if an attempt takes long, the longest pause is the time of this number of attempts
)

// maxStale is the largest number of attempts of a step that may meet a file that another host is just
// removing.
const maxStale = 16

// decide repeats attempts until the answer is true: either the next version could be made, or the
// answer changes nothing and the version that was read is still the latest one.
func (p *step) decide(ctx context.Context) (r result, err error) {
	r.removed = map[string]bool{}
	pause := shortestPause
	stale := 0
	for {
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
		pause = min(2*pause, max(longestPause, pauseAttempts*took))
		if ctx.Err() != nil {
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
	next, err = p.admitRequests(h, l, next, r)
	if err != nil {
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
	needsAll := q.Step == queue.Look || q.MaxQueue != nil || q.Entry.Replace != locks.ReplaceNone && p.member.Claim.Ticket == 0
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
	placeOfCaller := slices.IndexFunc(others, func(m *member) bool { return m.ID == p.member.ID })
	for i, m := range append(holders, others...) {
		place := i - len(holders)
		isJustBefore := place < placeOfCaller && place >= placeOfCaller-queue.ObservedPlaces
		isObserved := needsAll || !p.skipWaiters && (place < queue.ObservedPlaces || isJustBefore)
		isCaller := m.ID == p.member.ID
		// An attached entry belongs to another process, which may be dead.
		isCallerHere := isCaller && p.entry != nil && !p.entry.attached
		mustObserve := m.hasSlots() || !isCallerHere && (isCaller || isObserved)
		if mustObserve && r.observed[m.ID] == nil {
			r.observed[m.ID], err = p.observe(m, p.isList)
			if err != nil {
				return v, err
			}
		}
		observed := r.observed[m.ID]
		if observed != nil && observed.isDead && !isCallerHere && (p.keep == nil || !p.keep(observed)) {
			r.dead[m.ID] = true
			continue
		}
		e := m.Entry
		if isCaller {
			v.Own = &e
		}
		switch {
		case m.hasSlots():
			e.HoldLeft = observed.holdLeft
			if observed.ttlLeft == 0 && e.HoldLeft > 0 && !isCallerHere {
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

// apply makes the state that a decision asks for.
func (p *step) apply(s *state, counter int64, r *result) (next *state, changed bool) {
	next = &state{nonce: rand.Uint64(), counter: s.counter, extra: s.extra, entries: make([]member, 0, len(s.entries)+1)}
	if r.Counter > counter {
		next.counter, changed = r.Counter, true
	}
	put := map[string]queue.Entry{}
	for _, e := range r.Put {
		put[e.ID] = e
	}
	endsItself := p.question.Step == queue.Release || p.question.Step == queue.Leave
	for _, m := range s.entries {
		n, stays := m, !r.dead[m.ID]
		if e, ok := put[m.ID]; ok {
			n, stays = p.changed(m, e, r)
			changed = changed || !reflect.DeepEqual(m, n)
			delete(put, m.ID)
		}
		if m.ID == p.member.ID {
			n.life = max(m.life, p.member.life)
			stays = stays && (m.State != queue.Tombstone || !endsItself)
		}
		if !stays || n.life != m.life {
			r.removed[m.record()] = true
			changed = true
		}
		if stays {
			next.entries = append(next.entries, n)
		}
	}
	if e, ok := put[p.member.ID]; ok && e.State != queue.Tombstone {
		n, _ := p.changed(p.member, e, r)
		next.entries = append(next.entries, n)
		changed = true
	}
	return next, changed
}

// changed returns an entry after a decision, and whether it stays in the state.
func (p *step) changed(m member, e queue.Entry, r *result) (after member, stays bool) {
	before, observed := m.State, r.observed[m.ID]
	e.HoldLeft = 0 // each view finds it anew
	m.Entry, m.flaw, m.line = e, nil, ""
	switch e.State {
	case queue.Tombstone:
		m.Claim.Weight = 1                                   // a state has no entry without a weight
		return m, before == queue.Waiting && e.Evicted != "" // the waiter must hear who has evicted it
	case queue.Ended:
		if observed != nil && before == queue.Holding {
			m.rest = observed.holdLeft
		}
	case queue.Offered, queue.Holding: // an offer is a grant here
		m.State = queue.Holding
		isCallerHere := m.ID == p.member.ID && p.entry != nil && p.question.Step == queue.Join
		sameClock := isCallerHere || observed != nil && observed.sameClock
		// If another process has granted the slot, on another clock, the holder notes the moment itself.
		// That takes another version, so it is done only for a hold.
		if m.granted == 0 && sameClock && (before != queue.Holding || isCallerHere && m.hold > 0) {
			m.granted = p.store.clock()
		}
		if m.ID == p.member.ID && p.question.Step == queue.Hold { // the hold counts from now
			m.granted, m.hold = p.store.clock(), p.entry.request.LaterHold()
		}
	}
	return m, true
}
