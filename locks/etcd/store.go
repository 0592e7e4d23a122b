// Package etcd keeps locks in an etcd cluster (3.4 or later): the store with consensus. A failover
// forgets nothing. Members without a majority grant nothing and renew nothing.
//
// The cluster makes no decisions. A waiter that may be next reads the lock, decides (package queue),
// and commits one transaction on the condition that no holder has changed since. Each entry is a key
// on a lease of its own. etcd removes the key when its owner has not prolonged the lease in time.
// Tickets and fences are revisions. There are no offers: a release removes keys, and the waiter in
// front, which watches the lock, takes the slot.
//
// The first two waiters watch the lock, and each other waiter the two directly before it. So a hand-off wakes
// three waiters, however many wait: the first two when the holder leaves, and the third when the first takes
// the slot. If the first does not take its turn, the second does.
package etcd

import (
	"context"
	"sync"
	"time"

	"golock/locks"
	"golock/locks/lease"
)

// Store is a cluster. Open does no I/O.
type Store struct {
	lease.Engine
	client *client
	clock  locks.Clock
	boot   func() string // returns the name of clock (bootID)
}

var _ locks.Store = (*Store)(nil)

// Open parses a URL: etcd:// or etcds://. It does no I/O. Errors name the part of the URL that is wrong
// and show no secrets.
func Open(address string) (*Store, error) {
	t, err := parse(address)
	if err != nil {
		return nil, err
	}
	s := &Store{client: newClient(t), clock: locks.BootTime, boot: sync.OnceValue(bootID)}
	s.Engine = lease.NewEngine(t.url, s.newEntry, s.entryOf)
	return s, nil
}

// Abilities implements locks.Store.
func (s *Store) Abilities() locks.Abilities { return lease.Abilities(s) }

// distance returns how far away the cluster is. A renewal may have to connect, and prolongs the lease and reads
// the entry.
func (s *Store) distance() locks.Distance {
	trips := 3
	if s.client.target.TLS {
		trips++
	}
	if s.client.target.user != "" {
		trips++
	}
	return s.client.target.Trips.Distance(trips)
}

// Close implements locks.Store.
func (s *Store) Close() error {
	s.client.close()
	return nil
}

// Warnings implements locks.Leases. There are none.
func (s *Store) Warnings(bool) []string { return nil }

// Forget implements locks.Queue.
func (s *Store) Forget(ctx context.Context, name string) error {
	keys := s.keysOf(locks.KeyOf(name))
	_, err := retryCall(ctx, s, func(ctx context.Context, l *link) (txnAnswer, error) {
		return l.commit(ctx, transaction{then: []operation{remove(keys.all())}})
	})
	return err
}

// Sweep implements locks.Queue. Dead entries disappear with their leases. Sweep removes keys that golock has
// not written and that are on no lease of their entry. The age of these keys is not known, so with olderThan
// Sweep leaves them.
func (s *Store) Sweep(ctx context.Context, name string, olderThan time.Duration) (removed int, err error) {
	states, _, err := s.list(ctx, s.keysNamed(name)) // if the list is cut, the next golock clean removes the rest
	var left []locks.InvalidEntry
	for _, one := range states {
		for _, f := range one.flaws {
			if f.ends || olderThan > 0 {
				f.Name = one.name()
				left = append(left, f.InvalidEntry)
				continue
			}
			t := transaction{
				conditions: []condition{changedAt(f.pair.key, f.pair.changed)},
				then:       []operation{remove(span{from: f.pair.key})},
			}
			o, err := retryCall(ctx, s, func(ctx context.Context, l *link) (txnAnswer, error) { return l.commit(ctx, t) })
			if err != nil {
				return removed, err
			}
			removed += int(o.deleted)
		}
	}
	if err == nil {
		err = lease.Located(s.URL(), lease.Invalid(left))
	}
	return removed, err
}
