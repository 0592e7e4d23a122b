// Package sql keeps locks in a table of a database: lease rows, on the
// server's clock. The dialects, MySQL's (and MariaDB's) and PostgreSQL's, are
// packages below it.
//
// Every step is one transaction that locks the name's own row, reads (view.go),
// decides (step.go, with package queue), writes and commits. Only a newcomer that a
// crowd keeps out reads without the lock (session.turnedAway). No lock of the
// server's outlives a transaction: a killed connection, a pooler or a time limit
// of the server neither loses a slot nor gives it twice. The store promises strict
// order, exclusion among leases that are renewed in time, and that no repeated or
// lost message makes a second entry or loses one.
//
// The store cannot promise what the server does not. A server may forget what it
// has committed: a replica that takes over too early, or a server that is set to
// lose the last second in a crash. A server that has come back grants nothing new
// for a while (the quarantine), so that holders that it forgot can put their
// leases back. Fences grow even then, unless the clocks of the servers go back.
package sql

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// Store is a table in a database. It does nothing until it is used. lease.Engine implements Join, Attach and
// Evict, and calls newEntry and entryOf.
type Store struct {
	lease.Engine
	target   *Target
	dialect  Dialect
	table    string                 // quoted
	host     atomic.Int64           // which of the target's hosts is tried first
	hung     atomic.Int64           // 1 + the value of host when a commit hung there; 0 if none did
	maxConns atomic.Int64           // the number of connections that the server allows
	noNotify atomic.Bool            // a pooler or proxy is in between, so waiters cannot be woken
	isBrief  atomic.Bool            // less of each row is read (selectedBrief), because an answer was too long
	noMark   atomic.Pointer[string] // the warning that the mark could not be made; nil if there is none
}

var _ locks.Store = (*Store)(nil)

// Open parses a URL of the dialect. It does no I/O. Errors name the part of the
// URL that is wrong and show no secrets.
func Open(address string, d Dialect) (*Store, error) {
	t, err := parse(address, d)
	if err != nil {
		return nil, err
	}
	s := &Store{target: t, dialect: d}
	s.table = s.quote(t.table)
	s.Engine = lease.NewEngine(t.url, s.newEntry, s.entryOf)
	return s, nil
}

// distance returns how far away the servers are. A renewal connects, logs in, and makes a step in two
// round trips.
func (s *Store) distance() locks.Distance {
	trips := 5
	if s.target.TLS {
		trips += 2
	}
	if s.target.Password != "" {
		trips++
	}
	return s.target.Trips.Distance(trips)
}

// quote writes an identifier, which may have one dot.
func (s *Store) quote(name string) string {
	q := s.dialect.Quote
	return q + strings.ReplaceAll(name, ".", q+"."+q) + q
}

// Abilities implements locks.Store.
func (s *Store) Abilities() locks.Abilities { return lease.Abilities(s) }

// Close implements locks.Store. There is nothing to close: connections belong
// to admissions and leases.
func (s *Store) Close() error { return nil }

// Warnings implements locks.Leases.
func (s *Store) Warnings(waiting bool) []string {
	noMark := s.noMark.Load()
	switch {
	case waiting && s.noNotify.Load():
		return []string{poolerText + ": who waits cannot be woken and looks again now and then"}
	case !waiting && noMark != nil:
		return []string{*noMark}
	}
	return nil
}

const poolerText = "there is a pooler or proxy between golock and the server that does not keep connections together"

// keptConns returns how many waiters of a name keep a connection. If the URL does not say that, it is a
// quarter of the connections that the server allows.
func (s *Store) keptConns() int {
	if s.target.waiters >= 0 {
		return s.target.waiters
	}
	return int(s.maxConns.Load() / 4)
}

// abilities returns what waiters can expect of the server. It depends on how many connections the server allows.
func (s *Store) abilities() queue.Abilities {
	kept := s.keptConns()
	a := queue.Abilities{
		Wakes: min(kept, s.dialect.Listeners), Connections: kept,
		// A peek reads one column of one row.
		Peeks: queue.Spacing{Least: 50 * time.Millisecond, LeastPerTurn: 15 * time.Millisecond},
	}
	if s.noNotify.Load() {
		a.Wakes = 0
	}
	return a
}

// Forget implements locks.Queue.
func (s *Store) Forget(ctx context.Context, name string) error {
	c := &session{store: s}
	defer c.disconnect()
	return c.retryCall(ctx, func(ctx context.Context) error {
		_, err := c.write(ctx, fmt.Sprintf("DELETE FROM %s WHERE lock_key='%s'", s.table, locks.KeyOf(name)))
		return err
	})
}
