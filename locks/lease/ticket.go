package lease

import (
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
	request    locks.Request
	replaced   []locks.Entry
	lease      *Lease // nil: not granted yet
	postponed  bool   // not in the queue: it is asked again after the quarantine
	place      int
	recheck    time.Duration
	quarantine *locks.QuarantineError // of the last answer
}

// Join implements locks.Store. It tries again until ctx ends.
func (s *Engine) Join(ctx context.Context, r locks.Request) (locks.Ticket, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s: not asked yet: %w", s.url, err)
	}
	e := s.newEntry(r)
	a, sent, err := request(ctx, s.url, e, Join)
	switch {
	case a.Doubtful && err != nil:
		giveUp(ctx, s.url, e) // an attempt may have made the entry
		return nil, Located(s.url, err)
	case err != nil:
		e.Close()
		return nil, Located(s.url, err)
	}
	t := &Ticket{entry: e, store: s.url, request: r, replaced: a.Replaced}
	if err := t.joined(ctx, a, sent, time.Now().Add(quarantineLimit)); err != nil {
		return nil, err
	}
	return t, nil
}

// Queued implements locks.Ticket.
func (t *Ticket) Queued() bool { return t.lease == nil }

// Replaced implements locks.Ticket.
func (t *Ticket) Replaced() []locks.Entry { return t.replaced }

// Evicted implements locks.Ticket: Wait tells.
func (t *Ticket) Evicted() error { return nil }

// joined handles the answer to a Join. A request that does not queue is postponed if the
// quarantine is over before end; zero: never.
func (t *Ticket) joined(ctx context.Context, a Answer, sent locks.Instant, end time.Time) error {
	t.postponed = false
	switch {
	case a.Verdict == Granted:
		t.lease = newLease(t.store, t.entry, a, sent)
	case a.Verdict == Queued:
		t.recheck, t.place = a.Recheck, a.Place
		t.request.TellPlace(a.Place)
		t.learnQuarantine(a)
	case a.Quarantine == 0, end.IsZero():
		return t.refused(ctx, a)
	default:
		t.postponed = true
		t.learnQuarantine(a)
		if t.quarantine.End.After(end) {
			giveUp(ctx, t.store, t.entry)
			return t.unavailable(t.quarantine)
		}
	}
	return nil
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

func (t *Ticket) unavailable(q *locks.QuarantineError) error {
	return &locks.OutageError{Store: t.store, Err: q, Answered: true}
}

// quarantineLimit is how long a request that does not queue waits for the end of a
// quarantine.
const quarantineLimit = 5 * time.Second

// awaitQuarantine asks again for a postponed request when the quarantine is over.
func (t *Ticket) awaitQuarantine(ctx context.Context) error {
	for end := time.Now().Add(quarantineLimit); t.postponed; {
		Pause(ctx, time.Until(t.quarantine.End)+time.Millisecond)
		if ctx.Err() != nil {
			giveUp(ctx, t.store, t.entry)
			return t.why(ctx, nil)
		}
		bound, cancel := context.WithTimeout(ctx, LongestAttempt)
		a, sent, err := request(bound, t.store, t.entry, Join)
		cancel()
		if err != nil {
			giveUp(ctx, t.store, t.entry)
			return Located(t.store, err)
		}
		if err := t.joined(ctx, a, sent, end); err != nil {
			return err
		}
	}
	return nil
}

// The waiters at the front retry at the first pace while the store is out of reach: they
// must be back before they are taken for dead. Those further back slow down.
const frontPlaces = 16

// Wait implements locks.Ticket. Each Ask also keeps the place alive; a waiter that was
// taken for dead gets its old place back.
func (t *Ticket) Wait(ctx context.Context) (locks.Lease, error) {
	if err := t.awaitQuarantine(ctx); err != nil {
		return nil, err
	}
	var outage error // of the last Ask
	pause, retry := t.recheck, RetryPause
	near := func() { t.request.TellPlace(min(t.place, 2)) }
	for t.lease == nil {
		a, sent, err := t.entry.Sleep(ctx, pause, near)
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
		case err == nil:
			if err := t.joined(ctx, a, sent, time.Time{}); err != nil {
				return nil, err
			}
			outage, pause, retry = nil, t.recheck, RetryPause
		case ctx.Err() != nil: // the next round ends
		case !IsTemporary(err):
			giveUp(ctx, t.store, t.entry)
			return nil, err
		default:
			outage, pause = err, min(jitter(retry), t.request.TTL/3)
			if t.place > frontPlaces {
				retry = longer(retry)
			}
		}
	}
	return t.lease, nil
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
	leaveLimit = 2 * time.Second       // then the entry is left to its TTL
	leaveWait  = 40 * time.Millisecond // for so long the caller waits
)

// giveUp has the entry leave. It waits a moment for the store to know, as the process may
// be about to end; the rest is done in the background. A process that is about to be
// stopped (the cause of ctx) has no background.
func giveUp(ctx context.Context, store string, e Entry) {
	wait := leaveWait
	if errors.Is(context.Cause(ctx), locks.ErrStandsStill) {
		wait = leaveLimit
	}
	waiting, left := context.WithTimeout(context.Background(), wait)
	go func() {
		defer left()
		defer e.Close()
		ctx, cancel := context.WithTimeout(context.Background(), leaveLimit)
		defer cancel()
		_, _, _ = request(ctx, store, e, Leave)
	}()
	<-waiting.Done()
}

// Located says which store an error is of, if it does not say so itself.
func Located(store string, err error) error {
	var fault *locks.PathError
	switch {
	case !IsFinal(err):
		return err
	case IsTemporary(err):
		return &locks.OutageError{Store: store, Err: err, Answered: true}
	case errors.As(err, &fault):
		return fault
	}
	return fmt.Errorf("%s: %w", store, err)
}
