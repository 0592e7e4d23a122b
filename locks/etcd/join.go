package etcd

import (
	"context"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// nearPlaces is the number of waiters at the front that watch the whole lock, and decide by what they have
// seen. A waiter further back watches as many waiters directly before it.
const nearPlaces = 2

// maxGrantAge limits the age of a lease with which a slot is taken, as on Redis: what is left must
// outlast an outage that begins then.
func maxGrantAge(ttl time.Duration) time.Duration { return queue.AskEvery(ttl) - ttl/20 }

// join makes the entry join the queue, or take its slot if it is its turn.
func (e *entry) join(ctx context.Context, l *link) (a lease.Answer, err error) {
	if e.created == 0 {
		return e.enter(ctx, l)
	}
	if e.store.clock().Sub(e.leaseFrom) >= prolongAfter(e.ttl) {
		leaseExists, err := e.prolongWaiter(ctx, l)
		if err != nil {
			return a, err
		}
		if !leaseExists { // the lease has ended: the entry rejoins with its ticket
			return e.enter(ctx, l)
		}
	}
	if e.hasNoNews(l) {
		return e.answerQueued(e.place, false), nil
	}
	s := e.watchedState(l)
	if s == nil {
		s, err = e.look(ctx, l)
		if err != nil {
			return a, err
		}
	}
	return e.settle(ctx, l, s)
}

// enter makes an entry in the queue, or takes a slot at once.
func (e *entry) enter(ctx context.Context, l *link) (a lease.Answer, err error) {
	e.stopWatch()
	e.created, e.leaseFrom = 0, 0
	e.noteFront("")
	var s *state
	read := func() (err error) {
		s, err = e.look(ctx, l)
		if err == nil {
			e.request.Hooks.Answered()
		}
		return err
	}
	if e.request.NoWait { // most requests that do not wait get no slot, and need no lease
		err = read()
	} else {
		err = inParallel(func() error { return e.makeLease(ctx, l) }, read)
	}
	if err == nil {
		e.prepareToRejoin(s)
	}
	for try := 0; err == nil && ctx.Err() == nil; try++ {
		d := e.decide(s, e.absent())
		if len(d.Invalid) > 0 {
			return a, e.refuseInvalid(ctx, l, s, &d)
		}
		_, exists := s.find(e.id)
		hasRoomBesideFront := e.hasRoomBesideFront(s, &d)
		if hasRoomBesideFront {
			e.postponeRefusal(d.Due)
		}
		switch {
		case hasRoomBesideFront && e.store.clock() < e.refuseAt:
			s, err = e.awaitFront(ctx, l, s)
			continue
		case d.Verdict != queue.Granted && d.Verdict != queue.Queued:
			return e.answerRefused(ctx, l, s, &d)
		case exists: // the answer to an attempt that queued, or took a slot, was lost
			return e.settle(ctx, l, s)
		}
		if e.store.clock() < e.takeFrom {
			d.Verdict = queue.Queued
		}
		if n := s.firstEvictions(d.Replaced); n < len(d.Replaced) {
			s, err = e.evictFirst(ctx, l, s, d.Replaced[:n])
			continue
		}
		var done bool
		a, s, done, err = e.insert(ctx, l, s, &d, try)
		if done || err != nil {
			return a, err
		}
	}
	if err == nil {
		err = ctx.Err()
	}
	return a, err
}

// refuseInvalid returns the error for a queue with entries that are not valid. A new request gives its lease up. A
// waiter asks again with the same lease, which a late revoke would end: it only removes what was its own.
func (e *entry) refuseInvalid(ctx context.Context, l *link, s *state, d *queue.Decision) error {
	if e.want.Claim.Ticket == 0 {
		e.revokeLater(l)
		return lease.Invalid(d.Invalid)
	}
	err := e.removeChangedKeys(ctx, l, s)
	if err != nil {
		return err
	}
	return lease.Invalid(d.Invalid)
}

// removeChangedKeys removes keys of the entry's waiter that somebody has changed so that they are not valid. They are on
// the entry's lease, so they would stay as long as it waits.
func (e *entry) removeChangedKeys(ctx context.Context, l *link, s *state) error {
	var t transaction
	for key, f := range s.flaws {
		if f.ID == e.id && !f.isHolder {
			t.then = append(t.then, remove(span{from: key}))
		}
	}
	if len(t.then) == 0 {
		return nil
	}
	_, err := l.commit(ctx, t)
	return err
}

// isPlain reports whether a request may wait in any queue, however long the queue is and whoever is in it.
func (e *entry) isPlain() bool {
	r := &e.request
	return !r.NoWait && r.MaxQueue == nil && r.Replace == locks.ReplaceNone && len(r.Within) == 0
}

// insert carries out the decision about a new entry, if no entry has changed since the state was read. A plain
// request that gets no slot for this reason joins the queue at once. If done is true, a is the answer.
// Otherwise next is the new state, and the caller decides again.
func (e *entry) insert(ctx context.Context, l *link, s *state, d *queue.Decision, try int) (a lease.Answer, next *state, done bool, err error) {
	if e.leaseFrom == 0 || e.store.clock().Sub(e.leaseFrom) > maxGrantAge(e.ttl) {
		if err := e.makeLease(ctx, l); err != nil {
			return a, nil, false, err
		}
	}
	var reads []operation
	for _, q := range e.ranges() {
		reads = append(reads, get(q))
	}
	now := e.store.clock()
	if e.record.Since == 0 {
		e.record.Since = now
	}
	waiting := nested(transaction{ // an earlier attempt may have taken a slot after it got no answer
		conditions: []condition{isAbsent(e.holder(e.id))},
		then:       []operation{put(e.waiter(&e.want), e.record.text(now), e.entryLease)},
	})
	if err := e.makeTombLease(ctx, l, d.Replaced...); err != nil {
		return a, nil, false, err
	}
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
		t.then = append(e.evictions(s, d.Replaced), taking...)
		if e.isPlain() {
			t.other = append([]operation{waiting}, reads...)
		}
	} else {
		t.then = append(e.evictions(s, d.Replaced), waiting)
		t.then = append(t.then, reads...)
	}
	return e.commitInsert(ctx, l, s, d, t)
}

// commitInsert commits the transaction of insert, and returns what insert returns.
func (e *entry) commitInsert(ctx context.Context, l *link, s *state, d *queue.Decision, t transaction) (a lease.Answer, next *state, done bool, err error) {
	takes := d.Verdict == queue.Granted
	o, err := l.commit(ctx, t)
	if isStatus(err, noLease) || isStatus(err, noKey) { // the lease has just ended, or an evicted entry has just left
		e.leaseFrom, e.tombLease = 0, 0
		next, err = e.look(ctx, l)
		return a, next, false, err
	}
	if err != nil {
		return a, nil, false, err
	}
	if o.succeeded {
		e.noteReplaced(l, s, d.Replaced)
	}
	if o.succeeded && takes {
		a = e.answerGranted(&o.header, &d.Entry, o.revision)
		a.Replaced = e.replaced
		return a, nil, true, nil
	}
	next, err = e.stateOf(ctx, l, &o)
	if err != nil {
		return a, nil, false, err
	}
	hasJoined := o.succeeded || takes && e.isPlain()
	if !hasJoined {
		return a, next, false, nil
	}
	a, err = e.settle(ctx, l, next)
	if o.succeeded {
		a.Replaced = e.replaced
	}
	return a, next, true, err
}

// decide asks what becomes of the entry.
func (e *entry) decide(s *state, absent string) queue.Decision {
	return queue.Decide(s.view(e.id, e.request.Name, absent), e.joining())
}

// joining returns the question of decide.
func (e *entry) joining() queue.Question {
	r := &e.request
	q := queue.Question{
		Step: queue.Join, Entry: e.want, NoWait: r.NoWait, Within: queue.Enclosing(*r), By: e.evictor,
	}
	if e.want.Claim.Ticket == 0 {
		q.MaxQueue = r.MaxQueue
	}
	return q
}

// find returns the holder or waiter with an ID.
func (s *state) find(id string) (e queue.Entry, exists bool) {
	if p, ok := s.holders[id]; ok {
		r, _ := parseRecord(p.value, s.key)
		e, _ = r.entry(id, p.created)
		return e, true
	}
	e, exists = s.waiters[s.keyOf(id)]
	return e, exists
}

// settle finds the place of an entry that is in the queue, and takes a slot if it is the entry's turn.
func (e *entry) settle(ctx context.Context, l *link, s *state) (a lease.Answer, err error) {
	for ctx.Err() == nil {
		caller, exists := s.find(e.id)
		by, isEvicted := s.tombs[e.id]
		switch {
		case isEvicted:
			a.Verdict, a.By = queue.Evicted, by
			return a, nil
		case !exists: // its lease has ended
			return e.enter(ctx, l)
		case caller.State == queue.Holding:
			return e.answerHolder(ctx, l, s, caller)
		}
		key := s.keyOf(e.id)
		e.key, e.created, e.want.Claim.Ticket = key, caller.Fence, caller.Claim.Ticket
		place, before := s.place(e.id)
		e.ensureWatch(l, s, place, before)
		if place > nearPlaces {
			e.noteFront("")
			return e.answerQueued(place, false), nil
		}
		d := e.decide(s, e.absent())
		switch {
		case len(d.Invalid) > 0:
			return a, lease.Invalid(d.Invalid)
		case d.Verdict == queue.Queued:
			e.noteFront(d.Due)
			return e.answerQueued(place, d.Due != ""), nil
		case d.Verdict != queue.Granted:
			return e.answerRefused(ctx, l, s, &d)
		case e.store.clock() < e.takeFrom:
			e.noteFront("")
			return e.answerQueued(place, false), nil
		}
		next, a, err := e.take(ctx, l, s, &d.Entry)
		if next == nil {
			return a, err
		}
		s = next
	}
	return a, ctx.Err()
}

// answerQueued answers an entry that waits. isDue says that the waiter at the front could take a slot.
func (e *entry) answerQueued(place int, isDue bool) (a lease.Answer) {
	a.Verdict, a.Place = queue.Queued, place
	left := e.leaseFrom.Add(prolongEvery(e.ttl)).Sub(e.store.clock())
	if isDue {
		left = min(left, e.frontSince.Add(passOver).Sub(e.store.clock()))
	}
	if now := e.store.clock(); now < e.takeFrom {
		left = min(left, e.takeFrom.Sub(now))
	}
	a.Nap = queue.Nap{For: max(left, time.Millisecond), KeepsConnection: true}
	return a
}
