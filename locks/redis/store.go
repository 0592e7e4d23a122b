// Package redis keeps locks on a Redis server (6.2 or later, or Valkey), alone, behind Sentinel or
// in a Cluster.
//
// A script (queue.lua, steps.lua) makes all decisions on the server, atomically and on the server's
// clock. It promises strict order, exclusion among leases that are renewed in time, and waiting
// without polling. A repeated, delayed or lost message neither makes a second entry nor loses one.
//
// The store cannot promise what Redis does not. A promoted replica may lack the latest grants. A
// server that comes back grants no new lease for a while (the quarantine), so that holders that it
// forgot can restore their leases. Fences grow even then, unless the clocks of the servers go back.
package redis

import (
	"context"
	"sync"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"

	"golock/locks"
	"golock/locks/lease"
)

// Store is a server, or several that act as one. Open does no I/O.
type Store struct {
	lease.Engine
	target   *target
	script   *goredis.Script
	client   func() (goredis.UniversalClient, error) // makes the client at the first call
	clock    locks.Clock
	noRunID  atomic.Bool // the server does not tell its run_id
	noPubSub atomic.Bool // the server does not permit this user to subscribe
}

var _ locks.Store = (*Store)(nil)

// Open parses a URL: redis://, rediss://, redis+unix://, redis+sentinel:// or redis+cluster://. It
// does no I/O. Errors name the part of the URL that is wrong and show no secrets.
func Open(address string) (*Store, error) {
	t, err := parse(address)
	if err != nil {
		return nil, err
	}
	script := goredis.NewScript(queueScript + stepsScript)
	s := &Store{target: t, script: script, clock: locks.BootTime, client: sync.OnceValues(t.connect)}
	s.Engine = lease.NewEngine(t.url, s.newEntry, s.entryOf)
	return s, nil
}

// Abilities implements locks.Store.
func (s *Store) Abilities() locks.Abilities { return lease.Abilities(s) }

// distance returns how far away the server is. A renewal connects and runs the script.
func (s *Store) distance() locks.Distance {
	trips := 2
	o := &s.target.client
	needsTrip := []bool{s.target.TLS, o.Password != "", o.DB != 0, s.target.replicas > 0}
	for _, isNeeded := range needsTrip {
		if isNeeded {
			trips++
		}
	}
	return s.target.Trips.Distance(trips)
}

// Close implements locks.Store.
func (s *Store) Close() error {
	client, err := s.client()
	if err != nil { // no client was made
		return nil
	}
	return client.Close()
}

// Warnings implements locks.Leases.
func (s *Store) Warnings(waiting bool) []string {
	switch {
	case waiting && s.noPubSub.Load():
		return []string{"the server does not let this user subscribe to &" + s.target.prefix + ":*: " +
			"waiters ask once a second instead"}
	case !waiting && s.target.Quarantine > 0 && s.noRunID.Load():
		return []string{"the server does not let this user run INFO: " +
			"after a restart or a failover there is no quarantine, and a forgotten slot may be given away at once"}
	}
	return nil
}

// Forget implements locks.Queue.
func (s *Store) Forget(ctx context.Context, name string) error {
	keys := s.keys(locks.KeyOf(name))[:6] // all keys but the index
	_, err := ask(ctx, s, func(ctx context.Context, client goredis.UniversalClient) (int64, error) {
		if err := client.ZRem(ctx, s.index(), name).Err(); err != nil {
			return 0, err
		}
		return client.Del(ctx, keys...).Result()
	})
	return err
}
