// Package redis keeps locks on a Redis server (6.2 or later, or Valkey), alone,
// behind Sentinel or in a Cluster.
//
// All decisions are one script that runs on the server (queue.lua, steps.lua), atomically and
// on the server's clock. It promises strict order, exclusion among leases that are
// renewed in time, waiting without polling, and that no repeated, delayed or lost
// message makes a second entry or loses one.
//
// It cannot promise what Redis does not: a replica that is promoted may not have the
// latest grants. A server that has come back, whoever it is now, grants nothing new
// for a while (the quarantine), so that holders that it forgot can put their leases
// back. The fence grows over all of that as long as the servers' clocks do not go
// back.
package redis

import (
	"context"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"

	"golock/locks"
	"golock/locks/lease"
)

// Store is a server, or several that act as one. It does nothing until it is used.
type Store struct {
	target     *target
	script     script
	clock      locks.Clock
	connection connection
	noRunID    atomic.Bool // the server does not tell which one it is
	noPubSub   atomic.Bool // it does not let us subscribe
}

var _ locks.LeaseStore = (*Store)(nil)

// Open understands a URL: redis://, rediss://, redis+unix://, redis+sentinel:// or
// redis+cluster://. It does no I/O. Errors name the part of the URL that is wrong and
// show no secrets.
func Open(address string) (*Store, error) {
	t, err := parse(address)
	if err != nil {
		return nil, err
	}
	return &Store{target: t, clock: locks.BootTime, connection: connection{target: t}}, nil
}

// URL implements locks.Store.
func (s *Store) URL() string { return s.target.String() }

// Traits implements locks.Store.
func (s *Store) Traits() locks.Traits { return lease.Traits() }

// Close implements locks.Store.
func (s *Store) Close() error { return s.connection.close() }

// Warnings implements locks.LeaseStore.
func (s *Store) Warnings() []string {
	var all []string
	if s.target.Quarantine > 0 && s.noRunID.Load() {
		all = append(all, "the server does not let this user run INFO: after a restart or a failover there is no quarantine, and a forgotten slot may be given away at once")
	}
	if s.noPubSub.Load() {
		all = append(all, "the server does not let this user subscribe to &"+s.target.prefix+":*: who waits asks once a second instead")
	}
	return all
}

// Join implements locks.Store.
func (s *Store) Join(ctx context.Context, r locks.Request) (locks.Ticket, error) {
	return lease.NewTicket(ctx, s.URL(), r, s.newEntry(r))
}

// Attach implements locks.LeaseStore.
func (s *Store) Attach(ref locks.Ref) locks.RenewableLease {
	return lease.Attach(s.URL(), ref, &entry{store: s, ref: ref, ttl: lease.DefaultTTL})
}

// Evict implements locks.QueueStore. The entry is told by what it listens to, and by the
// answer to its next step if that is lost.
func (s *Store) Evict(ctx context.Context, ref locks.Ref, by string) error {
	return lease.EvictEntry(ctx, s.URL(), &entry{store: s, ref: ref, ttl: lease.DefaultTTL, by: by})
}

// Forget implements locks.QueueStore.
func (s *Store) Forget(ctx context.Context, name string) error {
	keys := s.call(list, locks.KeyOf(name)).keys
	if s.target.kind != cluster {
		keys = keys[:len(keys)-1] // the index is for all names
	}
	return s.try(ctx, func(ctx context.Context, client goredis.UniversalClient) error {
		if err := client.Del(ctx, keys...).Err(); err != nil {
			return err
		}
		return client.ZRem(ctx, s.index(), name).Err()
	})
}
