// Package sql keeps locks in a table of a database: lease rows, on the
// server's clock. The dialects, MySQL's (and MariaDB's) and PostgreSQL's, are
// packages below it.
//
// Every step is one transaction that locks the name's own row, reads (view.go),
// decides (step.go, the same rules for all servers), writes and commits. No
// lock of the server's lives longer than that: a killed connection, a pooler
// or a time limit of the server's neither loses a slot nor gives it twice. It
// promises strict order, exclusion among leases that are renewed in time, and
// that no repeated or lost message makes a second entry or loses one.
//
// It cannot promise what the server does not: one that forgets what it has
// committed (a replica that takes over too early, a server that is set to lose
// the last second in a crash). A server that has come back grants nothing new
// for a while (the quarantine), so that holders that it forgot can put their
// leases back. The fence grows over all of that as long as the servers' clocks
// do not go back.
package sql

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golock/locks"
)

// maxUnits is the largest weight: every unit has a slot number.
const maxUnits = 1 << 16

// defaultTTL is for requests that name none.
const defaultTTL = 30 * time.Second

// Store is a table in a database. It does nothing until it is used.
type Store struct {
	target  *Target
	dialect Dialect
	table   string // quoted
	clock   locks.Clock
	host    atomic.Int64 // which of the target's hosts is tried first
	deaf    atomic.Bool  // connections cannot be woken
}

// Open understands a URL of the dialect's. It does no I/O. Errors name the part
// of the URL that is wrong and show no secrets.
func Open(address string, d Dialect) (*Store, error) {
	t, err := parse(address, d)
	if err != nil {
		return nil, err
	}
	return &Store{target: t, dialect: d, table: d.Quote(t.table), clock: locks.BootTime}, nil
}

// URL implements locks.Store.
func (s *Store) URL() string { return s.target.String() }

// Traits implements locks.Store.
func (s *Store) Traits() locks.Traits {
	return locks.Traits{Leased: true, MaxUnits: maxUnits, Queue: true, Hold: true}
}

// Close implements locks.Store. There is nothing to close: connections belong
// to tickets and leases.
func (s *Store) Close() error { return nil }

// Warnings implements locks.Warner.
func (s *Store) Warnings() []string {
	if s.deaf.Load() {
		return []string{"there is a pooler or proxy between golock and the server that does not keep connections together: who waits cannot be woken and looks again now and then"}
	}
	return nil
}

// Join implements locks.Store.
func (s *Store) Join(ctx context.Context, r locks.Request) (locks.Ticket, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s: not asked yet: %w", s.URL(), err)
	}
	e := s.newEntry(r)
	line := &line{store: s}
	var a answer
	var asked locks.Instant
	err := s.insist(ctx, func() (err error) {
		a, asked, err = e.ask(ctx, line, join)
		return err
	})
	if err != nil {
		line.close()
		if !isFinal(err) {
			e.giveUp(ctx, nil) // the server may have been told and its answer lost
			return nil, err
		}
		return nil, s.located(err)
	}
	switch a.word {
	case granted:
		return &ticket{entry: e, lease: newLease(e, line, asked, a.crowd), replaced: e.others(a)}, nil
	case queued:
		t := &ticket{entry: e, line: line, queued: true, look: a.look, quiet: time.Now().Add(a.quiet), replaced: e.others(a)}
		t.place.Store(int64(a.place))
		return t, nil
	}
	line.close()
	return nil, e.refused(a)
}

// entry is what this process knows of one of its entries in the store.
type entry struct {
	store    *Store
	ref      locks.Ref
	name     string // "" if only the ref is known
	ttl      time.Duration
	epoch    string
	mine     row
	known    bool // mine is more than an id
	sent     bool // a step of it may have been done
	place    int  // the last that was answered; 0: none
	noWait   bool
	within   []locks.Ref
	maxQueue *int
	who      string
}

func (s *Store) newEntry(r locks.Request) *entry {
	e := &entry{store: s, ref: r.Ref, name: r.Name, ttl: r.TTL, noWait: r.NoWait, maxQueue: r.MaxQueue, known: true}
	if e.ttl <= 0 {
		e.ttl = defaultTTL
	}
	for _, w := range r.Within {
		if w.Key == r.Ref.Key {
			e.within = append(e.within, w)
		}
	}
	claim := r.Claim
	claim.Ticket = 0 // the store gives them
	e.mine = row{state: waiting, id: idOf(r.Ref), claim: claim, ttl: e.ttl, hold: micros(r.Hold), replaces: r.Replace, info: describe(r).String()}
	e.who = locks.ReplacedBy(r)
	return e
}

func idOf(ref locks.Ref) string { return hex.EncodeToString(ref.ID[:]) }

// ask makes one step for e and keeps what it learns. asked is the moment before
// the question was written.
func (e *entry) ask(ctx context.Context, l *line, m mode) (a answer, asked locks.Instant, err error) {
	q := &question{
		mode: m, key: e.ref.Key.String(), name: e.name, mine: e.mine, known: e.known, sent: e.sent, epoch: e.epoch, noWait: e.noWait, maxQueue: e.maxQueue,
		near: e.place > 0 && e.place <= 3, who: e.who,
	}
	q.mine.id = idOf(e.ref)
	for _, w := range e.within {
		q.within = append(q.within, idOf(w))
	}
	asked = e.store.clock()
	a, err = l.step(ctx, e.ttl, q)
	e.sent = e.sent || q.sent
	if err != nil {
		return a, asked, err
	}
	switch a.word {
	case granted, queued, held:
		e.epoch, e.mine, e.known, e.ttl, e.place = a.epoch, a.mine, true, a.mine.ttl, a.place
		if e.name == "" {
			e.name = a.name
		}
	}
	return a, asked, nil
}

// leaveLimit is until when one tries to tell the store that an entry is given
// up, leaveWait how much of that a caller waits. His caller has no patience:
// later the reason would be lost.
const (
	leaveLimit = 2 * time.Second
	leaveWait  = 40 * time.Millisecond
)

// giveUp leaves, over a line that nobody else uses any more, or over a new one
// if it is nil. It waits a moment for the store to know, as the process may be
// about to end; the rest is done in the background. A process that is about to
// stand still (the cause of ctx) has no background.
func (e *entry) giveUp(ctx context.Context, l *line) {
	wait := leaveWait
	if errors.Is(context.Cause(ctx), locks.ErrStandsStill) {
		wait = leaveLimit
	}
	gone := *e // its owner may go on with it
	if l == nil {
		l = &line{store: e.store}
	}
	told := make(chan struct{})
	go func() {
		defer close(told)
		gone.leave(l)
	}()
	patience := time.NewTimer(wait)
	defer patience.Stop()
	select {
	case <-told:
	case <-patience.C:
	}
}

// leave tells the store that the entry is given up, and closes the line.
func (e *entry) leave(l *line) {
	ctx, cancel := context.WithTimeout(context.Background(), leaveLimit)
	defer cancel()
	defer l.close()
	_ = e.store.insist(ctx, func() error {
		_, _, err := e.ask(ctx, l, quit)
		return err
	})
}

// refused makes an error of an answer that is one.
func (e *entry) refused(a answer) error {
	if a.word == evicted {
		return &locks.EvictedError{By: a.by}
	}
	busy := &locks.BusyError{Name: e.name, Waiters: a.waiters, Full: a.full}
	for i := range a.holders {
		busy.Holders = append(busy.Holders, a.holders[i].entry(e.name, e.ref.Key, a.now))
	}
	if a.quiet > 0 {
		busy.Reason = whyQuiet(a.quiet)
	}
	switch a.word {
	case nested:
		err := &locks.NestedError{Name: e.name, Busy: busy}
		for _, w := range e.within {
			if idOf(w) == a.inside {
				err.Inside = w
			}
		}
		return err
	case left:
		busy.Reason = "this request was taken out of the queue"
	}
	return busy
}

// others are those that a newcomer has evicted.
func (e *entry) others(a answer) []locks.Entry {
	var all []locks.Entry
	for i := range a.replaced {
		all = append(all, a.replaced[i].entry(e.name, e.ref.Key, a.now))
	}
	return all
}

func whyQuiet(left time.Duration) string {
	return fmt.Sprintf("the server, or the table, has just come back; nothing is granted for another %v, so that those who held a slot can say so", left.Round(100*time.Millisecond))
}

// retryPause lies between two attempts, and grows with their number.
const (
	retryPause   = 200 * time.Millisecond
	longestPause = time.Second
)

// insist repeats attempts until one is answered, fails for good, or ctx ends.
func (s *Store) insist(ctx context.Context, attempt func() error) error {
	var last error
	for wait := retryPause; ; wait = min(wait*3/2, longestPause) {
		err := attempt()
		if err == nil || isFinal(err) {
			return err
		}
		if last == nil || (ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded)) { // the last attempt is often cut short
			last = err
		}
		pause(ctx, wait+rand.N(wait/2)) // not all at the same moment
		if ctx.Err() != nil {
			return &locks.OutageError{Store: s.URL(), Err: last}
		}
	}
}

// pause sleeps, not longer than ctx lasts.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Evict implements locks.Evicter.
func (s *Store) Evict(ctx context.Context, ref locks.Ref, by string) error {
	e := &entry{store: s, ref: ref, ttl: defaultTTL, who: by}
	l := &line{store: s}
	defer l.close()
	var a answer
	doubtful := false // an attempt may have been done, its answer lost
	err := s.insist(ctx, func() (err error) {
		a, _, err = e.ask(ctx, l, evict)
		doubtful = doubtful || err != nil || a.doubtful
		return err
	})
	switch {
	case err != nil:
		return s.located(err)
	case a.word == lost && !doubtful:
		return locks.ErrLost
	}
	return nil
}
