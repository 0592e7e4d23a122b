package etcd

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/network"
	"golock/locks/queue"
)

// name returns the name of the lock, which the record of any entry has, or "".
func (s *state) name() string {
	for _, pairs := range []map[string]pair{s.holders, s.holds, s.records} {
		for _, p := range pairs {
			if r, err := parseRecord(p.value, s.key); err == nil && r.Name != "" {
				return r.Name
			}
		}
	}
	return ""
}

// keysNamed returns the range of the keys of a lock, or of all locks if the name is "".
func (s *Store) keysNamed(name string) span {
	if name == "" {
		return under(s.client.target.prefix)
	}
	return s.keysOf(locks.KeyOf(name)).all()
}

// list reads the locks that have keys in a range, as they were at one moment. isCut reports that the list
// lacks some of them, because they would take too much memory.
func (s *Store) list(ctx context.Context, keys span) (all []*state, isCut bool, err error) {
	q := rangeRequest{span: keys, limit: pageSize}
	byKey := map[string]*state{}
	count, size := 0, 0
	more := true
	for more {
		isCut = count > 2*locks.MaxListed || size > maxValues
		if isCut {
			break
		}
		o, err := retryCall(ctx, s, func(ctx context.Context, l *link) (txnAnswer, error) { return l.readRanges(ctx, q) })
		if errors.Is(err, network.ErrTooLong) && q.limit > 1 {
			q.limit = max(q.limit/8, 1)
			continue
		}
		if err != nil {
			return nil, false, err
		}
		answer := &o.answers[0]
		for i := range answer.pairs {
			s.addTo(byKey, &answer.pairs[i], &o)
		}
		count += len(answer.pairs)
		size += answer.valueBytes()
		more = answer.more && len(answer.pairs) > 0
		if more {
			q = answer.next(q, cmp.Or(q.revision, o.revision))
		}
	}
	for _, one := range byKey {
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b *state) int { return strings.Compare(a.lock, b.lock) })
	return all, isCut, nil
}

// addTo adds a key to the state of its lock in byKey. It leaves out a key that belongs to no lock. The state
// has the revision of the answer o.
func (s *Store) addTo(byKey map[string]*state, p *pair, o *txnAnswer) {
	text, _, _ := strings.Cut(strings.TrimPrefix(p.key, s.client.target.prefix), "/")
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(locks.Key{}) {
		return
	}
	one := byKey[text]
	if one == nil {
		key := locks.Key(b)
		one = s.keysOf(key).newState(key, &txnAnswer{header: o.header})
		byKey[text] = one
	}
	one.put(p)
	if w, isWaiter := one.waiters[p.key]; isWaiter {
		if _, err := parseRecord(p.value, one.key); err != nil {
			delete(one.waiters, p.key)
			one.noteFlaw(p, w.ID, err)
		}
	}
}

// Entries implements locks.Store.
func (s *Store) Entries(ctx context.Context, name string) (all []locks.Entry, err error) {
	states, isCut, err := s.list(ctx, s.keysNamed(name))
	if err != nil {
		return nil, err
	}
	var invalid []locks.InvalidEntry
	for _, one := range states {
		invalid = append(invalid, one.invalid(cmp.Or(name, one.name()))...)
		all = append(all, one.entries(s)...)
	}
	if isCut || len(all) > locks.MaxListed {
		return all[:min(len(all), locks.MaxListed)], locks.ListingCut(s.URL())
	}
	_, err = retryCall(ctx, s, func(ctx context.Context, l *link) (struct{}, error) { return struct{}{}, l.addTimes(ctx, all) })
	locks.Arrange(all)
	if err == nil {
		err = lease.Located(s.URL(), lease.Invalid(invalid))
	}
	return all, err
}

// Find implements locks.Queue.
func (s *Store) Find(ctx context.Context, ref locks.Ref) (locks.Entry, error) {
	states, _, err := s.list(ctx, s.keysOf(ref.Key).all())
	if err != nil {
		return locks.Entry{}, err
	}
	var all []locks.Entry
	for _, one := range states {
		all = one.entries(s)
		err = lease.Located(s.URL(), lease.Invalid(one.invalid(one.name())))
	}
	locks.Arrange(all)
	return ref.In(all, err)
}

// entries returns the public entries of a lock.
func (s *state) entries(store *Store) (all []locks.Entry) {
	name, now := s.name(), store.clock()
	for _, e := range slices.Concat(s.holdersNow(), s.order()) {
		all = append(all, s.show(&e, name, store.boot(), now))
	}
	return all
}

// show makes the public entry of an entry. It lacks the times that only a lease of the entry tells (addTimes).
func (s *state) show(q *queue.Entry, name, boot string, now locks.Instant) locks.Entry {
	p, isHolder := s.holders[q.ID]
	switch {
	case q.State == queue.Waiting:
		p = s.records[q.ID]
	case !isHolder:
		p = s.holds[q.ID]
	}
	r, err := parseRecord(p.value, s.key)
	e := locks.Entry{
		Name: cmp.Or(r.Name, name), State: locks.Waiting, Claim: q.Claim, Evicted: q.Evicted,
		TTL: time.Duration(r.TTL) * time.Second, Ended: q.State == queue.Ended,
	}
	e.Ref, _ = locks.ParseRef(s.key.String() + "-" + q.ID)
	if err == nil {
		r.Owner.Describe(&e)
		e.SetAge(r.age(boot, now, 0))
	}
	if q.State != queue.Waiting {
		e.State, e.Slots, e.Fence = locks.Holding, q.Slots, q.Fence
	}
	if q.HoldLeft > 0 {
		e.HeldTill = time.Now() // the earliest end; addHolds replaces it, unless that fails
	}
	return e
}

// describeHolders makes the public entries of holders, for a request that they keep from a slot.
func (s *Store) describeHolders(ctx context.Context, l *link, of *state, name string, holders []queue.Entry) ([]locks.Entry, error) {
	var all []locks.Entry
	for i := range holders {
		all = append(all, of.show(&holders[i], name, s.boot(), s.clock()))
	}
	return all, l.addHolds(ctx, all)
}

// maxTimes is the largest number of entries for which a listing asks when their leases end.
const maxTimes = 500

// addTimes adds the times at which leases and holds end.
func (l *link) addTimes(ctx context.Context, all []locks.Entry) error {
	if err := l.addHolds(ctx, all); err != nil || len(all) > maxTimes {
		return err
	}
	return each(all, func(e *locks.Entry) error {
		entryLease, _ := leasesOf(e.Ref.ID)
		a, err := l.remaining(ctx, entryLease)
		if err == nil && a.ttl > 0 {
			e.Expires = max(e.Expires, time.Duration(a.ttl)*time.Second)
		}
		return err
	})
}

// addHolds adds the times at which holds end.
func (l *link) addHolds(ctx context.Context, all []locks.Entry) error {
	return each(all, func(e *locks.Entry) error {
		if e.HeldTill.IsZero() {
			return nil
		}
		_, hold := leasesOf(e.Ref.ID)
		a, err := l.remaining(ctx, hold)
		if err != nil {
			return err
		}
		left := time.Duration(max(a.ttl+1, 0)) * time.Second // etcd rounds down
		e.HeldTill, e.Expires = time.Now().Add(left), max(e.Expires, left)
		return nil
	})
}

// each calls do for all entries, at most atOnce at the same time. It returns the first error.
func each(all []locks.Entry, do func(*locks.Entry) error) (failed error) {
	const atOnce = 16
	var group sync.WaitGroup
	var mu sync.Mutex
	room := make(chan struct{}, atOnce)
	for i := range all {
		room <- struct{}{}
		group.Go(func() {
			var err error
			defer func() { <-room }()
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				if failed == nil {
					failed = err
				}
			}()
			defer locks.Recover(&err)
			err = do(&all[i])
		})
	}
	group.Wait()
	return failed
}
