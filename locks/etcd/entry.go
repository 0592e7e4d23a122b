package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// entry implements lease.Entry.
type entry struct {
	keys
	store    *Store
	ref      locks.Ref
	id       string
	request  locks.Request
	attached bool               // another process has made the entry (Attach, Evict)
	evictor  string             // who evicts other entries, or this one (Evict)
	givenUp  atomic.Bool        // the caller gives the entry up: it must not take a slot or a place any more
	using    chan struct{}      // a semaphore: one step at a time uses the entry
	open     context.Context    // ends with Close
	close    context.CancelFunc // ends open
	wake     chan struct{}      // gets a value when a waiter has to look
	events   chan struct{}      // gets a value when a holder has to renew
	watching sync.Once          // starts to watch a holder's key

	entryLease, holdLease int64 // IDs (leasesOf)
	tombLease             int64 // the lease of the tombs that the entry makes; 0 if it has made none

	// Only the step that has the semaphore uses the fields below.
	want             queue.Entry // the entry that the request asks for
	record           record
	leaseFrom        locks.Instant // when the lease began or was prolonged last; 0 if there is none
	mayHaveLease     bool          // a request for the lease was sent
	mayHaveHoldLease bool          // a request for the lease of the hold was sent
	ttl              time.Duration
	created          int64         // the revision in which the key as a waiter was created; 0 if the entry does not wait
	key              string        // the key as a waiter
	place            int           // the place in the queue; 1 is next
	granted          locks.Instant // when the entry heard of its grant, or its hold began
	replaced         []locks.Entry // the entries that this one has evicted while it joined
	front            string        // ID of the first waiter that could take a slot and has not
	frontSince       locks.Instant // when the entry saw first that front could take a slot
	takeFrom         locks.Instant // when the entry may take a slot (rejoinPause)
	refuseAt         locks.Instant // when a request that waits for front is refused; 0 if it does not wait for front
	watch            *watch
	failures         int           // the attempts to join that have failed since the last answer
	latest           int64         // the revision of the last answer that epochOf has judged
	restores         int           // how often the cluster was restored from a backup since the entry was made
	lastRead         locks.Instant // when the entry last read the lock, or what it watches, with the consent of a majority
}

func (s *Store) entryOf(ref locks.Ref, by string) *entry {
	e := &entry{
		keys: s.keysOf(ref.Key), store: s, ref: ref, id: ref.ID.String(), request: locks.Request{Ref: ref}, attached: true,
		evictor: locks.Printable(by, 200), using: make(chan struct{}, 1),
		wake: make(chan struct{}, 1), events: make(chan struct{}, 1), ttl: lease.DefaultTTL,
	}
	e.want.ID = e.id
	e.entryLease, e.holdLease = leasesOf(ref.ID)
	e.open, e.close = context.WithCancel(context.Background())
	return e
}

func (s *Store) newEntry(r locks.Request) *entry {
	e := s.entryOf(r.Ref, locks.ReplacedBy(r))
	e.request, e.attached, e.ttl = r, false, r.TTL
	e.record = newRecord(r, s.boot())
	e.want.State, e.want.Claim, e.want.Replace = queue.Waiting, r.Claim, r.Replace
	e.want.Claim.Ticket = 0 // etcd's revisions are the tickets
	return e
}

// Ask implements lease.Entry.
func (e *entry) Ask(ctx context.Context, step queue.Step) (a lease.Answer, sent locks.Instant, err error) {
	if step == queue.Release || step == queue.Leave {
		e.givenUp.Store(true)
	}
	select {
	case e.using <- struct{}{}:
		defer func() { <-e.using }()
	case <-ctx.Done():
		return a, 0, lease.NoAnswer{Cause: ctx.Err()}
	}
	limit := lease.AttemptLimit(e.ttl, e.store.distance())
	isNewcomer := step == queue.Join && e.created == 0
	if isNewcomer {
		limit = lease.NewcomerAttempt
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	sent = e.store.clock()
	a, err = e.attempt(ctx, step)
	if err != nil {
		err = e.store.asRefusal(err)
		if isNewcomer {
			e.failures++
			err = e.passingIfOthersAreLeft(err)
		}
		return lease.Answer{}, sent, err
	}
	e.failures = 0
	if step == queue.Join {
		sent = e.leaseFrom
	}
	a.Distance = e.store.distance()
	return a, sent, nil
}

// passingIfOthersAreLeft returns the error of a newcomer's attempt to connect. If one
// member refuses for good, for example because its certificate has expired, the error passes as long as the URL has
// members that were not asked.
func (e *entry) passingIfOthersAreLeft(err error) error {
	refusal, isRefusal := errors.AsType[*lease.Refusal](err)
	othersAreLeft := e.failures < len(e.store.client.target.hosts)
	if !isRefusal || refusal.Kind != lease.ForNewcomers || !othersAreLeft || e.store.client.isConnected() {
		return err
	}
	passing := *refusal
	passing.Kind = lease.Passing
	return &passing
}

// newcomerLimit limits how long a member is asked for a request that is not in the queue. What was on its way to a
// leader that fails is lost, and its member says so only after 7 s. So if there are other members, the first attempts
// are short. Later ones are longer, because a crowd may keep all members busy. Connecting and the login have longer: if
// a crowd gave up its logins, the processor time of the members would be wasted.
func (e *entry) newcomerLimit() time.Duration {
	const doublings = 4
	if len(e.store.client.target.hosts) == 1 {
		return lease.NewcomerAttempt
	}
	return min(lease.LongestAttempt<<min(e.failures, doublings), lease.NewcomerAttempt)
}

// attempt tries to make a step, once.
func (e *entry) attempt(ctx context.Context, step queue.Step) (a lease.Answer, err error) {
	if step == queue.Join {
		if err := e.checkTTL(); err != nil {
			return a, err
		}
		if e.givenUp.Load() {
			return a, lease.NoAnswer{Cause: context.Canceled} // no caller waits for this answer
		}
	}
	l, err := e.store.client.current(ctx, e.request.Hooks.Connected)
	if err != nil {
		return a, err
	}
	switch step {
	case queue.Join:
		if e.created == 0 {
			limited, cancel := context.WithTimeout(ctx, e.newcomerLimit())
			defer cancel()
			ctx = limited
		}
		return e.join(ctx, l)
	case queue.Renew:
		return e.renew(ctx, l)
	case queue.Hold:
		return e.beginHold(ctx, l)
	case queue.Release, queue.Leave:
		return e.leave(ctx, l, step)
	case queue.Evict:
		return e.evict(ctx, l)
	}
	return a, fmt.Errorf("there is no step %q", step)
}

// checkTTL refuses a TTL with a fraction of a second, because etcd counts whole seconds.
func (e *entry) checkTTL() error {
	if e.request.TTL%time.Second == 0 && e.request.TTL > 0 {
		return nil
	}
	return &lease.Refusal{Err: fmt.Errorf("a TTL of %v: etcd counts whole seconds", e.request.TTL), Hint: "another --ttl"}
}

// makeLease makes the entry's lease. If the lease exists already, it prolongs it.
func (e *entry) makeLease(ctx context.Context, l *link) error {
	sent := e.store.clock()
	e.mayHaveLease = true
	a, err := l.grant(ctx, e.entryLease, e.request.TTL)
	if err != nil {
		return err
	}
	ttl := time.Duration(a.ttl) * time.Second
	if a.ttl < 1 { // the lease has just ended
		return lease.NoAnswer{}
	}
	if ttl != e.request.TTL {
		_, _ = l.revoke(ctx, e.entryLease)
		return &lease.Refusal{
			Err:  fmt.Errorf("a TTL of %v: the cluster grants no less than %v (3/2 of its election timeout)", e.request.TTL, ttl),
			Hint: fmt.Sprintf("--ttl of at least %v", ttl),
		}
	}
	e.leaseFrom = sent
	return nil
}

// prolong prolongs the lease of the entry, if the lease still exists.
func (e *entry) prolong(ctx context.Context, l *link) (exists bool, err error) {
	sent := e.store.clock()
	a, err := l.keepAlive(ctx, e.entryLease)
	if err != nil || a.ttl < 1 {
		return false, err
	}
	e.leaseFrom, e.ttl = sent, time.Duration(a.ttl)*time.Second
	return true, nil
}

// inParallel makes two calls at the same time. Of two errors it returns the one that is final.
func inParallel(one, other func() error) error {
	done := make(chan error, 1)
	go func() {
		var err error
		defer func() { done <- err }()
		defer locks.Recover(&err)
		err = one()
	}()
	err := other()
	first := <-done
	if err == nil || lease.IsFinal(first) {
		return first
	}
	return err
}

// renew prolongs a holder's lease, and reads the holder's key with the consent of a majority. A member that was
// cut off together with the leader prolongs leases until the leader notices that, but cannot answer such a
// read.
func (e *entry) renew(ctx context.Context, l *link) (a lease.Answer, err error) {
	if e.givenUp.Load() {
		a.Verdict = queue.Lost
		return a, nil
	}
	leaseExists := false
	var stored *pair
	err = inParallel(func() (err error) {
		leaseExists, err = e.prolong(ctx, l)
		return err
	}, func() (err error) {
		var o txnAnswer
		stored, o, err = e.holderNow(ctx, l)
		a.Epoch = e.epochOf(&o.header)
		return err
	})
	if err != nil {
		return a, err
	}
	if !leaseExists || stored == nil {
		a.Verdict = queue.Lost
		return a, nil
	}
	r, err := parseRecord(stored.value, e.ref.Key)
	var q queue.Entry
	if err == nil {
		q, err = r.entry(e.id, stored.created)
	}
	if err != nil {
		s := &state{keys: e.keys, key: e.ref.Key, flaws: map[string]flaw{}}
		s.noteFlaw(stored, e.id, err)
		return a, lease.Invalid(s.invalid(e.record.Name))
	}
	if r.Evicted != "" {
		a.Verdict, a.By = queue.Evicted, r.Evicted
		return a, nil
	}
	e.noteAge(ctx, l, stored, &r)
	a.Verdict, a.TTL = queue.Held, e.ttl
	a.Grant = locks.Grant{Ref: e.ref, Slots: q.Slots, Fence: q.Fence}
	return a, nil
}

// holderNow reads the entry's key as a holder. stored is nil if the entry does not hold.
func (e *entry) holderNow(ctx context.Context, l *link) (stored *pair, o txnAnswer, err error) {
	o, err = l.readRanges(ctx, rangeRequest{span: span{from: e.holder(e.id)}})
	if err == nil && len(o.answers[0].pairs) > 0 {
		stored = &o.answers[0].pairs[0]
	}
	return stored, o, err
}

// epochOf returns the name of the epoch in which an answer with the consent of a majority was given. A cluster that was
// made anew has another ID. One that was restored from a backup has a lower revision than the entry has seen.
func (e *entry) epochOf(h *header) string {
	if h.revision < e.latest {
		e.restores++
	}
	e.latest = h.revision
	return fmt.Sprintf("%x.%d", h.cluster, e.restores)
}

// noteAge writes the age of a holder, if it has grown by a quarter since it was last written. So listings on
// other hosts are about right, and a long run makes few revisions. noteAge ignores errors.
func (e *entry) noteAge(ctx context.Context, l *link, stored *pair, r *record) {
	now := e.store.clock()
	age := now.Sub(r.Since)
	if r.Boot != e.store.boot() || !isAgeDue(age, r.Age) {
		return
	}
	_, _ = l.commit(ctx, transaction{
		conditions: []condition{changedAt(stored.key, stored.changed)},
		then:       []operation{replace(stored.key, amended(stored.value, map[string]any{"age": age}))},
	})
}

// isAgeDue reports whether an age has grown so much that it must be written again.
func isAgeDue(age, written time.Duration) bool {
	const least = 10 * time.Second // most commands and waits end sooner
	return age >= max(least, written+written/4)
}

// leave gives up the slot or the place of the entry by ending its lease. An earlier request that arrives later
// cannot bind a key to a lease that has ended. A hold stays after a release, unless its time is over.
func (e *entry) leave(ctx context.Context, l *link, step queue.Step) (a lease.Answer, err error) {
	e.stopWatch()
	hold := e.request.Hold
	isOver := e.granted != 0 && e.store.clock().Sub(e.granted) >= hold
	if hold > 0 && (step == queue.Leave || isOver) {
		if _, err := l.revoke(ctx, e.holdLease); err != nil {
			return a, err
		}
	}
	a.Verdict = queue.Released
	a.Existed, err = l.revoke(ctx, e.entryLease)
	if err == nil && !a.Existed && step == queue.Release { // the slot was lost, unless this is another epoch
		var o txnAnswer
		_, o, err = e.holderNow(ctx, l)
		a.Epoch = e.epochOf(&o.header)
	}
	return a, err
}

// Close implements lease.Entry.
func (e *entry) Close() { e.close() }
