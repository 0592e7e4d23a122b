// Package redis keeps locks on a Redis server (6.2 or later, or Valkey), alone,
// behind Sentinel or in a Cluster.
//
// One script (queue.lua, steps.lua) makes all decisions on the server, atomically and on
// the server's clock. It promises strict order, exclusion among leases that are renewed in
// time, waiting without polling, and that no repeated, delayed or lost message makes a
// second entry or loses one.
//
// It cannot promise what Redis does not: a promoted replica may lack the latest grants. A
// server that comes back grants nothing new for a while (the quarantine), so that holders
// it forgot can restore their leases. Fences grow even then, unless the clocks of the
// servers go back.
package redis

import (
	"context"
	"sync"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"

	"golock/locks"
	"golock/locks/lease"
)

// Store is a server, or several that act as one. It does nothing until it is used.
type Store struct {
	lease.Engine
	target   *target
	script   *goredis.Script
	client   func() (goredis.UniversalClient, error) // made when it is first needed
	clock    locks.Clock
	noRunID  atomic.Bool // the server does not tell its run_id
	noPubSub atomic.Bool // it does not let us subscribe
}

var _ locks.Store = (*Store)(nil)

// Open parses a URL: redis://, rediss://, redis+unix://, redis+sentinel:// or
// redis+cluster://. It does no I/O. Errors name the part of the URL that is wrong and
// show no secrets.
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

// Close implements locks.Store.
func (s *Store) Close() error {
	client, err := s.client()
	if err != nil { // there is none
		return nil
	}
	return client.Close()
}

// Warnings implements locks.Leases.
func (s *Store) Warnings(waiting bool) []string {
	switch {
	case waiting && s.noPubSub.Load():
		return []string{"the server does not let this user subscribe to &" + s.target.prefix + ":*: " +
			"who waits asks once a second instead"}
	case !waiting && s.target.Quarantine > 0 && s.noRunID.Load():
		return []string{"the server does not let this user run INFO: " +
			"after a restart or a failover there is no quarantine, and a forgotten slot may be given away at once"}
	}
	return nil
}

// Forget implements locks.Queue.
func (s *Store) Forget(ctx context.Context, name string) error {
	keys := s.keys(locks.KeyOf(name))[:6] // without the index
	_, err := ask(ctx, s, func(ctx context.Context, client goredis.UniversalClient) (int64, error) {
		if err := client.ZRem(ctx, s.index(), name).Err(); err != nil {
			return 0, err
		}
		return client.Del(ctx, keys...).Result()
	})
	return err
}
