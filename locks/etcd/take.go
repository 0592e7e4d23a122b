package etcd

import (
	"context"
	"math"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// take takes a slot for a waiter, if no holder has changed since the state was read, and the waiter's key still
// exists. The key proves that the lease has not ended. If a condition is false, take returns the new state.
func (e *entry) take(ctx context.Context, l *link, s *state, want *queue.Entry) (next *state, a lease.Answer, err error) {
	leaseExists := true
	prolong := func() error { return nil }
	if e.store.clock().Sub(e.leaseFrom) > maxGrantAge(e.ttl) {
		prolong = func() (err error) {
			leaseExists, err = e.prolong(ctx, l)
			return err
		}
	}
	then, err := e.takingOperations(ctx, l, want)
	if err != nil {
		return nil, a, err
	}
	t := transaction{
		conditions: append(s.slotsTaken(want), unchanged(e.holders(), s.revision), createdAt(e.key, e.created)),
		then:       append(then, remove(waiterKeysOf(e.key))),
	}
	for _, q := range e.ranges() {
		t.other = append(t.other, get(q))
	}
	var o txnAnswer
	err = inParallel(prolong, func() (err error) {
		o, err = l.commit(ctx, t)
		return err
	})
	switch {
	case err != nil:
		e.stopWatch() // the next step reads whether the transaction was committed
		return nil, a, err
	case !o.succeeded:
		next, err = e.stateOf(ctx, l, &o)
		return next, a, err
	case !leaseExists: // the lease ended just after the entry had taken the slot
		e.stopWatch()
		return nil, a, lease.NoAnswer{}
	}
	return nil, e.answerGranted(&o.header, want, o.revision), nil
}

// takingOperations returns the operations that make a holder. Its hold is on a lease of its own, which begins now.
func (e *entry) takingOperations(ctx context.Context, l *link, want *queue.Entry) (all []operation, err error) {
	now := e.store.clock()
	r := e.record.ofHolder(want)
	r.Since = now
	text := r.text(now)
	all = []operation{put(e.holder(e.id), text, e.entryLease)}
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
	e.mayHaveHoldLease = true
	_, err := l.grant(ctx, e.holdLease, min(seconds, maxLease)*time.Second)
	return err
}

// beginHold renews the lease and makes the hold begin.
func (e *entry) beginHold(ctx context.Context, l *link) (a lease.Answer, err error) {
	a, err = e.renew(ctx, l)
	if err != nil || a.Verdict != queue.Held {
		return a, err
	}
	stored, _, err := e.holderNow(ctx, l)
	if err != nil {
		return a, err
	}
	if stored == nil {
		a.Verdict = queue.Lost
		return a, nil
	}
	if err := e.leaseHold(ctx, l, e.request.LaterHold()); err != nil {
		return a, err
	}
	o, err := l.commit(ctx, transaction{
		conditions: []condition{changedAt(stored.key, stored.changed)},
		then:       []operation{put(e.hold(e.id), stored.value, e.holdLease)},
	})
	if err == nil && !o.succeeded { // somebody has evicted the holder, or its age was written
		err = lease.NoAnswer{}
	}
	if err == nil {
		e.granted = e.store.clock()
	}
	return a, err
}

// maxLease is the longest lease of etcd that a duration can express, in seconds.
const maxLease = math.MaxInt64 / time.Second

// answerGranted answers an entry that has got a slot. The fence is the revision in which it took the slot.
func (e *entry) answerGranted(h *header, want *queue.Entry, fence int64) (a lease.Answer) {
	e.stopWatch()
	e.created, e.granted = 0, e.store.clock()
	a.Verdict, a.TTL, a.Epoch = queue.Granted, e.ttl, e.epochOf(h)
	a.Grant = locks.Grant{Ref: e.ref, Slots: want.Slots, Fence: fence}
	return a
}

// answerHolder answers an entry that has a slot already. It prolongs the lease first, because much of it may be
// over.
func (e *entry) answerHolder(ctx context.Context, l *link, s *state, stored queue.Entry) (a lease.Answer, err error) {
	if stored.Evicted != "" {
		a.Verdict, a.By = queue.Evicted, stored.Evicted
		return a, nil
	}
	leaseExists, err := e.prolong(ctx, l)
	if err == nil && !leaseExists {
		err = lease.NoAnswer{}
	}
	if err != nil {
		return a, err
	}
	return e.answerGranted(&header{cluster: s.cluster, revision: s.revision}, &stored, stored.Fence), nil
}

// answerRefused answers an entry that gets no slot and no place.
func (e *entry) answerRefused(ctx context.Context, l *link, s *state, d *queue.Decision) (a lease.Answer, err error) {
	a.Outcome = d.Outcome
	if d.Verdict == queue.Busy || d.Verdict == queue.Nested {
		a.Holders, err = e.store.describeHolders(ctx, l, s, e.request.Name, d.Holders)
	}
	e.revokeLater(l)
	return a, err
}

// revokeLater ends the leases of a request that has no entry. It does not wait for the answer: if the
// request is lost, the leases end by themselves.
func (e *entry) revokeLater(l *link) {
	e.stopWatch()
	e.leaseFrom = 0
	if e.mayHaveLease {
		l.revokeSoon(e.entryLease)
	}
	if e.mayHaveHoldLease {
		l.revokeSoon(e.holdLease)
	}
	e.mayHaveLease, e.mayHaveHoldLease = false, false
}

// strictTries is how often a request checks that it still has to queue. After that it queues
// unconditionally: where slots change hands all the time, the check might never succeed.
const strictTries = 2

// maxConditions limits the number of holders that a transaction has conditions for: etcd allows 128
// conditions (--max-txn-ops).
const maxConditions = 60

// slotsTaken returns a condition for each holder of a lower slot than the highest of e: its key must still
// exist. Otherwise e would have to take that lower slot. The other conditions do not notice a deleted key.
func (s *state) slotsTaken(e *queue.Entry) (all []condition) {
	if len(e.Slots) == 0 {
		return nil
	}
	highest := e.Slots[len(e.Slots)-1]
	for _, h := range s.holdersNow() {
		if len(h.Slots) > 0 && h.Slots[0] < highest && len(all) < maxConditions {
			all = append(all, s.keyExists(&h))
		}
	}
	return all
}

// stillHeld returns a condition for each holder: its key must still exist.
func (s *state) stillHeld() (all []condition) {
	for _, h := range s.holdersNow() {
		if len(all) < maxConditions {
			all = append(all, s.keyExists(&h))
		}
	}
	return all
}

// keyExists returns the condition that the key of a holder, or of a hold, has not been deleted.
func (s *state) keyExists(h *queue.Entry) condition {
	if h.State == queue.Ended {
		return createdAt(s.hold(h.ID), h.Fence)
	}
	return createdAt(s.holder(h.ID), h.Fence)
}
