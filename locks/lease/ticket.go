package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golock/locks"
)

// Ticket implements locks.Ticket.
type Ticket struct {
	entry      Entry
	store      string
	lease      *Lease // granted at once
	postponed  bool   // not in the queue: it is asked again when the quarantine is over
	recheck    time.Duration
	quarantine *locks.QuarantineError // of the last answer
	longest    time.Duration          // between two attempts
	request    locks.Request
	place      int
	replaced   []locks.Entry
}

// NewTicket joins the queue with an entry. It tries again until ctx ends.
func NewTicket(ctx context.Context, store string, r locks.Request, e Entry) (locks.Ticket, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s: not asked yet: %w", store, err)
	}
	var a Answer
	var sent locks.Instant
	err := Retry(ctx, store, func() (err error) {
		a, sent, err = e.Ask(ctx, Join)
		return err
	})
	switch {
	case IsFinal(err):
		e.Close()
		return nil, Located(store, err)
	case err != nil:
		giveUp(ctx, store, e) // the store may have been told and its answer lost
		return nil, err
	}
	t := &Ticket{entry: e, store: store, request: r, replaced: a.Replaced, longest: cmp.Or(r.TTL, DefaultTTL) / 3}
	switch {
	case a.Verdict == Granted:
		t.lease = newLease(store, e, a, sent)
	case a.Verdict == Queued:
		t.learn(a)
	case a.Quarantine > 0:
		t.postponed = true
		if err := t.postpone(ctx, a, time.Now().Add(quarantineLimit)); err != nil {
			return nil, err
		}
	default:
		return nil, t.refused(ctx, a)
	}
	return t, nil
}

// Queued implements locks.Ticket.
func (t *Ticket) Queued() bool { return t.lease == nil }

// Replaced implements locks.Ticket.
func (t *Ticket) Replaced() []locks.Entry { return t.replaced }

// Evicted implements locks.Ticket: a waiter hears of it by its Wait.
func (t *Ticket) Evicted() error { return nil }

// tellNear is for a waiter that hears, before it asks, that its turn is near.
func (t *Ticket) tellNear() { t.request.TellPlace(min(t.place, 2)) }

func (t *Ticket) learn(a Answer) {
	t.recheck, t.place = a.Recheck, a.Place
	t.request.TellPlace(a.Place)
	t.learnQuarantine(a)
}

func (t *Ticket) learnQuarantine(a Answer) {
	t.quarantine = nil
	if a.Quarantine > 0 {
		t.quarantine = &locks.QuarantineError{Cause: a.QuarantineCause, End: time.Now().Add(a.Quarantine)}
	}
	if t.request.Quarantined != nil {
		t.request.Quarantined(t.quarantine)
	}
}

// quarantineLimit is how long a request that does not wait for others waits for the
// end of a quarantine.
const quarantineLimit = 5 * time.Second

// postpone is for such a request. It fails if the quarantine lasts until after the end
// of its limit.
func (t *Ticket) postpone(ctx context.Context, a Answer, end time.Time) error {
	t.learnQuarantine(a)
	if t.quarantine.End.After(end) {
		giveUp(ctx, t.store, t.entry)
		return t.unavailable(t.quarantine)
	}
	return nil
}

func (t *Ticket) unavailable(q *locks.QuarantineError) error {
	return &locks.OutageError{Store: t.store, Err: q, Answered: true}
}

// askAgain is the Wait of a request that was postponed.
func (t *Ticket) askAgain(ctx context.Context) (locks.Lease, error) {
	for end := time.Now().Add(quarantineLimit); ; {
		Pause(ctx, time.Until(t.quarantine.End)+time.Millisecond)
		if ctx.Err() != nil {
			giveUp(ctx, t.store, t.entry)
			return nil, t.why(ctx, nil)
		}
		bound, cancel := context.WithTimeout(ctx, LongestAttempt)
		var a Answer
		var sent locks.Instant
		err := Retry(bound, t.store, func() (err error) {
			a, sent, err = t.entry.Ask(bound, Join)
			return err
		})
		cancel()
		switch {
		case err != nil:
			giveUp(ctx, t.store, t.entry)
			return nil, Located(t.store, err)
		case a.Verdict == Granted:
			return newLease(t.store, t.entry, a, sent), nil
		case a.Quarantine == 0:
			return nil, t.refused(ctx, a)
		}
		if err := t.postpone(ctx, a, end); err != nil {
			return nil, err
		}
	}
}

// frontPlaces try again at once while the store is out of reach: they must be back
// before they are taken for dead. Those further back come more and more seldom.
const frontPlaces = 16

// Wait implements locks.Ticket. Every Ask also keeps the place alive; a waiter that
// was taken for dead gets its old place back.
func (t *Ticket) Wait(ctx context.Context) (locks.Lease, error) {
	if t.lease != nil {
		return t.lease, nil
	}
	if t.postponed {
		return t.askAgain(ctx)
	}
	var outage error // of the last Ask
	pause, retry := t.recheck, RetryPause
	for {
		a, sent, err := t.entry.Sleep(ctx, pause, t.tellNear)
		switch {
		case err != nil:
			giveUp(ctx, t.store, t.entry)
			return nil, err
		case a.Verdict == Granted:
			return newLease(t.store, t.entry, a, sent), nil
		case ctx.Err() != nil:
			giveUp(ctx, t.store, t.entry)
			return nil, t.why(ctx, outage)
		}
		a, sent, err = t.entry.Ask(ctx, Join)
		switch {
		case err != nil && ctx.Err() != nil:
		case err != nil && !IsTemporary(err):
			giveUp(ctx, t.store, t.entry)
			return nil, err
		case err != nil:
			outage, pause = err, min(jitter(retry), t.longest)
			if t.place > frontPlaces {
				retry = longer(retry)
			}
		case a.Verdict == Granted:
			return newLease(t.store, t.entry, a, sent), nil
		case a.Verdict == Queued:
			t.learn(a)
			outage, pause, retry = nil, t.recheck, RetryPause
		default:
			return nil, t.refused(ctx, a)
		}
	}
}

// why is the error of a waiting that ctx has ended.
func (t *Ticket) why(ctx context.Context, outage error) error {
	if outage != nil {
		return &locks.OutageError{Store: t.store, Err: outage}
	}
	if q := t.quarantine; q != nil && time.Now().Before(q.End) {
		return t.unavailable(q)
	}
	return ctx.Err()
}

// refused makes an error of an answer that ends a request.
func (t *Ticket) refused(ctx context.Context, a Answer) error {
	if a.Verdict == Evicted {
		giveUp(ctx, t.store, t.entry) // an answer that was lost may have granted it
		return &locks.EvictedError{By: a.By}
	}
	t.entry.Close()
	busy := &locks.BusyError{Name: t.request.Name, Waiters: a.Waiters, Full: a.Full, Holders: a.Holders, Reason: a.Reason}
	switch a.Verdict {
	case Nested:
		inside, _ := locks.ParseRef(t.request.Ref.Key.String() + "-" + a.Inside)
		return &locks.NestedError{Name: t.request.Name, Busy: busy, Inside: inside}
	case Gone:
		busy.Reason = "this request was taken out of the queue"
	}
	return busy
}

// Limits of giving up.
const (
	leaveLimit = 2 * time.Second       // until the entry is left to its TTL
	leaveWait  = 40 * time.Millisecond // of which the caller waits so much
)

// giveUp has the entry leave. It waits a moment for the store to know, as the
// process may be about to end; the rest is done in the background. A process that is
// about to be stopped (the cause of ctx) has no background.
func giveUp(ctx context.Context, store string, e Entry) {
	wait := leaveWait
	if errors.Is(context.Cause(ctx), locks.ErrStandsStill) {
		wait = leaveLimit
	}
	left := make(chan struct{})
	go func() {
		defer close(left)
		defer e.Close()
		ctx, cancel := context.WithTimeout(context.Background(), leaveLimit)
		defer cancel()
		_ = Retry(ctx, store, func() error {
			_, _, err := e.Ask(ctx, Leave)
			return err
		})
	}()
	limit := time.NewTimer(wait)
	defer limit.Stop()
	select {
	case <-left:
	case <-limit.C:
	}
}

// Located says which store an error is of, if it does not say so itself.
func Located(store string, err error) error {
	switch {
	case !IsFinal(err):
		return err
	case IsTemporary(err):
		return &locks.OutageError{Store: store, Err: err, Answered: true}
	}
	return fmt.Errorf("%s: %w", store, err)
}
