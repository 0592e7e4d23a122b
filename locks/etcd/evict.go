package etcd

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// tombTime is how long a waiter that was evicted can be told so, as on the other stores: a waiter that
// was suspended, and whose lease has ended meanwhile, must not come back.
const tombTime = 10 * time.Minute

// evict takes the entry back from its owner.
func (e *entry) evict(ctx context.Context, l *link) (a lease.Answer, err error) {
	for {
		s, err := e.look(ctx, l)
		if err != nil {
			return a, err
		}
		if own, isThere := s.own(e.id); isThere {
			if err := e.hasTombLease(ctx, l, own); err != nil {
				return a, err
			}
		}
		var t transaction
		done := false
		t, a.Verdict, done = s.eviction(e.id, e.evictor, e.tombLease)
		if done {
			return a, nil
		}
		o, err := l.commit(ctx, t)
		switch {
		case isStatus(err, noLease), isStatus(err, noKey): // it has just gone
			e.tombLease = 0
			lease.Pause(ctx, 50*time.Millisecond)
		case err == nil && o.succeeded:
			l.revokeSoon(e.holdLease) // it has no key any more
			return a, nil
		case err != nil:
			return a, err
		}
	}
}

// hasTombLease makes the lease of the tombs that the entry makes when it evicts others: waiters have some.
func (e *entry) hasTombLease(ctx context.Context, l *link, evicted ...queue.Entry) error {
	waits := func(one queue.Entry) bool { return one.State == queue.Waiting }
	if e.tombLease != 0 || !slices.ContainsFunc(evicted, waits) {
		return nil
	}
	id := 1 + rand.Int64N(1<<62-1)
	_, err := l.grant(ctx, id, tombTime)
	if err == nil {
		e.tombLease = id
	}
	return err
}

// eviction returns the transaction that evicts an entry. A waiter's tomb is on the given lease. done reports
// that there is nothing to do.
func (s *state) eviction(id, by string, tombLease int64) (t transaction, v queue.Verdict, done bool) {
	holder, holds := s.holders[id]
	hold, isHeld := s.holds[id]
	waiter := s.keyOf(id)
	var flawed *flaw
	for _, f := range s.flaws {
		if f.ID == id {
			flawed = &f
		}
	}
	switch {
	case holds:
		r, _ := parseRecord(holder.value, s.key)
		if r.Evicted != "" {
			return t, queue.Marked, true
		}
		t.conditions = []condition{changedAt(holder.key, holder.changed)}
		t.then = []operation{
			replace(holder.key, amended(holder.value, map[string]any{"evicted": by})), remove(span{from: s.hold(id)}),
		}
	case isHeld:
		t.conditions = []condition{createdAt(hold.key, hold.created)}
		t.then = []operation{remove(span{from: hold.key})}
	case waiter != "":
		t.conditions = []condition{isThere(waiter)}
		t.then = []operation{remove(span{from: waiter}), put(s.tomb(id), by, tombLease)}
	case flawed != nil && flawed.isHolder && flawed.ends:
		// Nobody else gets a slot until its owner has stopped, or its lease is over.
		t.conditions = []condition{isThere(flawed.pair.key)}
		t.then = []operation{replace(flawed.pair.key, repaired(by))}
	case flawed != nil:
		t.conditions = []condition{isThere(flawed.pair.key)}
		t.then = []operation{remove(span{from: flawed.pair.key})}
	default:
		return t, queue.Lost, true
	}
	return t, queue.Marked, false
}

// Limits of the evictions in one transaction. Each is two operations, of which etcd allows 128
// (--max-txn-ops), in requests of at most 1.5 MiB (--max-request-bytes).
const (
	maxEvictions     = 40
	maxEvictionBytes = 1 << 19
)

// firstEvictions is how many of the entries that are replaced can be evicted in one transaction.
func (s *state) firstEvictions(replaced []queue.Entry) (n int) {
	size := 0
	for n < min(len(replaced), maxEvictions) {
		size += len(s.holders[replaced[n].ID].value)
		if n > 0 && size > maxEvictionBytes {
			break
		}
		n++
	}
	return n
}

// evictions are what makes the evictions of a decision true.
func (e *entry) evictions(s *state, replaced []queue.Entry) (all []operation) {
	for _, one := range replaced {
		if t, _, done := s.eviction(one.ID, e.evictor, e.tombLease); !done {
			all = append(all, t.then...)
		}
	}
	return all
}

// evictFirst evicts as many of the entries that are replaced as fit in a transaction, if nobody has come
// or changed meanwhile. It gives the state after that.
func (e *entry) evictFirst(ctx context.Context, l *link, s *state, replaced []queue.Entry) (next *state, err error) {
	if err := e.hasTombLease(ctx, l, replaced...); err != nil {
		return nil, err
	}
	var reads []operation
	for _, q := range e.questions() {
		reads = append(reads, get(q))
	}
	o, err := l.commit(ctx, transaction{
		conditions: []condition{unchanged(e.all(), s.revision)},
		then:       append(e.evictions(s, replaced), reads...),
		other:      reads,
	})
	if isStatus(err, noLease) || isStatus(err, noKey) { // one of them has just gone
		e.tombLease = 0
		return e.look(ctx, l)
	}
	if err != nil {
		return nil, err
	}
	if o.succeeded {
		e.hasReplaced(l, s, replaced)
	}
	return e.stateOf(ctx, l, &o)
}

// hasReplaced notes whom the entry has evicted. What they had on hold is void.
func (e *entry) hasReplaced(l *link, s *state, replaced []queue.Entry) {
	e.replaced = append(e.replaced, e.described(s, replaced)...)
	for _, one := range replaced {
		if _, isHeld := s.holds[one.ID]; isHeld {
			_, hold := leasesOfText(one.ID)
			l.revokeSoon(hold)
		}
	}
}

// described shows entries of a state as a listing does.
func (e *entry) described(s *state, all []queue.Entry) (shown []locks.Entry) {
	for i := range all {
		shown = append(shown, s.show(&all[i], e.request.Name, e.store.boot(), e.store.clock()))
	}
	return shown
}
