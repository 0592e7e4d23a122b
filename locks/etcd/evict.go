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

// tombTime is how long a tomb stays, as on the other stores: a waiter that was evicted while it was suspended,
// and whose lease has ended, must not rejoin.
const tombTime = 10 * time.Minute

// evict makes the step of an eviction of another process's entry.
func (e *entry) evict(ctx context.Context, l *link) (a lease.Answer, err error) {
	for {
		s, err := e.look(ctx, l)
		if err != nil {
			return a, err
		}
		victim, exists := s.find(e.id)
		if exists {
			if err := e.makeTombLease(ctx, l, victim); err != nil {
				return a, err
			}
		}
		var t transaction
		hasNothingToDo := false
		t, a.Verdict, hasNothingToDo = s.eviction(e.id, e.evictor, e.tombLease)
		if hasNothingToDo {
			return a, nil
		}
		o, err := l.commit(ctx, t)
		switch {
		case isStatus(err, noLease), isStatus(err, noKey): // a lease has just ended, or the entry has just left
			e.tombLease = 0
			lease.Pause(ctx, 50*time.Millisecond)
		case err == nil && o.succeeded:
			l.revokeSoon(e.holdLease) // the transaction has removed its key
			return a, nil
		case err != nil:
			return a, err
		}
	}
}

// makeTombLease makes the lease of the tombs, if a waiter is among the evicted entries and there is no such
// lease yet. Only waiters leave tombs: the record of a holder says that it was evicted.
func (e *entry) makeTombLease(ctx context.Context, l *link, evicted ...queue.Entry) error {
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

// eviction returns the transaction that evicts an entry. A waiter's tomb is on the given lease.
// hasNothingToDo reports that the entry was evicted before, or has left.
func (s *state) eviction(id, by string, tombLease int64) (t transaction, v queue.Verdict, hasNothingToDo bool) {
	holder, isHolder := s.holders[id]
	hold, isHeld := s.holds[id]
	waiter := s.keyOf(id)
	var flawed *flaw
	for _, f := range s.flaws {
		if f.ID == id {
			flawed = &f
		}
	}
	switch {
	case isHolder:
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
		// The key stays a holder's until its owner has stopped, or its lease has ended.
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

// These constants limit the evictions in one transaction. An eviction is two operations. etcd allows 128
// operations (--max-txn-ops), and 1.5 MiB for a request (--max-request-bytes).
const (
	maxEvictions     = 40
	maxEvictionBytes = 1 << 19
)

// firstEvictions returns how many of the replaced entries one transaction can evict.
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

// evictions returns the operations that evict the replaced entries.
func (e *entry) evictions(s *state, replaced []queue.Entry) (all []operation) {
	for _, one := range replaced {
		t, _, hasNothingToDo := s.eviction(one.ID, e.evictor, e.tombLease)
		if !hasNothingToDo {
			all = append(all, t.then...)
		}
	}
	return all
}

// evictFirst evicts the given entries in one transaction, if no key of the lock has changed since the state
// was read. It returns the new state.
func (e *entry) evictFirst(ctx context.Context, l *link, s *state, replaced []queue.Entry) (next *state, err error) {
	if err := e.makeTombLease(ctx, l, replaced...); err != nil {
		return nil, err
	}
	var reads []operation
	for _, q := range e.ranges() {
		reads = append(reads, get(q))
	}
	o, err := l.commit(ctx, transaction{
		conditions: []condition{unchanged(e.all(), s.revision)},
		then:       append(e.evictions(s, replaced), reads...),
		other:      reads,
	})
	if isStatus(err, noLease) || isStatus(err, noKey) { // a lease has just ended, or an entry has just left
		e.tombLease = 0
		return e.look(ctx, l)
	}
	if err != nil {
		return nil, err
	}
	if o.succeeded {
		e.noteReplaced(l, s, replaced)
	}
	return e.stateOf(ctx, l, &o)
}

// noteReplaced notes which entries this one has evicted, and ends their holds.
func (e *entry) noteReplaced(l *link, s *state, replaced []queue.Entry) {
	e.replaced = append(e.replaced, e.describe(s, replaced)...)
	for _, one := range replaced {
		if _, isHeld := s.holds[one.ID]; isHeld {
			_, hold := leasesOfText(one.ID)
			l.revokeSoon(hold)
		}
	}
}

// describe makes the public entries of entries of a state.
func (e *entry) describe(s *state, all []queue.Entry) (shown []locks.Entry) {
	for i := range all {
		shown = append(shown, s.show(&all[i], e.request.Name, e.store.boot(), e.store.clock()))
	}
	return shown
}
