package sql

import (
	"context"
	"encoding/hex"
	"errors"
	"sync"
	"time"

	"golock/locks"
	"golock/locks/lease"
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
	within   []locks.Ref
	by       string // who it is, for those that it evicts

	mu        sync.Mutex // guards what follows; not held while the server is asked
	known     known
	failed    bool          // the last Ask failed
	keep      time.Duration // a sleep that is longer closes the connection
	idleTimer *time.Timer   // closes the connection of a holder
}

// known is what an entry has learned from the last answer.
type known struct {
	name  string // "" if only the ref is known
	ttl   time.Duration
	epoch string
	mine  row
	row   bool // mine is more than an id
	sent  bool // a step of it may have been done
	place int  // 0: none
}

const (
	// idleLimit is how long the connection of a grant is kept.
	idleLimit = time.Second

	// keepConn is for how long a waiter that the store does not wake keeps its
	// connection for its next look if it has come further since the last one: in a
	// queue that moves quickly, to connect costs more than to look.
	keepConn = 250 * time.Millisecond
)

func (s *Store) entryOf(ref locks.Ref) *entry {
	return &entry{store: s, session: &session{store: s}, ref: ref, keep: shortestPoll, known: known{ttl: lease.DefaultTTL}}
}

func (s *Store) newEntry(r locks.Request) *entry {
	e := s.entryOf(r.Ref)
	e.noWait, e.maxQueue, e.within, e.by = r.NoWait, r.MaxQueue, lease.Enclosing(r), locks.ReplacedBy(r)
	if r.TTL > 0 {
		e.known.ttl = r.TTL
	}
	claim := r.Claim
	claim.Ticket = 0 // the store gives them
	e.known.name, e.known.row = r.Name, true
	e.known.mine = row{
		state: waiting, id: idOf(r.Ref), claim: claim, ttl: e.known.ttl, hold: micros(r.Hold),
		replaces: r.Replace, info: infoOf(r),
	}
	return e
}

func idOf(ref locks.Ref) string { return hex.EncodeToString(ref.ID[:]) }

// Ask implements lease.Entry. A waiter far back only looks at its place.
func (e *entry) Ask(ctx context.Context, step lease.Step) (lease.Answer, locks.Instant, error) {
	e.mu.Lock()
	k, failed := e.known, e.failed
	e.mu.Unlock()
	sent := e.store.clock()
	if step == lease.Join && !failed { // after a failure one attempt is enough
		if a, ok := e.session.peekPosition(ctx, e.ref.Key.String(), k); ok {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.moved(a.Place)
			return a, sent, nil
		}
	}
	q := e.question(step, k)
	a, err := e.session.step(ctx, k.ttl, q)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.known.sent = e.known.sent || q.sent
	e.failed = err != nil
	if err != nil {
		e.known.mine.wakeConn = 0 // there is no connection to be woken over
		if step == lease.Renew {
			e.session.idle()
		}
		return lease.Answer{}, sent, err
	}
	e.learn(&a)
	switch {
	case a.Verdict == lease.Granted, a.Verdict == lease.Held && a.keepConn:
		e.keepOpen(a.keepConn)
	case step == lease.Renew:
		e.session.idle()
	}
	return a.Answer, sent, nil
}

func (e *entry) question(step lease.Step, k known) *question {
	q := &question{
		mode: step, key: e.ref.Key.String(), name: k.name, mine: k.mine, known: k.row, sent: k.sent, epoch: k.epoch,
		noWait: e.noWait, maxQueue: e.maxQueue, near: k.place > 0 && k.place <= 3, who: e.by,
	}
	q.mine.id = idOf(e.ref)
	for _, w := range e.within {
		q.within = append(q.within, idOf(w))
	}
	return q
}

// learn keeps what an answer says, and completes it for the caller.
func (e *entry) learn(a *answer) {
	k := &e.known
	switch a.Verdict {
	case lease.Granted, lease.Queued, lease.Held:
		k.epoch, k.mine, k.row, k.ttl = a.Epoch, a.mine, true, a.mine.ttl
		if k.name == "" {
			k.name = a.name
		}
		e.moved(a.Place)
		a.TTL, a.Grant = k.ttl, locks.Grant{Ref: e.ref, Slots: k.mine.slots, Fence: k.mine.fence}
	}
	show := func(rows []row) (all []locks.Entry) {
		for i := range rows {
			all = append(all, rows[i].entry(k.name, e.ref.Key, a.now))
		}
		return all
	}
	a.Holders, a.Replaced = show(a.holders), show(a.replaced)
	for _, w := range e.within {
		if idOf(w) == a.inside {
			a.Inside = w
		}
	}
}

func (e *entry) moved(place int) {
	e.keep = shortestPoll
	if place < e.known.place {
		e.keep = keepConn
	}
	e.known.place = place
}

// keepOpen keeps a holder's connection for idleLimit. If others wait it keeps it for a
// TTL, in which the next renewal comes.
func (e *entry) keepOpen(others bool) {
	d := idleLimit
	if others {
		d = e.known.ttl
	}
	if e.idleTimer == nil {
		e.idleTimer = time.AfterFunc(d, e.session.idle)
	} else {
		e.idleTimer.Reset(d)
	}
}

// Sleep implements lease.Entry. One that could be woken, over a connection that is
// lost, comes again soon.
func (e *entry) Sleep(ctx context.Context, d time.Duration, _ func()) (lease.Answer, locks.Instant, error) {
	e.mu.Lock()
	k, keep := e.known, e.keep
	e.mu.Unlock()
	err := e.session.sleep(ctx, e.ref, k, d, keep)
	if err != nil && !errors.Is(err, context.Canceled) && !lease.MayPass(err) {
		return lease.Answer{}, 0, err
	}
	return lease.Answer{}, 0, nil
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
	e.session.idle()
}
