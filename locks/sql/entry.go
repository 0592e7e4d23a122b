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
	noWait   bool
	maxQueue *int
	within   []string
	by       string // who it is, for those that it evicts

	mu        sync.Mutex // guards what follows; not held while the server is asked
	memory    memory
	failed    bool        // the last Ask failed
	idleTimer *time.Timer // closes the connection of a holder
}

// memory is what an entry knows of itself from the last answer.
type memory struct {
	key   string // hash of the name
	name  string // "" if only the ref is known; then mine has only ID and TTL
	epoch string
	mine  row
	pace
}

const (
	// idleLimit is how long the connection of a grant is kept.
	idleLimit = time.Second

	// keepConn is for how long a waiter further back, but not far, keeps its connection for its
	// next look: in a queue that moves quickly, to connect costs more than to look.
	keepConn = 250 * time.Millisecond
)

func (s *Store) entryOf(ref locks.Ref) *entry {
	mine := row{Entry: queue.Entry{ID: ref.ID.String()}, ttl: lease.DefaultTTL}
	return &entry{store: s, session: &session{store: s}, ref: ref, memory: memory{key: ref.Key.String(), mine: mine}}
}

func (s *Store) newEntry(r locks.Request) *entry {
	e := s.entryOf(r.Ref)
	e.noWait, e.maxQueue, e.within, e.by = r.NoWait, r.MaxQueue, lease.Enclosing(r), locks.ReplacedBy(r)
	e.memory.name = r.Name
	mine := &e.memory.mine
	mine.State, mine.Claim, mine.Replace = queue.Waiting, r.Claim, r.Replace
	mine.Claim.Ticket = 0 // the store gives them
	if r.TTL > 0 {
		mine.ttl = r.TTL
	}
	mine.hold, mine.info = micros(r.Hold), infoOf(r)
	return e
}

// Ask implements lease.Entry. A waiter far back only looks at its place.
func (e *entry) Ask(ctx context.Context, step lease.Step) (lease.Answer, locks.Instant, error) {
	e.mu.Lock()
	m, failed := e.memory, e.failed
	e.mu.Unlock()
	sent := e.store.clock()
	if step == lease.Join && !failed { // after a failure one attempt is enough
		if place, lateIn, ok := e.session.prolongPlace(ctx, m); ok {
			e.mu.Lock()
			defer e.mu.Unlock()
			recheck := m.mine.ttl / 3
			if m.mine.conn == 0 {
				recheck = m.pauseBehind(place-1, e.store.listeners())
			}
			e.memory.learn(place)
			recheck = min(recheck, lateIn+time.Millisecond)
			return lease.Answer{Verdict: lease.Queued, Place: place, Recheck: recheck}, sent, nil
		}
	}
	a, err := e.session.step(ctx, e.question(step, m))
	if err == nil && a.Verdict == lease.Granted && e.store.clock().Sub(sent) > m.mine.ttl/2 {
		err = lease.NoAnswer{} // too late to start a command: the next answer prolongs the lease
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failed = err != nil
	if err != nil {
		e.memory.mine.conn = 0 // there is no connection to be woken over
		if step == lease.Renew {
			e.session.disconnect()
		}
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

func (e *entry) question(step lease.Step, m memory) *question {
	return &question{memory: m, Question: queue.Question{
		Step: step, Entry: m.mine.Entry, Known: m.name != "", Epoch: m.epoch,
		NoWait: e.noWait, Within: e.within, MaxQueue: e.maxQueue, By: e.by,
	}}
}

// learn keeps what an answer says, and completes it for the caller.
func (e *entry) learn(a *answer) {
	if a.mine.ID != "" { // granted, held or queued
		m := &e.memory
		m.name, m.epoch, m.mine = a.name, a.Epoch, a.mine
		m.learn(a.Place)
		a.TTL, a.Grant = m.mine.ttl, locks.Grant{Ref: e.ref, Slots: m.mine.Slots, Fence: m.mine.Fence}
	}
}

// keepOpen keeps a holder's connection for idleLimit. If others wait it keeps it for a
// TTL, in which the next renewal comes.
func (e *entry) keepOpen(others bool) {
	d := idleLimit
	if others {
		d = e.memory.mine.ttl
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
	m := e.memory
	e.mu.Unlock()
	mine, sent, err := e.session.sleep(ctx, m, d)
	switch {
	case err != nil && !errors.Is(err, context.Canceled) && !lease.IsTemporary(err):
		return lease.Answer{}, 0, err
	case err != nil || mine.ID == "":
		return lease.Answer{}, 0, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	a := answer{Answer: lease.Answer{Verdict: lease.Granted, Epoch: m.epoch}, mine: mine, name: m.name}
	e.learn(&a)
	e.keepOpen(true)
	return a.Answer, sent, nil
}

// Events implements lease.Entry. There are none: no connection is kept that could
// bring them.
func (e *entry) Events() <-chan locks.Event { return nil }

// Close implements lease.Entry.
func (e *entry) Close() {
	e.mu.Lock()
	if e.idleTimer != nil {
		e.idleTimer.Stop()
	}
	e.mu.Unlock()
	e.session.disconnect()
}
