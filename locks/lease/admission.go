package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golock/locks"
	"golock/locks/queue"
)

// Admission implements locks.Admission.
type Admission struct {
	entry      Entry
	store      string
	request    locks.Request
	replaced   []locks.Entry
	lease      *Lease    // nil before the grant
	postponed  bool      // the request does not queue, and is repeated after the quarantine
	end        time.Time // the end of the time in which the request may be postponed
	place      int
	nap        queue.Nap
	quarantine *locks.QuarantineError // nil if the last answer tells of no quarantine
}

// Join implements locks.Store. It tries again until ctx ends.
func (s *Engine) Join(ctx context.Context, r locks.Request) (locks.Admission, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s: not asked yet: %w", s.url, err)
	}
	if r.AtOnce {
		return nil, locks.ErrWouldBlock
	}
	limit, bounded, stop := newPatience(ctx, r.Limits)
	defer stop()
	r.Hooks.OnConnect, r.Hooks.OnAnswer = limit.connected, limit.answered
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
	adm := &Admission{entry: e, store: s.url, request: r, replaced: a.Replaced, end: time.Now().Add(quarantineLimit)}
	if err := adm.handleJoin(a, sent); err != nil {
		return nil, err
	}
	return adm, nil
}

// Queued implements locks.Admission.
func (adm *Admission) Queued() bool { return adm.lease == nil }

// Replaced implements locks.Admission.
func (adm *Admission) Replaced() []locks.Entry { return adm.replaced }

// Evicted implements locks.Admission. It is always nil, because Wait returns the error.
func (adm *Admission) Evicted() error { return nil }

// quarantineLimit is the longest time that a request that does not queue waits for the end of a
// quarantine.
const quarantineLimit = 5 * time.Second

// handleJoin handles the answer to a Join. A request that does not queue is postponed if the
// quarantine is over in time.
func (adm *Admission) handleJoin(a Answer, sent locks.Instant) error {
	adm.postponed, adm.quarantine = false, nil
	switch {
	case a.Verdict == queue.Granted:
		adm.lease = newLease(adm, a, sent)
		return nil
	case a.Verdict == queue.Queued:
		adm.nap, adm.place = a.Nap, a.Place
		adm.request.Hooks.Place(a.Place)
	case a.Quarantine == 0:
		return adm.refusalError(a)
	default:
		adm.postponed, adm.nap = true, queue.Nap{For: a.Quarantine + time.Millisecond}
	}
	if a.Quarantine > 0 {
		adm.quarantine = &locks.QuarantineError{Cause: a.QuarantineCause, End: time.Now().Add(a.Quarantine)}
	}
	adm.request.Hooks.Quarantine(adm.quarantine)
	if adm.postponed && adm.quarantine.End.After(adm.end) {
		adm.giveUp()
		return adm.quarantineOutage()
	}
	return nil
}

// quarantineOutage returns the error of a request that ends in the quarantine.
func (adm *Admission) quarantineOutage() error {
	return &locks.OutageError{Store: adm.store, Err: adm.quarantine, Answered: true}
}

// Wait implements locks.Admission. Each Ask also prolongs the place in the queue; a waiter that was
// taken for dead gets its old place back.
func (adm *Admission) Wait(ctx context.Context) (locks.Lease, error) {
	var outage error // the error of the last Ask
	nap := adm.nap
	var pauses backoff
	for adm.lease == nil {
		a, sent, err := adm.sleep(ctx, nap)
		switch {
		case err != nil:
			adm.giveUp()
			return nil, err
		case a.Verdict == queue.Granted:
			adm.lease = newLease(adm, a, sent)
			return adm.leaseIfNear(ctx)
		case ctx.Err() != nil:
			adm.giveUp()
			return nil, adm.waitError(ctx, outage)
		}
		a, sent, err = adm.entry.Ask(ctx, queue.Join)
		switch {
		case err == nil:
			if err := adm.handleJoin(a, sent); err != nil {
				return nil, err
			}
			outage, nap, pauses = nil, adm.nap, backoff{}
		case ctx.Err() != nil: // the next round of the loop returns
		case !IsTemporary(err):
			adm.giveUp()
			return nil, Located(adm.store, err)
		case adm.postponed && time.Now().After(adm.end):
			adm.giveUp()
			return nil, adm.waitError(ctx, err)
		default:
			if adm.place <= queue.OutagePlaces {
				pauses = backoff{}
			}
			pause := pauses.next()
			outage = err
			nap = queue.Nap{For: min(pause, queue.AskEvery(adm.request.TTL)), KeepsConnection: true}
		}
	}
	return adm.leaseIfNear(ctx)
}

// sleep returns when the request should be repeated, or when the store has pushed a grant.
func (adm *Admission) sleep(ctx context.Context, nap queue.Nap) (a Answer, sent locks.Instant, err error) {
	if adm.postponed { // nobody wakes a request that is not in the queue
		Pause(ctx, nap.For)
		return a, 0, nil
	}
	onNext := func() { adm.request.Hooks.Place(min(adm.place, 2)) }
	return adm.entry.Sleep(ctx, nap, onNext)
}

// leaseIfNear returns the lease. If the store is so far away that the lease would be lost, it gives the lease
// back and returns an error. A few more answers show whether the store was only busy.
func (adm *Admission) leaseIfNear(ctx context.Context) (locks.Lease, error) {
	const answers = 3 // this many fast round trips outweigh slow ones (network.Trips)
	for range answers {
		if !adm.lease.Term().IsTooFar() {
			return adm.lease, nil
		}
		_, _ = adm.lease.Renew(ctx)
	}
	term := adm.lease.Term()
	if !term.IsTooFar() {
		return adm.lease, nil
	}
	adm.giveUp()
	d := term.Distance
	return nil, Located(adm.store, &Refusal{
		Err: fmt.Errorf("a lease of %v would be lost: a round trip takes %v, and a renewal that has to connect first %v",
			term.TTL, d.Trip.Round(time.Millisecond), d.Renewal().Round(time.Millisecond)),
		Hint: fmt.Sprintf("--ttl of at least %v, or a store that is nearer", d.LeastTTL()),
	})
}

// waitError returns the error of a Wait that ends without a slot, because ctx has ended or a postponed request
// has waited long enough. outage is the error of the last Ask, or nil. A refusal for a temporary reason, such as a
// full connection limit, is no outage for a waiter whose time is over: the server has answered.
func (adm *Admission) waitError(ctx context.Context, outage error) error {
	isWaiterStopped := !adm.postponed && ctx.Err() != nil
	hasAnswered := outage == nil || isWaiterStopped && IsPassing(outage)
	if !hasAnswered {
		return outageOf(adm.store, outage)
	}
	if adm.quarantine != nil && time.Now().Before(adm.quarantine.End) {
		return adm.quarantineOutage()
	}
	return ctx.Err()
}

// refusalError returns the error of an answer that ends a request.
func (adm *Admission) refusalError(a Answer) error {
	if a.Verdict == queue.Evicted {
		adm.giveUp() // an answer that was lost may have granted a slot
		return &locks.EvictedError{By: a.By}
	}
	adm.entry.Close()
	busy := &locks.BusyError{Name: adm.request.Name, Waiters: a.Waiters, Full: a.Full, Holders: a.Holders}
	switch a.Verdict {
	case queue.Nested:
		inside, _ := locks.ParseRef(adm.request.Ref.Key.String() + "-" + a.Inside)
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

func (adm *Admission) giveUp() { giveUp(&adm.request, adm.store, adm.entry) }

// giveUp makes the entry of a request leave the queue. It waits for the store for at most leaveWait, because the
// process may be about to end. The rest happens in the background. If this process is about to be stopped
// (locks.Hooks.StopsSoon), giveUp waits for at most leaveLimit instead.
func giveUp(r *locks.Request, store string, e Entry) {
	wait := leaveWait
	if r.Hooks.MustLeaveFirst() {
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
	case len(locks.AsInvalid(err)) > 0: // no outage: somebody must remove the invalid entries
	case IsTemporary(err):
		return &locks.OutageError{Store: store, Err: err, Answered: true}
	case errors.As(err, &fault):
		return fault
	}
	return fmt.Errorf("%s: %w", store, err)
}
