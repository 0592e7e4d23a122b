package etcd

import (
	"context"
	"math"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/network"
	"golock/locks/queue"
)

// nearPlaces are the first places of a queue: whoever is there watches the whole lock, and decides by
// what it has seen. One that is further back watches the waiter so many places before it.
const nearPlaces = 2

// passOver is how long a waiter at the front may leave a slot that it could have. Then it counts as
// dead, and the one behind it takes the slot. If it is only slow it keeps its place.
const passOver = time.Second

// maxGrantAge limits the age of a lease with which a slot is taken, as on Redis: what is left must
// outlast an outage that begins then.
func maxGrantAge(ttl time.Duration) time.Duration { return queue.AskEvery(ttl) - ttl/20 }

// prolongAfter is the age of a lease from which a waiter prolongs it.
func prolongAfter(ttl time.Duration) time.Duration { return queue.AskEvery(ttl) - ttl/30 }

// join enters the queue, or looks whether it is the entry's turn.
func (e *entry) join(ctx context.Context, l *link) (a lease.Answer, err error) {
	if e.created == 0 {
		return e.enter(ctx, l)
	}
	if e.store.clock().Sub(e.asked) >= prolongAfter(e.ttl) {
		ok, err := e.prolong(ctx, l)
		if err != nil {
			return a, err
		}
		if !ok { // it was taken for dead: it comes back with its ticket
			return e.enter(ctx, l)
		}
	}
	if e.isStill(l) {
		return e.queued(e.place, false), nil
	}
	s := e.seen(l)
	if s == nil {
		o, err := l.ask(ctx, e.questions()...)
		if err != nil {
			return a, err
		}
		s = e.readState(e.ref.Key, &o)
	}
	return e.settle(ctx, l, s)
}

// enter makes an entry in the queue, or takes a slot at once.
func (e *entry) enter(ctx context.Context, l *link) (a lease.Answer, err error) {
	e.stopWatch()
	e.created, e.asked = 0, 0
	var s *state
	read := func() error {
		o, err := l.ask(ctx, e.questions()...)
		if err == nil {
			s = e.readState(e.ref.Key, &o)
			e.answered()
		}
		return err
	}
	if e.request.NoWait { // most who do not wait get nothing, and need no lease
		err = read()
	} else {
		err = inParallel(func() error { return e.hasLease(ctx, l) }, read)
	}
	for try := 0; err == nil && ctx.Err() == nil; try++ {
		d := e.decide(s, "")
		if len(d.Invalid) > 0 {
			e.revokeLater(l)
			return a, lease.Invalid(d.Invalid)
		}
		own, isThere := s.own(e.id)
		switch {
		case d.Verdict == queue.Granted && isThere: // the answer to an attempt that took it was lost
			return e.taken(ctx, l, s, own)
		case d.Verdict == queue.Queued && isThere: // likewise
			return e.settle(ctx, l, s)
		case d.Verdict != queue.Granted && d.Verdict != queue.Queued:
			return e.refused(ctx, l, s, &d)
		}
		var done bool
		if a, s, done, err = e.insert(ctx, l, s, &d, try); done || err != nil {
			return a, err
		}
	}
	if err == nil {
		err = ctx.Err()
	}
	return a, err
}

// isPlain reports whether a request may wait in any queue: how long it is, and who is in it, does not
// matter.
func (e *entry) isPlain() bool {
	r := &e.request
	return !r.NoWait && r.MaxQueue == nil && r.Replace == locks.ReplaceNone && len(r.Within) == 0
}

// insert makes what a decision about a new entry says true, if nothing has changed since. A plain
// request queues in any case. done: a is the answer. Otherwise next is the state to decide with.
func (e *entry) insert(ctx context.Context, l *link, s *state, d *queue.Decision, try int) (a lease.Answer, next *state, done bool, err error) {
	if e.asked == 0 {
		if err := e.hasLease(ctx, l); err != nil {
			return a, nil, false, err
		}
	}
	var reads []operation
	for _, q := range e.questions() {
		reads = append(reads, get(q))
	}
	now := e.store.clock()
	e.record.Since = now
	waiting := put(e.waiter(&e.want), e.record.text(now), e.ownLease)
	t := transaction{other: reads}
	takes := d.Verdict == queue.Granted
	switch {
	case takes:
		t.conditions = append(s.slotsTaken(&d.Entry), unchanged(e.all(), s.revision))
	case !e.isPlain():
		t.conditions = append(s.stillHeld(), unchanged(e.all(), s.revision))
	case try < strictTries:
		t.conditions = s.stillHeld()
	}
	if takes {
		taking, err := e.takingOperations(ctx, l, &d.Entry)
		if err != nil {
			return a, nil, false, err
		}
		t.then = append(s.evictions(d, e.evictor), taking...)
		if e.isPlain() {
			t.other = append([]operation{waiting}, reads...)
		}
	} else {
		t.then = append(s.evictions(d, e.evictor), waiting)
		t.then = append(t.then, reads...)
	}
	o, err := l.commit(ctx, t)
	if isStatus(err, noLease) || isStatus(err, noKey) { // one that is evicted has just gone, or the own lease
		e.asked = 0
		o, err = l.ask(ctx, e.questions()...)
		return a, e.readState(e.ref.Key, &o), false, err
	}
	if err != nil {
		return a, nil, false, err
	}
	if o.succeeded && takes {
		return e.holds(&o, &d.Entry, s, d.Replaced), nil, true, nil
	}
	if len(o.answers) != len(reads) {
		return a, nil, false, network.Damaged("%d answers to %d questions", len(o.answers), len(reads))
	}
	next = e.readState(e.ref.Key, &o)
	if !o.succeeded && !(takes && e.isPlain()) {
		return a, next, false, nil
	}
	a, err = e.settle(ctx, l, next)
	if o.succeeded {
		a.Replaced = e.described(s, d.Replaced)
	}
	return a, next, true, err
}

// strictTries is how often a request that has to queue makes sure that it still has to. After that it
// queues anyhow, and finds out: where slots change hands all the time it would never come to an end.
const strictTries = 2

// maxConditions is how many holders a transaction is conditional on: etcd allows 128 conditions
// (--max-txn-ops).
const maxConditions = 60

// slotsTaken are the conditions that the slots below those that an entry is given are still taken. No
// other condition notices a key that is gone.
func (s *state) slotsTaken(e *queue.Entry) (all []condition) {
	if len(e.Slots) == 0 {
		return nil
	}
	highest := e.Slots[len(e.Slots)-1]
	for _, h := range s.holdersNow() {
		if len(h.Slots) > 0 && h.Slots[0] < highest && len(all) < maxConditions {
			all = append(all, s.holdsStill(&h))
		}
	}
	return all
}

// stillHeld are the conditions that all who hold do so.
func (s *state) stillHeld() (all []condition) {
	for _, h := range s.holdersNow() {
		if len(all) < maxConditions {
			all = append(all, s.holdsStill(&h))
		}
	}
	return all
}

func (s *state) holdsStill(h *queue.Entry) condition {
	if h.State == queue.Ended {
		return createdAt(s.hold(h.ID), h.Fence)
	}
	return createdAt(s.holder(h.ID), h.Fence)
}

// decide asks what becomes of the entry.
func (e *entry) decide(s *state, absent string) queue.Decision {
	r := &e.request
	q := queue.Question{
		Step: queue.Join, Entry: e.want, NoWait: r.NoWait, Within: queue.Enclosing(*r), By: e.evictor,
	}
	if e.want.Claim.Ticket == 0 {
		q.MaxQueue = r.MaxQueue
	}
	return queue.Decide(s.view(e.id, r.Name, absent), q)
}

// own gives the entry of an ID as a holder or waiter.
func (s *state) own(id string) (own queue.Entry, isThere bool) {
	if p, ok := s.holders[id]; ok {
		r, _ := parseRecord(p.value, s.key)
		own, _ = r.entry(id, p.created)
		return own, true
	}
	for _, e := range s.waiters {
		if e.ID == id {
			return e, true
		}
	}
	return own, false
}

// settle finds the entry's place in a state in which it has one, and takes a slot if it is its turn.
func (e *entry) settle(ctx context.Context, l *link, s *state) (a lease.Answer, err error) {
	for ctx.Err() == nil {
		own, isThere := s.own(e.id)
		switch by, evicted := s.tombs[e.id]; {
		case evicted:
			a.Verdict, a.By = queue.Evicted, by
			return a, nil
		case !isThere: // its lease has ended
			return e.enter(ctx, l)
		case own.State == queue.Holding:
			return e.taken(ctx, l, s, own)
		}
		key := s.keyOf(e.id)
		e.key, e.created, e.want.Claim.Ticket = key, own.Fence, own.Claim.Ticket
		place, before := s.place(e.id)
		e.follow(l, s, place, before)
		if place > nearPlaces {
			return e.queued(place, false), nil
		}
		d := e.decide(s, e.absent())
		switch {
		case len(d.Invalid) > 0:
			return a, lease.Invalid(d.Invalid)
		case d.Verdict == queue.Queued:
			e.noteFront(d.Due)
			return e.queued(place, d.Due != ""), nil
		case d.Verdict != queue.Granted:
			return e.refused(ctx, l, s, &d)
		}
		next, a, err := e.take(ctx, l, s, &d.Entry)
		if next == nil {
			return a, err
		}
		s = next
	}
	return a, ctx.Err()
}

// noteFront notes who could have a slot and does not take it.
func (e *entry) noteFront(id string) {
	if id != e.front {
		e.front, e.since = id, e.store.clock()
	}
}

// absent is the waiter at the front if it has not taken its turn for too long.
func (e *entry) absent() string {
	if e.front == "" || e.store.clock().Sub(e.since) < passOver {
		return ""
	}
	return e.front
}

// queued is the answer to who waits on.
func (e *entry) queued(place int, isDue bool) (a lease.Answer) {
	a.Verdict, a.Place = queue.Queued, place
	left := e.asked.Add(queue.AskEvery(e.ttl)).Sub(e.store.clock())
	if isDue {
		left = min(left, e.since.Add(passOver).Sub(e.store.clock()))
	}
	a.Nap = queue.Nap{For: max(left, time.Millisecond), KeepsConnection: true}
	return a
}

// take takes a slot, if no holder has changed since the state, and the entry still waits: that is the
// proof, too, that its lease has not ended. Otherwise next is the state to decide with.
func (e *entry) take(ctx context.Context, l *link, s *state, want *queue.Entry) (next *state, a lease.Answer, err error) {
	ok := true
	prolong := func() error { return nil }
	if e.store.clock().Sub(e.asked) > maxGrantAge(e.ttl) {
		prolong = func() (err error) {
			ok, err = e.prolong(ctx, l)
			return err
		}
	}
	then, err := e.takingOperations(ctx, l, want)
	if err != nil {
		return nil, a, err
	}
	t := transaction{
		conditions: append(s.slotsTaken(want), unchanged(e.holders(), s.revision), createdAt(e.key, e.created)),
		then:       append(then, remove(span{from: e.key})),
	}
	for _, q := range e.questions() {
		t.other = append(t.other, get(q))
	}
	var o outcome
	err = inParallel(prolong, func() (err error) {
		o, err = l.commit(ctx, t)
		return err
	})
	switch {
	case err != nil:
		e.forget() // what has become of it is read
		return nil, a, err
	case !o.succeeded:
		return e.readState(e.ref.Key, &o), a, nil
	case !ok: // it ended just after it had the slot
		e.forget()
		return nil, a, lease.NoAnswer{}
	}
	return nil, e.holds(&o, want, s, nil), nil
}

// takingOperations make a holder. Its hold is on a lease of its own, which begins now.
func (e *entry) takingOperations(ctx context.Context, l *link, want *queue.Entry) (all []operation, err error) {
	now := e.store.clock()
	r := e.record.holds(want)
	r.Since = now
	text := r.text(now)
	all = []operation{put(e.holder(e.id), text, e.ownLease)}
	hold := e.request.Hold
	if hold <= 0 {
		return all, nil
	}
	seconds := hold / time.Second
	if hold%time.Second > 0 {
		seconds++
	}
	if _, err := l.grant(ctx, e.holdLease, min(seconds, maxLease)*time.Second); err != nil {
		return nil, err
	}
	return append(all, put(e.hold(e.id), text, e.holdLease)), nil
}

// maxLease is the longest lease of etcd that a duration can express, in seconds.
const maxLease = math.MaxInt64 / time.Second

// holds is the answer to a transaction that has taken a slot: its revision is the fence.
func (e *entry) holds(o *outcome, want *queue.Entry, s *state, replaced []queue.Entry) (a lease.Answer) {
	a.Replaced = e.described(s, replaced)
	e.stopWatch()
	e.created, e.granted = 0, e.store.clock()
	a.Verdict, a.TTL, a.Epoch = queue.Granted, e.ttl, epochOf(o.cluster)
	a.Grant = locks.Grant{Ref: e.ref, Slots: want.Slots, Fence: o.revision}
	return a
}

// taken is the answer to who has a slot already. How old its lease is, is not known.
func (e *entry) taken(ctx context.Context, l *link, s *state, own queue.Entry) (a lease.Answer, err error) {
	if own.Evicted != "" {
		a.Verdict, a.By = queue.Evicted, own.Evicted
		return a, nil
	}
	if own.State != queue.Holding {
		a.Verdict = queue.Lost
		return a, nil
	}
	ok, err := e.prolong(ctx, l)
	if err == nil && !ok {
		err = lease.NoAnswer{}
	}
	if err != nil {
		return a, err
	}
	return e.holds(&outcome{header: header{cluster: s.cluster, revision: own.Fence}}, &own, s, nil), nil
}

// refused is the answer to who gets no slot and no place.
func (e *entry) refused(ctx context.Context, l *link, s *state, d *queue.Decision) (a lease.Answer, err error) {
	a.Outcome = d.Outcome
	if d.Verdict == queue.Busy || d.Verdict == queue.Nested {
		a.Holders, err = e.store.describe(ctx, l, s, e.request.Name, d.Holders)
	}
	e.revokeLater(l)
	return a, err
}

// revokeLater ends the lease of a request that has no entry. Nobody waits for that: without it the
// lease ends by itself.
func (e *entry) revokeLater(l *link) {
	e.stopWatch()
	if e.asked != 0 {
		e.asked = 0
		_, _ = l.begin("Lease/LeaseRevoke", message(nil).number(1, e.ownLease), true)
	}
}

// evictions are what makes the evictions of a decision true.
func (s *state) evictions(d *queue.Decision, by string) (all []operation) {
	for _, one := range d.Replaced {
		if t, _, done := s.eviction(one.ID, by); !done {
			all = append(all, t.then...)
		}
	}
	return all
}

// described shows entries of a state as a listing does.
func (e *entry) described(s *state, all []queue.Entry) (shown []locks.Entry) {
	for i := range all {
		shown = append(shown, s.show(&all[i], e.request.Name, e.store.boot(), e.store.clock()))
	}
	return shown
}
