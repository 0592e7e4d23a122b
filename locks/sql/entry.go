package sql

import (
	"context"
	"errors"
	"sync"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// entry implements lease.Entry.
//
// A holder's connection is open for a moment after the grant and during each
// renewal: databases have few, and most short commands have ended by then. While
// somebody waits it stays open, so that the slot is handed on without connecting
// first; but of many holders of one name none keeps it.
type entry struct {
	store    *Store
	session  *session
	ref      locks.Ref
	question queue.Question // what each step is asked with

	mu        sync.Mutex // guards what follows; not held while the server is asked
	state     entryState
	idleTimer *time.Timer // closes the connection of a holder
}

// entryState is what an entry knows of itself from the last answer.
type entryState struct {
	key   string // hash of the name
	name  string // "" if only the ref is known; then the row has only ID and TTL
	epoch string
	row   row
	pace
}

const (
	// idleLimit is how long the connection of a grant is kept.
	idleLimit = time.Second

	// keepConn is the longest pause for which a waiter beyond keptConns, but not far, keeps its
	// connection: in a queue that moves quickly, connecting costs more than looking.
	keepConn = 250 * time.Millisecond
)

func (s *Store) entryOf(ref locks.Ref, by string) *entry {
	e := &entry{store: s, session: &session{store: s}, ref: ref}
	e.question.By = by
	e.state.key, e.state.row.ID, e.state.row.ttl = ref.Key.String(), ref.ID.String(), lease.DefaultTTL
	return e
}

func (s *Store) newEntry(r locks.Request) *entry {
	e := s.entryOf(r.Ref, "")
	e.question = queue.Question{
		NoWait: r.NoWait, MaxQueue: r.MaxQueue, Within: lease.Enclosing(r), By: locks.ReplacedBy(r),
	}
	e.state.name = r.Name
	row := &e.state.row
	row.State, row.Claim, row.Replace = queue.Waiting, r.Claim, r.Replace
	row.Claim.Ticket = 0 // the store gives them
	row.ttl = r.TTL
	row.hold, row.info = micros(r.Hold), infoOf(r)
	return e
}

// Ask implements lease.Entry. A waiter far back only looks at its place.
func (e *entry) Ask(ctx context.Context, step lease.Step) (lease.Answer, locks.Instant, error) {
	e.mu.Lock()
	m := e.state
	e.mu.Unlock()
	sent := locks.BootTime()
	if step == lease.Join {
		if a, ok := e.session.prolongPlace(ctx, m); ok {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.state.learn(a.Place, a.change)
			return a.Answer, sent, nil
		}
	}
	q := &question{entryState: m, Question: e.question}
	q.Step, q.Entry, q.Known, q.Epoch = step, m.row.Entry, m.name != "", m.epoch
	a, err := e.session.step(ctx, q)
	if err == nil && a.Verdict == lease.Granted && locks.BootTime().Sub(sent) > m.row.ttl/2 {
		err = lease.NoAnswer{} // too late to start a command: the next answer prolongs the lease
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		// There is no connection to be woken over. Without a place the next attempt is a step,
		// and the pause before it is kept.
		e.state.row.conn, e.state.place = 0, 0
		return lease.Answer{}, sent, err
	}
	e.learn(&a)
	switch {
	case a.Verdict == lease.Granted, a.Verdict == lease.Held && a.keepConn:
		e.keepOpen(a.keepConn)
	case step == lease.Renew:
		e.session.disconnect()
	}
	return a.Answer, sent, nil
}

// learn keeps what an answer says, and completes it for the caller.
func (e *entry) learn(a *answer) {
	if a.row.ID != "" { // granted, held or queued
		m := &e.state
		m.name, m.epoch, m.row = a.name, a.Epoch, a.row
		m.learn(a.Place, a.change)
		a.TTL, a.Grant = m.row.ttl, locks.Grant{Ref: e.ref, Slots: m.row.Slots, Fence: m.row.Fence}
	}
}

// keepOpen keeps a holder's connection for idleLimit. If others wait it keeps it for a
// TTL, in which the next renewal comes.
func (e *entry) keepOpen(others bool) {
	d := idleLimit
	if others {
		d = e.state.row.ttl
	}
	if e.idleTimer == nil {
		e.idleTimer = time.AfterFunc(d, e.session.disconnect)
	} else {
		e.idleTimer.Reset(d)
	}
}

// Sleep implements lease.Entry. A waiter whose connection is lost comes again soon.
func (e *entry) Sleep(ctx context.Context, d time.Duration, _ func()) (lease.Answer, locks.Instant, error) {
	e.mu.Lock()
	m := e.state
	e.mu.Unlock()
	row, sent, err := e.session.sleep(ctx, m, d)
	switch {
	case err != nil && !errors.Is(err, context.Canceled) && !lease.IsTemporary(err):
		return lease.Answer{}, 0, err
	case err != nil || row.State != queue.Holding:
		return lease.Answer{}, 0, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	a := answer{Answer: lease.Answer{Verdict: lease.Granted, Epoch: m.epoch}, row: row, name: m.name}
	e.learn(&a)
	e.keepOpen(true)
	return a.Answer, sent, nil
}

// Events implements lease.Entry. There are none: no connection is kept that could
// bring them.
func (e *entry) Events() <-chan struct{} { return nil }

// Close implements lease.Entry.
func (e *entry) Close() {
	e.mu.Lock()
	if e.idleTimer != nil {
		e.idleTimer.Stop()
	}
	e.mu.Unlock()
	e.session.disconnect()
}
