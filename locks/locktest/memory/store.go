// Package memory is a store in the memory of one process. No program links it. It shows how little a store on
// package queue and package lease needs, and it runs in virtual time (testing/synctest), with faults that a test
// chooses: so the conformance suite tries thousands of schedules in a second that no server would let it try.
package memory

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// Store is a client of a Table, as a process with its connection is a client of a server.
type Store struct {
	lease.Engine
	table  *Table
	killed atomic.Bool
}

var _ locks.Store = (*Store)(nil)

// Server gives tables URLs, and opens them. Its zero value is ready for use.
type Server struct {
	mu     sync.Mutex
	tables []*Table
}

// Add returns the URL of a table.
func (s *Server) Add(t *Table) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tables = append(s.tables, t)
	return fmt.Sprintf("memory://%d", len(s.tables))
}

// Open returns a store on the table with that URL.
func (s *Server) Open(url string) (locks.Store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := strconv.Atoi(strings.TrimPrefix(url, "memory://"))
	if err != nil || n < 1 || n > len(s.tables) {
		return nil, fmt.Errorf("%s: no table has this URL", url)
	}
	return newStore(url, s.tables[n-1]), nil
}

func newStore(url string, t *Table) *Store {
	s := &Store{table: t}
	s.Engine = lease.NewEngine(url, s.newEntry, s.entryOf)
	return s
}

var errKilled = errors.New("the process of this store was killed")

// Kill makes a store behave as if its process had been killed: it sends no request any more.
func Kill(s locks.Store) { s.(*Store).killed.Store(true) }

// Abilities implements locks.Store.
func (s *Store) Abilities() locks.Abilities { return lease.Abilities(s) }

// Close implements locks.Store. Nothing stays open.
func (s *Store) Close() error { return nil }

// Warnings implements locks.Leases. There are none.
func (s *Store) Warnings(bool) []string { return nil }

// Examine implements locks.Store. No promise of the store depends on what it could examine.
func (s *Store) Examine(context.Context, time.Duration) (found []locks.Finding, err error) {
	return []locks.Finding{{Level: locks.OK, Subject: "memory", What: "the locks of one process"}}, nil
}

// Entries implements locks.Store.
func (s *Store) Entries(ctx context.Context, name string) ([]locks.Entry, error) {
	return ask(ctx, s, func() []locks.Entry { return s.table.entries(name) })
}

// Find implements locks.Queue.
func (s *Store) Find(ctx context.Context, ref locks.Ref) (locks.Entry, error) {
	all, err := s.Entries(ctx, "")
	return ref.In(all, err)
}

// Sweep implements locks.Queue.
func (s *Store) Sweep(ctx context.Context, name string, olderThan time.Duration) (removed int, err error) {
	return ask(ctx, s, func() int { return s.table.sweep(name, olderThan) })
}

// Forget implements locks.Queue.
func (s *Store) Forget(ctx context.Context, name string) error {
	_, err := ask(ctx, s, func() struct{} {
		s.table.forget(name)
		return struct{}{}
	})
	return err
}

// ask sends the table a question that concerns no single entry, until it gets an answer or ctx ends.
func ask[T any](ctx context.Context, s *Store, do func() T) (answer T, err error) {
	ctx, cancel := context.WithTimeout(ctx, lease.ListLimit)
	defer cancel()
	err = lease.Retry(ctx, s.URL(), func() (err error) {
		answer, err = travel(ctx, s, queue.Question{}, do)
		return err
	})
	return answer, lease.Located(s.URL(), err)
}

// travel carries a request to the table, and the answer of do back, unless one of them gets lost. A request that
// arrives after ctx has ended has its effect all the same.
func travel[T any](ctx context.Context, s *Store, q queue.Question, do func() T) (none T, err error) {
	if s.killed.Load() {
		return none, &lease.Refusal{Err: errKilled}
	}
	t := s.table
	t.mu.Lock()
	fate, there, back := t.Faults.fate(q), t.Faults.delay(q), t.Faults.delay(q)
	t.mu.Unlock()
	answered := make(chan T, 1)
	time.AfterFunc(there, func() {
		if fate == LoseRequest {
			return
		}
		t.mu.Lock()
		answer := do()
		t.mu.Unlock()
		if fate != LoseAnswer {
			time.AfterFunc(back, func() { answered <- answer })
		}
	})
	select {
	case answer := <-answered:
		return answer, nil
	case <-ctx.Done():
		return none, lease.NoAnswer{Cause: context.Cause(ctx)}
	}
}
