package etcd

import (
	"context"
	"math"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

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
		next, err = e.stateOf(ctx, l, &o)
		return next, a, err
	case !ok: // it ended just after it had the slot
		e.forget()
		return nil, a, lease.NoAnswer{}
	}
	return nil, e.holds(&o, want), nil
}

// takingOperations make a holder. Its hold is on a lease of its own, which begins now.
func (e *entry) takingOperations(ctx context.Context, l *link, want *queue.Entry) (all []operation, err error) {
	now := e.store.clock()
	r := e.record.holds(want)
	r.Since = now
	text := r.text(now)
	all = []operation{put(e.holder(e.id), text, e.ownLease)}
	if e.request.GrantHold() == 0 {
		return all, nil
	}
	if err := e.leaseHold(ctx, l, e.request.GrantHold()); err != nil {
		return nil, err
	}
	return append(all, put(e.hold(e.id), text, e.holdLease)), nil
}

// leaseHold makes the lease of a hold, or prolongs it.
func (e *entry) leaseHold(ctx context.Context, l *link, hold time.Duration) error {
	seconds := hold / time.Second
	if hold%time.Second > 0 {
		seconds++
	}
	e.leasedHold = true
	_, err := l.grant(ctx, e.holdLease, min(seconds, maxLease)*time.Second)
	return err
}

// beginHold is a renewal with which the hold begins.
func (e *entry) beginHold(ctx context.Context, l *link) (a lease.Answer, err error) {
	a, err = e.renew(ctx, l)
	if err != nil || a.Verdict != queue.Held {
		return a, err
	}
	own, _, err := e.holderNow(ctx, l)
	if err != nil {
		return a, err
	}
	if own == nil {
		a.Verdict = queue.Lost
		return a, nil
	}
	if err := e.leaseHold(ctx, l, e.request.LaterHold()); err != nil {
		return a, err
	}
	o, err := l.commit(ctx, transaction{
		conditions: []condition{changedAt(own.key, own.changed)},
		then:       []operation{put(e.hold(e.id), own.value, e.holdLease)},
	})
	if err == nil && !o.succeeded { // somebody has evicted it, or its age was written
		err = lease.NoAnswer{}
	}
	if err == nil {
		e.granted = e.store.clock()
	}
	return a, err
}

// maxLease is the longest lease of etcd that a duration can express, in seconds.
const maxLease = math.MaxInt64 / time.Second

// holds is the answer to a transaction that has taken a slot: its revision is the fence.
func (e *entry) holds(o *outcome, want *queue.Entry) (a lease.Answer) {
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
	ok, err := e.prolong(ctx, l)
	if err == nil && !ok {
		err = lease.NoAnswer{}
	}
	if err != nil {
		return a, err
	}
	return e.holds(&outcome{header: header{cluster: s.cluster, revision: own.Fence}}, &own), nil
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
	e.asked = 0
	if e.leased {
		l.revokeSoon(e.ownLease)
	}
	if e.leasedHold {
		l.revokeSoon(e.holdLease)
	}
	e.leased, e.leasedHold = false, false
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
