package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golock/locks"
	"golock/locks/queue"
)

// Ticket implements locks.Ticket.
type Ticket struct {
	entry      Entry
	store      string
	request    locks.Request
	replaced   []locks.Entry
	lease      *Lease    // nil before the grant
	postponed  bool      // the request does not queue, and is repeated after the quarantine
	end        time.Time // until when the request may be postponed
	place      int
	nap        queue.Nap
	quarantine *locks.QuarantineError // nil if the last answer tells of no quarantine
}

// Join implements locks.Store. It tries again until ctx ends.
func (s *Engine) Join(ctx context.Context, r locks.Request) (locks.Ticket, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s: not asked yet: %w", s.url, err)
	}
	if r.AtOnce {
		return nil, locks.ErrWouldBlock
	}
	limit, bounded, stop := newPatience(ctx, &r)
	defer stop()
	r.Connected, r.Answered = limit.connected, limit.answered
	e := s.newEntry(r)
	a, sent, err := requestWithin(bounded, s.url, e, queue.Join, limit)
	switch {
	case a.Doubtful && err != nil: // an attempt may have made the entry
		giveUp(&r, s.url, e)
		return nil, Located(s.url, err)
	case err != nil:
		e.Close()
		return nil, Located(s.url, err)
	}
	t := &Ticket{entry: e, store: s.url, request: r, replaced: a.Replaced, end: time.Now().Add(quarantineLimit)}
	if err := t.handleJoin(a, sent); err != nil {
		return nil, err
	}
	return t, nil
}

// Queued implements locks.Ticket.
func (t *Ticket) Queued() bool { return t.lease == nil }

// Replaced implements locks.Ticket.
func (t *Ticket) Replaced() []locks.Entry { return t.replaced }

// Evicted implements locks.Ticket. It is always nil, because Wait returns the error.
func (t *Ticket) Evicted() error { return nil }

// quarantineLimit is the longest time that a request that does not queue waits for the end of a
// quarantine.
const quarantineLimit = 5 * time.Second

// handleJoin handles the answer to a Join. A request that does not queue is postponed if the
// quarantine is over in time.
func (t *Ticket) handleJoin(a Answer, sent locks.Instant) error {
	t.postponed, t.quarantine = false, nil
	switch {
	case a.Verdict == queue.Granted:
		t.lease = newLease(t, a, sent)
		return nil
	case a.Verdict == queue.Queued:
		t.nap, t.place = a.Nap, a.Place
		t.request.TellPlace(a.Place)
	case a.Quarantine == 0:
		return t.refusalError(a)
	default:
		t.postponed, t.nap = true, queue.Nap{For: a.Quarantine + time.Millisecond}
	}
	if a.Quarantine > 0 {
		t.quarantine = &locks.QuarantineError{Cause: a.QuarantineCause, End: time.Now().Add(a.Quarantine)}
	}
	if t.request.Quarantined != nil {
		t.request.Quarantined(t.quarantine)
	}
	if t.postponed && t.quarantine.End.After(t.end) {
		t.giveUp()
		return t.quarantineOutage()
	}
	return nil
}

// quarantineOutage returns the error of a request that ends in the quarantine.
func (t *Ticket) quarantineOutage() error {
	return &locks.OutageError{Store: t.store, Err: t.quarantine, Answered: true}
}

// Wait implements locks.Ticket. Each Ask also prolongs the place in the queue; a waiter that was
// taken for dead gets its old place back.
func (t *Ticket) Wait(ctx context.Context) (locks.Lease, error) {
	var outage error // the error of the last Ask
	nap := t.nap
	var pauses backoff
	for t.lease == nil {
		a, sent, err := t.sleep(ctx, nap)
		switch {
		case err != nil:
			t.giveUp()
			return nil, err
		case a.Verdict == queue.Granted:
			t.lease = newLease(t, a, sent)
			return t.leaseIfNear(ctx)
		case ctx.Err() != nil:
			t.giveUp()
			return nil, t.waitError(ctx, outage)
		}
		a, sent, err = t.entry.Ask(ctx, queue.Join)
		switch {
		case err == nil:
			if err := t.handleJoin(a, sent); err != nil {
				return nil, err
			}
			outage, nap, pauses = nil, t.nap, backoff{}
		case ctx.Err() != nil: // the next round of the loop returns
		case !IsTemporary(err):
			t.giveUp()
			return nil, Located(t.store, err)
		case t.postponed && time.Now().After(t.end):
			t.giveUp()
			return nil, t.waitError(ctx, err)
		default:
			if t.place <= queue.OutagePlaces {
				pauses = backoff{}
			}
			pause := pauses.next()
			outage = err
			nap = queue.Nap{For: min(pause, queue.AskEvery(t.request.TTL)), KeepsConnection: true}
		}
	}
	return t.leaseIfNear(ctx)
}

// sleep returns when the request should be repeated, or when the store has pushed a grant.
func (t *Ticket) sleep(ctx context.Context, nap queue.Nap) (a Answer, sent locks.Instant, err error) {
	if t.postponed { // nobody wakes a request that is not in the queue
		Pause(ctx, nap.For)
		return a, 0, nil
	}
	onNext := func() { t.request.TellPlace(min(t.place, 2)) }
	return t.entry.Sleep(ctx, nap, onNext)
}

// leaseIfNear returns the lease. If the store is so far away that the lease would be lost, it gives the lease
// back and returns an error. A few more answers show whether the store was only busy.
func (t *Ticket) leaseIfNear(ctx context.Context) (locks.Lease, error) {
	const answers = 3 // as many fast round trips outweigh slow ones (network.Trips)
	for range answers {
		if !t.lease.Term().IsTooFar() {
			return t.lease, nil
		}
		_, _ = t.lease.Renew(ctx)
	}
	term := t.lease.Term()
	if !term.IsTooFar() {
		return t.lease, nil
	}
	t.giveUp()
	d := term.Distance
	return nil, Located(t.store, &Refusal{
		Err: fmt.Errorf("a lease of %v would be lost: a round trip takes %v, and a renewal that has to connect first %v",
			term.TTL, d.Trip.Round(time.Millisecond), d.Renewal().Round(time.Millisecond)),
		Hint: fmt.Sprintf("--ttl of at least %v, or a store that is nearer", d.LeastTTL()),
	})
}

// waitError returns the error of a Wait that ends without a slot, because ctx has ended or a postponed request
// has waited long enough. outage is the error of the last Ask, or nil. A refusal for a passing reason, such as a
// full connection limit, is no outage for a waiter whose time is over: the server has answered.
func (t *Ticket) waitError(ctx context.Context, outage error) error {
	hasAnswered := outage == nil || !t.postponed && ctx.Err() != nil && IsPassing(outage)
	if !hasAnswered {
		return outageOf(t.store, outage)
	}
	if t.quarantine != nil && time.Now().Before(t.quarantine.End) {
		return t.quarantineOutage()
	}
	return ctx.Err()
}

// refusalError returns the error of an answer that ends a request.
func (t *Ticket) refusalError(a Answer) error {
	if a.Verdict == queue.Evicted {
		t.giveUp() // an answer that was lost may have granted it
		return &locks.EvictedError{By: a.By}
	}
	t.entry.Close()
	busy := &locks.BusyError{Name: t.request.Name, Waiters: a.Waiters, Full: a.Full, Holders: a.Holders}
	switch a.Verdict {
	case queue.Nested:
		inside, _ := locks.ParseRef(t.request.Ref.Key.String() + "-" + a.Inside)
		busy.Inside = &inside
	case queue.Gone:
		busy.Reason = "this request was taken out of the queue"
	}
	return busy
}

// The limits of giving up.
const (
	leaveLimit = 2 * time.Second        // after this time the entry is left to its TTL
	leaveWait  = 100 * time.Millisecond // how long the caller waits; the rest happens in the background
)

func (t *Ticket) giveUp() { giveUp(&t.request, t.store, t.entry) }

// giveUp makes the entry of a request leave the queue. It waits a moment for the store, because the
// process may be about to end; the rest happens in the background. Before a stop of this process
// (locks.Request.StopsSoon) it waits for all of it.
func giveUp(r *locks.Request, store string, e Entry) {
	wait := leaveWait
	if r.MustLeaveFirst() {
		wait = leaveLimit
	}
	waiting, hasLeft := context.WithTimeout(context.Background(), wait)
	go func() {
		defer hasLeft()
		defer locks.Recover(new(error)) // nobody waits for the error
		defer e.Close()
		ctx, cancel := context.WithTimeout(context.Background(), leaveLimit)
		defer cancel()
		_, _, _ = request(ctx, store, e, queue.Leave)
	}()
	<-waiting.Done()
}

// Located adds the store's URL to an error that does not name the store.
func Located(store string, err error) error {
	var fault *locks.PathError
	switch {
	case !IsFinal(err):
		return err
	case len(locks.AsInvalid(err)) > 0: // it is final, because it does not pass by itself
	case IsTemporary(err):
		return &locks.OutageError{Store: store, Err: err, Answered: true}
	case errors.As(err, &fault):
		return fault
	}
	return fmt.Errorf("%s: %w", store, err)
}
