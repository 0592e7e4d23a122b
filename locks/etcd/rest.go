package etcd

import (
	"context"
	"maps"
	"slices"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// A waiter at rest makes three requests in a TTL: it prolongs its lease every TTL/2, and each second time it also
// reads what it watches.

// prolongEvery is the longest time between two prolongations of a waiter's lease. What is left of a short lease must
// be enough for two more attempts.
func prolongEvery(ttl time.Duration) time.Duration {
	return min(ttl/2, max(queue.AskEvery(ttl), ttl-2*lease.LongestAttempt))
}

// prolongAfter is the age of a lease from which a waiter prolongs it.
func prolongAfter(ttl time.Duration) time.Duration { return prolongEvery(ttl) - ttl/30 }

// readAfter is the age of the last reading from which a waiter reads again when it prolongs its lease.
func readAfter(ttl time.Duration) time.Duration { return ttl - ttl/4 }

// prolongWaiter prolongs a waiter's lease. That proves nothing about its watch: a member whose disk hangs still
// forwards this request to the leader, but hears of no change. Only a reading with the consent of a majority proves
// that the watch has missed nothing.
func (e *entry) prolongWaiter(ctx context.Context, l *link) (leaseExists bool, err error) {
	prolong := func() (err error) {
		leaseExists, err = e.prolong(ctx, l)
		return err
	}
	now := e.store.clock()
	isWatching := e.hasNoNews(l) || e.watchedState(l) != nil // otherwise a reading follows anyway
	mustRead := isWatching && now.Sub(e.lastRead) >= readAfter(e.ttl)
	age := now.Sub(e.record.Since)
	isAgeOld := isAgeDue(age, e.record.Age) && age-e.record.Age >= readAfter(e.ttl)
	switch {
	case mustRead:
		err = inParallel(prolong, func() error { return e.verifyWatch(ctx, l) })
	case isAgeOld: // in a queue that moves often, other steps read, but do not write the age
		err = inParallel(prolong, func() error { return e.writeAge(ctx, l, now) })
	default:
		err = prolong()
	}
	return leaseExists, err
}

// writeAge writes the age of the entry. A full database takes no age, and needs none.
func (e *entry) writeAge(ctx context.Context, l *link, now locks.Instant) error {
	o, err := l.commit(ctx, transaction{
		conditions: []condition{createdAt(e.key, e.created)},
		then:       []operation{replace(e.key, e.record.text(now))},
	})
	if isStatus(err, noSpace) {
		return nil
	}
	if err == nil && o.succeeded {
		e.record.Age = now.Sub(e.record.Since)
	}
	return err
}

// verifyWatch reads what the waiter watches, and ends the watch if it has missed something. The same transaction
// writes the age of the entry.
func (e *entry) verifyWatch(ctx context.Context, l *link) error {
	now := e.store.clock()
	t := transaction{conditions: []condition{createdAt(e.key, e.created)}}
	for _, q := range e.watchedRanges() {
		t.then = append(t.then, get(q))
	}
	age := now.Sub(e.record.Since)
	writesAge := isAgeDue(age, e.record.Age)
	if writesAge {
		t.then = append(t.then, replace(e.key, e.record.text(now)))
	}
	o, err := l.commit(ctx, t)
	if writesAge && isStatus(err, noSpace) {
		writesAge = false
		t.then = t.then[:len(t.then)-1]
		o, err = l.commit(ctx, t)
	}
	if err != nil {
		return err
	}
	e.lastRead = now
	if !o.succeeded { // the entry is not in the queue any more
		e.stopWatch()
		return nil
	}
	if writesAge {
		e.record.Age = age
	}
	hasMissed, err := e.watchHasMissed(ctx, l, &o)
	if hasMissed {
		e.stopWatch()
	}
	return err
}

// watchedRanges returns the requests that read what the waiter watches.
func (e *entry) watchedRanges() (all []rangeRequest) {
	if !e.watch.isFar() {
		return e.ranges()
	}
	for _, key := range append(e.watch.target[:], e.key) {
		all = append(all, rangeRequest{span: span{from: key}, keysOnly: true})
	}
	return all
}

// watchHasMissed compares what the watch has told with the answers to the requests of watchedRanges.
func (e *entry) watchHasMissed(ctx context.Context, l *link, o *txnAnswer) (hasMissed bool, err error) {
	if e.watch.isFar() {
		isMissing := func(answer rangeAnswer) bool { return len(answer.pairs) == 0 }
		return slices.ContainsFunc(o.answers, isMissing), nil
	}
	s, err := e.stateOf(ctx, l, o)
	if err != nil {
		return true, err
	}
	e.watch.mu.Lock()
	defer e.watch.mu.Unlock()
	return !e.watch.state.hasEntriesOf(s), nil
}

// hasEntriesOf reports whether two states have the same holders and waiters.
func (s *state) hasEntriesOf(other *state) bool {
	isSamePair := func(a, b pair) bool { return a.changed == b.changed }
	isSameWaiter := func(a, b queue.Entry) bool { return a.Fence == b.Fence }
	isSameFlaw := func(a, b flaw) bool { return a.pair.changed == b.pair.changed }
	return maps.EqualFunc(s.holders, other.holders, isSamePair) && maps.EqualFunc(s.holds, other.holds, isSamePair) &&
		maps.EqualFunc(s.waiters, other.waiters, isSameWaiter) && maps.EqualFunc(s.flaws, other.flaws, isSameFlaw)
}
