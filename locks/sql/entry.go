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
	known     known
	failed    bool // the last Ask failed
	pace      pace
	idleTimer *time.Timer // closes the connection of a holder
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

	// keepConn is for how long a waiter further back, but not far, keeps its connection for its
	// next look: in a queue that moves quickly, to connect costs more than to look.
	keepConn = 250 * time.Millisecond
)

func (s *Store) entryOf(ref locks.Ref) *entry {
	return &entry{store: s, session: &session{store: s}, ref: ref, known: known{ttl: lease.DefaultTTL}}
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
		Entry: queue.Entry{State: queue.Waiting, ID: r.Ref.ID.String(), Claim: claim, Replace: r.Replace},
		ttl:   e.known.ttl, hold: micros(r.Hold), info: infoOf(r),
	}
	return e
}

// Ask implements lease.Entry. A waiter far back only looks at its place.
func (e *entry) Ask(ctx context.Context, step lease.Step) (lease.Answer, locks.Instant, error) {
	e.mu.Lock()
	k, failed := e.known, e.failed
	e.mu.Unlock()
	sent := e.store.clock()
	if step == lease.Join && !failed { // after a failure one attempt is enough
		if place, lateIn, ok := e.session.prolongPlace(ctx, e.ref.Key.String(), k); ok {
			e.mu.Lock()
			defer e.mu.Unlock()
			recheck := k.ttl / 3
			if k.mine.conn == 0 {
				recheck = e.pause(place - 1)
			}
			e.moveTo(place)
			return lease.Answer{Verdict: lease.Queued, Place: place, Recheck: min(recheck, lateIn+time.Millisecond)}, sent, nil
		}
	}
	q := e.question(step, k)
	a, err := e.session.step(ctx, k.ttl, q)
	if err == nil && a.Verdict == lease.Granted && e.store.clock().Sub(sent) > k.ttl/2 {
		err = lease.NoAnswer{} // too late to start a command: the next answer prolongs the lease
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.known.sent = e.known.sent || q.sent
	e.failed = err != nil
	if err != nil {
		e.known.mine.conn = 0 // there is no connection to be woken over
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
	q := &question{key: e.ref.Key.String(), name: k.name, mine: k.mine, sent: k.sent, pause: e.pause}
	q.mine.ID = e.ref.ID.String()
	q.Question = queue.Question{Step: step, Entry: q.mine.Entry, Known: k.row, Epoch: k.epoch, NoWait: e.noWait, MaxQueue: e.maxQueue, By: e.by, Within: e.within}
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
		e.moveTo(a.Place)
		a.TTL, a.Grant = k.ttl, locks.Grant{Ref: e.ref, Slots: k.mine.Slots, Fence: k.mine.Fence}
	}
	show := func(rows []row) (all []locks.Entry) {
		for i := range rows {
			all = append(all, rows[i].entry(k.name, e.ref.Key.String(), a.now))
		}
		return all
	}
	a.Holders, a.Replaced = show(a.holders), show(a.replaced)
}

func (e *entry) moveTo(place int) {
	e.known.place = place
	e.pace.learn(place)
}

// pause is for a waiter with so many ahead of it that cannot be woken.
func (e *entry) pause(ahead int) time.Duration {
	p := e.pace
	p.learn(ahead + 1)
	return p.pause(e.known.ttl, e.store.listeners())
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
	k := e.known
	e.mu.Unlock()
	mine, sent, err := e.session.sleep(ctx, e.ref.Key.String(), k, d)
	switch {
	case err != nil && !errors.Is(err, context.Canceled) && !lease.IsTemporary(err):
		return lease.Answer{}, 0, err
	case err != nil || mine.ID == "":
		return lease.Answer{}, 0, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	a := answer{Answer: lease.Answer{Verdict: lease.Granted, Epoch: k.epoch}, mine: mine, name: k.name}
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
	e.session.idle()
}
