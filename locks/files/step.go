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
	question queue.Question // if it has no Step, the step only reads the state
	member   member         // what the entry asks for, with its ticket and life if it has them
	entry    *entry         // the entry of this process that asks; nil if none does, as for a listing or another process's request

	mustExist   bool // the entry was in the queue: if it is not any more, the answer is Gone
	isList      bool // the step makes no version, and all that it reads is of one moment
	force       bool // the step makes a version even if nothing changes
	skipWaiters bool // the step observes waiters only if it does more than put its entry into the queue

	keep func(o *observedEntry) bool // reports which dead entries stay; nil if none stays
}

// step returns a step of the entry.
func (e *entry) step(kind queue.Step) *step {
	return &step{directory: e.dir, member: e.member, entry: e, question: queue.Question{Step: kind, Entry: e.member.Entry}}
}

// result is the decision of a step and its effect.
type result struct {
	queue.Decision
	view    queue.View // what the decision was made from
	state   *state     // the state after the step; nil if the step was not done
	version int64      // the number of the version with that state
	unsure  bool       // an attempt whose result is not known may have done the step

	observed map[string]*observedEntry // the entries that were observed, by ID
	dead     map[string]bool           // the IDs of dead entries, which are left out
	removed  map[string]bool           // the records of entries that have left the state
}

// A step pauses if another process has made the next version first. The pauses grow until all processes
// that came at the same time have had their turn. With a long queue, or on a busy machine, an attempt
// takes long.
const (
	shortestPause = 500 * time.Microsecond
	longestPause  = 64 * time.Millisecond
	pauseAttempts = 16 // if this number of attempts takes longer than longestPause, their time is the longest pause
)

// maxStale is the largest number of attempts of a step that may meet a file that another host is just
// removing.
const maxStale = 16

// decide repeats attempts until one succeeds: either it has made the next version, or its answer changes
// nothing and the version that it read is new enough.
func (p *step) decide(ctx context.Context) (r result, err error) {
	r.removed = map[string]bool{}
	pause := shortestPause
	stale := 0
	for {
		begin := time.Now()
		done, err := p.try(&r)
		if errors.Is(err, unix.ESTALE) && stale < maxStale {
			stale++
			done, err = false, nil
		}
		if err != nil {
			return r, err
		}
		took := time.Since(begin)
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
	p.removeRecords(&r)
	return r, nil
}

// removeRecords removes the records of the entries that have left the state. An entry does not come back
// with the same record.
func (p *step) removeRecords(r *result) {
	if len(r.removed) == 0 {
		return
	}
	inUse := r.state.records()
	for name := range r.removed {
		if !inUse[name] {
			_ = p.removeRecord(name) // if that fails, a sweep finds the record
		}
	}
}

// try makes one attempt. If done is false without an error, the step must be tried again.
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
		p.entry.request.Hooks.Answered()
	}
	r.observed = map[string]*observedEntry{}
	next, changed := s, false
	if p.question.Step != "" {
		next, changed, err = p.answer(s, r)
	}
	onlyQueues := r.Verdict == queue.Queued && len(r.Told) == 0 && len(r.removed) == 0
	if err == nil && p.skipWaiters && !onlyQueues {
		p.skipWaiters = false
		next, changed, err = p.answer(s, r)
	}
	if err != nil {
		return false, err
	}
	if p.isList || !changed && !p.force {
		r.state, r.version = s, l.highest
		return p.isNewEnough(l.highest)
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

// isNewEnough reports whether a step that changes nothing may rely on a version that it has read: whether only
// few versions have been made since, for a listing none.
func (p *step) isNewEnough(version int64) (bool, error) {
	tooMany := p.store.kept
	if p.isList {
		tooMany = 1
	}
	since, err := p.madeSince(version)
	return since >= 0 && since < tooMany, err
}

// answer decides the question in a state, and makes the next state. If the decision changes nothing, next
// need not be committed.
func (p *step) answer(s *state, r *result) (next *state, changed bool, err error) {
	v, err := p.view(s, r)
	if err != nil {
		return nil, false, err
	}
	if p.mustExist && v.Caller == nil {
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

// mustObserveAll reports whether the step observes all waiters: a listing and a sweep do, a step for which
// their number counts, and one that may replace them.
func (p *step) mustObserveAll() bool {
	q := &p.question
	mayReplace := q.Entry.Replace != locks.ReplaceNone && p.member.Claim.Ticket == 0
	return q.Step == queue.Look || q.MaxQueue != nil || mayReplace
}

// view returns what the decision sees of a state: all entries that are not dead. It notes in r which
// entries it has observed, and which are dead.
func (p *step) view(s *state, r *result) (v queue.View, err error) {
	needsAll := p.mustObserveAll()
	r.dead = map[string]bool{}
	v.Counter = max(s.counter, time.Now().UnixMicro())
	holders, others := s.byPlace()
	indexOfCaller := slices.IndexFunc(others, func(m *member) bool { return m.ID == p.member.ID })
	for i, m := range append(holders, others...) {
		index := i - len(holders) // the index in others
		isJustBefore := index < indexOfCaller && index >= indexOfCaller-queue.ObservedPlaces
		isSelected := needsAll || !p.skipWaiters && (index < queue.ObservedPlaces || isJustBefore)
		isCaller := m.ID == p.member.ID
		// An attached entry belongs to another process, which may be dead.
		isCallerHere := isCaller && p.entry != nil && !p.entry.attached
		mustObserve := m.hasSlots() || !isCallerHere && (isCaller || isSelected)
		if mustObserve && r.observed[m.ID] == nil {
			r.observed[m.ID], err = p.observe(m, p.isList)
			if err != nil {
				return v, err
			}
		}
		observed := r.observed[m.ID]
		isDead := observed != nil && observed.isDead && !isCallerHere
		if isDead && (p.keep == nil || !p.keep(observed)) {
			r.dead[m.ID] = true
			continue
		}
		e := m.Entry
		if isCaller {
			v.Caller = &e
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

// apply makes the state that a decision asks for, and notes in r which records it removes. counter is the
// counter of the view. changed reports whether the decision changes anything in s.
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
			n, stays = p.applyTo(m, e, r)
			changed = changed || !reflect.DeepEqual(m, n)
			delete(put, m.ID)
		}
		if m.ID == p.member.ID {
			n.life = max(m.life, p.member.life)
			hasHeard := m.State == queue.Tombstone && endsItself // the evicted waiter has noticed, so it needs no tombstone
			stays = stays && !hasHeard
		}
		if !stays || n.life != m.life {
			r.removed[m.record()] = true
			changed = true
		}
		if stays {
			next.entries = append(next.entries, n)
		}
	}
	e, isNew := put[p.member.ID]
	if isNew && e.State != queue.Tombstone {
		n, _ := p.applyTo(p.member, e, r)
		next.entries = append(next.entries, n)
		changed = true
	}
	return next, changed
}

// applyTo returns an entry as a decision has changed it, and whether it stays in the state.
func (p *step) applyTo(m member, e queue.Entry, r *result) (after member, stays bool) {
	before, observed := m.State, r.observed[m.ID]
	e.HoldLeft = 0 // each view finds it anew
	m.Entry, m.flaw, m.line = e, nil, ""
	switch e.State {
	case queue.Tombstone:
		m.Claim.Weight = 1                                   // a state has no entry without a weight
		return m, before == queue.Waiting && e.Evicted != "" // an evicted waiter has to find out who has evicted it
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
		mustNoteGrant := before != queue.Holding || isCallerHere && m.hold > 0
		if m.granted == 0 && sameClock && mustNoteGrant {
			m.granted = p.store.clock()
		}
		if m.ID == p.member.ID && p.question.Step == queue.Hold { // the hold counts from now
			m.granted, m.hold = p.store.clock(), p.entry.request.LaterHold()
		}
	}
	return m, true
}
