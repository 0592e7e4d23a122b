package sql

import (
	"context"
	"errors"
	"strconv"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// entry implements lease.Entry.
//
// A holder's connection stays open while somebody waits, or while at most half of the server's are in use, so
// that the slot is renewed and handed on without connecting first. Otherwise it is open for a moment after
// the grant and each renewal: most short commands have ended by then. Of many holders of one name none
// keeps its connection. If the server is so far away that connecting would take most of an attempt, the
// connection stays open while the server has room.
type entry struct {
	session
	ref locks.Ref

	// The session's mutex guards what follows.
	question
	idleTimer *time.Timer // closes the connection of a holder; nil before the first use
}

// idleLimit is how long a holder keeps its connection in any case.
const idleLimit = time.Second

func (s *Store) entryOf(ref locks.Ref, by string) *entry {
	e := &entry{session: session{store: s}, ref: ref}
	e.By = by
	e.key, e.row.ID, e.row.ttl = ref.Key.String(), ref.ID.String(), lease.DefaultTTL
	return e
}

func (s *Store) newEntry(r locks.Request) *entry {
	e := s.entryOf(r.Ref, "")
	e.NoWait, e.MaxQueue, e.Within, e.By = r.NoWait, r.MaxQueue, queue.Enclosing(r), locks.ReplacedBy(r)
	e.name, e.hooks = r.Name, r.Hooks
	row := &e.row
	row.State, row.Claim, row.Replace = queue.Waiting, r.Claim, r.Replace
	row.Claim.Ticket = 0 // the store gives tickets
	row.ttl = r.TTL
	row.hold, e.laterHold, row.info = micros(r.GrantHold()), micros(r.LaterHold()), infoOf(r)
	return e
}

// Ask implements lease.Entry.
func (e *entry) Ask(ctx context.Context, step queue.Step) (a lease.Answer, sent locks.Instant, err error) {
	err = e.guard(func() (err error) {
		a, sent, err = e.attempt(ctx, step)
		return err
	})
	return a, sent, err
}

// attempt makes one attempt at a step. A waiter beyond the first places only prolongs its place and counts who
// is ahead (prolongPlace). A release first tries a single text (handOver). The caller has locked the
// session.
func (e *entry) attempt(ctx context.Context, step queue.Step) (a lease.Answer, sent locks.Instant, err error) {
	e.question.Step, e.question.Entry = step, e.row.Entry
	limit := lease.AttemptLimit(e.row.ttl, e.store.distance())
	if e.isNew() {
		limit = max(limit, e.store.target.newcomerAttempt())
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	sent = locks.BootTime()
	isDone, isDoubtful := false, false
	switch step {
	case queue.Join:
		isDone = e.prolongPlace(ctx, &a)
	case queue.Release:
		isDone, isDoubtful = e.handOver(ctx, limit, &a)
	}
	if isDone {
		return a, sent, nil
	}
	t, err := e.makeStep(ctx, &e.question)
	if err == nil && t.sent > 0 {
		sent = t.sent
	}
	if err == nil && t.answer.Verdict == queue.Granted && locks.BootTime().Sub(sent) > e.row.ttl/2 {
		err = lease.NoAnswer{} // too late to start a command: the next answer prolongs the lease
	}
	if err != nil {
		// There is no connection to be woken over. Without a place the next attempt is a step,
		// and the pause before it is kept.
		e.row.wakeConn, e.place, e.isCrowded = 0, 0, true
		return a, sent, err
	}
	a = t.answer
	a.Doubtful = a.Doubtful || isDoubtful
	if t.callerRow != nil {
		e.name, e.Epoch, e.row = t.name.name, a.Epoch, *t.callerRow
		e.learn(a.Place, t.name.moved, t.pace)
		e.addGrant(&a)
	}
	mayKeep := t.hasFewHolders() || e.isFar()
	switch {
	case a.Verdict == queue.Granted, a.Verdict == queue.Held && mayKeep:
		e.keepOpen(mayKeep, t.hasFewHolders() && t.hasWaiters())
	case step.Renews():
		e.closeConn()
	}
	return a, sent, nil
}

// isFar reports whether connecting takes so long that each renewal would be at the limit of an attempt.
// Then a holder keeps its connection.
func (e *entry) isFar() bool {
	return 2*e.store.distance().Renewal() > locks.NearRenewalLimit(e.row.ttl)
}

// addGrant adds to an answer the grant and the lease time of the entry.
func (e *entry) addGrant(a *lease.Answer) {
	a.TTL, a.Distance = e.row.ttl, e.store.distance()
	a.Grant = locks.Grant{Ref: e.ref, Slots: e.row.Slots, Fence: e.row.Fence}
}

// keepLimit is how long a holder keeps an unused connection at most. Firewalls forget a connection that is
// silent for longer, and the dialect of MySQL makes the server end it.
const keepLimit = 45 * time.Second

// keepOpen keeps a holder's connection for idleLimit. If the holder may keep it, the connection stays open until
// after the next renewal, as long as the slot is awaited or the server has room.
func (e *entry) keepOpen(mayKeep, isAwaited bool) {
	switch {
	case !mayKeep:
		e.closeIn(idleLimit)
	case isAwaited:
		e.closeAfterRenewal()
	default:
		e.closeUnless(e.hasRoom, idleLimit)
	}
}

// closeAfterRenewal closes the connection after a TTL, in which the next renewal comes.
func (e *entry) closeAfterRenewal() { e.closeIn(min(e.row.ttl, keepLimit)) }

// closeIn closes the connection after a time.
func (e *entry) closeIn(d time.Duration) {
	never := func() bool { return false }
	e.closeUnless(never, d)
}

// closeUnless closes the connection after a time, unless it may stay then: then it is closed a TTL later.
func (e *entry) closeUnless(mayStay func() bool, d time.Duration) {
	if e.idleTimer != nil {
		e.idleTimer.Stop()
	}
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		defer locks.Recover(new(error)) // the next call to the server meets the same fault
		e.mu.Lock()
		defer e.mu.Unlock()
		switch {
		case e.idleTimer != timer || e.conn == nil: // the connection was used since, or is closed
		case mayStay():
			e.closeAfterRenewal()
		default:
			e.closeConn()
		}
	})
	e.idleTimer = timer
}

// roomLimit limits how long the server may take to say how many connections it has: a release waits for that.
const roomLimit = time.Second

// hasRoom reports whether at most half of the connections that the server allows are in use. It returns
// false behind a pooler, whose limit is not known. The caller has locked the session.
func (e *entry) hasRoom() bool {
	if !e.isDirect() {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), roomLimit)
	defer cancel()
	answers, err := e.ask(ctx, e.store.dialect.InUse, shape{2, 1})
	if err != nil {
		return false
	}
	var limit string
	var used int64
	err = scan(answers[0][0], &limit, &used)
	allowed := e.store.maxConns.Load()
	ofUser, notNumber := strconv.ParseInt(limit, 10, 64)
	if notNumber == nil {
		allowed = min(allowed, ofUser)
	}
	return err == nil && used <= allowed/2
}

// Sleep implements lease.Entry. A waiter that has lost its connection asks again soon.
func (e *entry) Sleep(ctx context.Context, nap queue.Nap, _ func()) (a lease.Answer, sent locks.Instant, err error) {
	err = e.guard(func() (err error) {
		sent, err = e.sleep(ctx, nap)
		if e.row.State == queue.Holding {
			a.Verdict, a.Epoch = queue.Granted, e.Epoch
			e.addGrant(&a)
			e.closeAfterRenewal()
		}
		return err
	})
	if errors.Is(err, context.Canceled) || lease.IsTemporary(err) {
		err = nil
	}
	return a, sent, err
}

// Events implements lease.Entry. It returns nil: no connection is kept over which an event could come.
func (e *entry) Events() <-chan struct{} { return nil }

// Close implements lease.Entry.
func (e *entry) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.idleTimer != nil {
		e.idleTimer.Stop()
	}
	e.closeConn()
}
