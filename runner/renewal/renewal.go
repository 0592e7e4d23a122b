// Package renewal decides when a lease is renewed and when it counts as lost. It knows no processes
// and makes no system calls, so that tests drive it in virtual time.
package renewal

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golock/locks"
)

// Renewer renews a lease and says when it is at risk or lost. It serves all stores with leases.
//
// Its state belongs to the goroutine that calls Step, which never waits. Each renewal has a
// goroutine, at most one at a time, which ends with a message to answers. Another goroutine listens
// for the lease's events until Stop. All of them call wake when Step has something to do.
//
// When the slot must count as lost follows from the clock and from what the store has promised,
// never from the state of a connection (Gray and Cheriton, Leases, 1989):
//
//	sent                                    stop      kill     end
//	  |--------- TTL/3 --------|--- ... -----|---------|--------|
//	  a renewal                the next      stop signal  KILL   somebody else's
type Renewer struct {
	lease     locks.Lease
	clock     locks.Clock
	wake      func()
	log       func(warn bool, message string, pairs ...any)
	killAfter time.Duration

	ctx     context.Context
	cancel  context.CancelFunc
	answers chan answer // gets the answer of the renewal in flight; nil if there is none
	urgent  atomic.Bool // set to make the next Step renew, although the renewal is not due yet

	next    locks.Instant // when the next renewal is due
	failure error         // why the last renewal failed; nil if it succeeded
	warned  bool          // warnOfDistance has warned

	Window time.Duration // the time between StopAt and the end of the lease
	Term   locks.Term    // the last term that the store has promised
	Lost   error         // why the slot is lost, or will be soon; nil if it is held
	Final  bool          // Lost cannot change any more; before that, a late renewal can bring the slot back
}

// answer is the result of a renewal.
type answer struct {
	term locks.Term
	err  error
}

// stopLimit limits how long Stop waits.
const stopLimit = 60 * time.Millisecond

// retryPause is the time between a failed renewal and the next one. It keeps a promise of golock: an outage
// does no harm if it is shorter than 2/3 TTL - the stop window - 1.5 locks.NearRenewalLimit. The last term is
// there because an attempt that began in the outage may hang for one locks.Term.RenewalLimit.
func retryPause(ttl time.Duration) time.Duration { return min(ttl/40, 100*time.Millisecond) }

// renewInterval is the time between two renewals: a third of the TTL. The promise at retryPause leaves half a
// NearRenewalLimit for the needs that the function adds up. If they need more, the interval is shorter by the
// difference. A tenth of the TTL is the shortest interval: the promise does not hold then.
func renewInterval(t locks.Term, killAfter time.Duration) time.Duration {
	const nearRenewal = 10 * time.Millisecond
	ttl := t.TTL
	drift := ttl - locks.Term{TTL: ttl}.End().Sub(0)                // clocks differ
	kill := stopWindow(ttl, killAfter) - min(killAfter, ttl/6)      // the stop window is too short for KILL
	longerAttempt := t.RenewalLimit() - locks.NearRenewalLimit(ttl) // the store is far away
	renewal := max(nearRenewal, t.Distance.Renewal())
	missing := retryPause(ttl) + drift + kill + longerAttempt + renewal - locks.NearRenewalLimit(ttl)/2
	return max(ttl/locks.PerTTL-max(missing, 0), ttl/10)
}

// killTime is the time between KILL and the end of the lease. On a busy machine a process needs
// time to die.
func killTime(ttl time.Duration) time.Duration { return min(ttl/20, 500*time.Millisecond) }

// stopWindow is the time between the stop signal and the end of the lease.
func stopWindow(ttl, killAfter time.Duration) time.Duration {
	return max(min(killAfter, ttl/6), killTime(ttl))
}

// New returns a Renewer that renews a lease until Stop is called. The command gets killAfter between the stop signal and
// KILL, as far as the TTL allows. log gets warnings and news, as Run.Log of the runner does.
func New(lease locks.Lease, clock locks.Clock, killAfter time.Duration, wake func(), log func(bool, string, ...any)) *Renewer {
	term := lease.Term()
	r := &Renewer{
		lease: lease, clock: clock, wake: wake, log: log, killAfter: killAfter,
		Window: stopWindow(term.TTL, killAfter),
		Term:   term, next: term.Asked.Add(renewInterval(term, killAfter)),
	}
	if term.IsFar() { // the first answer may have been late because the server was busy, so a second one comes at once
		r.next = clock()
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	go r.watchEvents()
	return r
}

// Stop ends the renewals. It waits briefly for a renewal in flight, which can do no harm
// afterwards. A nil Renewer has no renewals.
func (r *Renewer) Stop() {
	if r == nil {
		return
	}
	r.cancel()
	if r.answers != nil {
		select {
		case <-r.answers:
		case <-time.After(stopLimit):
		}
		r.answers = nil
	}
}

func (r *Renewer) watchEvents() {
	for {
		select {
		case <-r.lease.Events():
			r.RenewSoon()
		case <-r.ctx.Done():
			return
		}
	}
}

// RenewSoon makes the Renewer renew the lease at once, or after the renewal in flight. Any
// goroutine may call it, also on nil.
func (r *Renewer) RenewSoon() {
	if r == nil {
		return
	}
	wasUrgent := r.urgent.Swap(true)
	if !wasUrgent {
		r.wake()
	}
}

// StopAt returns when the command gets the stop signal.
func (r *Renewer) StopAt() locks.Instant { return r.Term.End().Add(-r.Window) }

// KillAt returns when the command gets KILL.
func (r *Renewer) KillAt() locks.Instant { return r.Term.End().Add(-killTime(r.Term.TTL)) }

// SinceRenewal returns the time since the last successful renewal was sent, or since the grant. It is
// for messages.
func (r *Renewer) SinceRenewal() time.Duration {
	return r.clock().Sub(r.Term.Asked).Round(100 * time.Millisecond)
}

// cause returns why the lease was not renewed.
func (r *Renewer) cause() error {
	switch {
	case r.failure != nil:
		return r.failure
	case r.answers != nil:
		return errors.New("the store has not answered")
	}
	return errors.New("golock itself was stopped or held up")
}

// Step does what is due. It takes the store's answer, reads the clock, and only then asks the
// store.
func (r *Renewer) Step() {
	select {
	case a := <-r.answers:
		r.answers = nil
		r.handleAnswer(a)
	default:
	}
	now := r.clock()
	if r.Lost == nil && now >= r.StopAt() {
		r.Lost = fmt.Errorf("the slot could not be kept: no renewal for %v: %w", r.SinceRenewal(), r.cause())
	}
	if !r.Final && r.answers == nil && (r.urgent.Load() || now >= r.next) {
		r.answers = make(chan answer, 1)
		r.urgent.Store(false)
		go r.ask(r.Term.RenewalLimit(), r.answers)
	}
}

// WakeAt returns when Step has something to do, unless wake is called before. It returns 0 if
// nothing is planned.
func (r *Renewer) WakeAt() locks.Instant {
	var at locks.Instant
	if r.Lost == nil {
		at = r.StopAt()
	}
	if !r.Final && r.answers == nil && (at == 0 || r.next < at) {
		at = r.next
	}
	return at
}

// handleAnswer takes the result of a renewal.
func (r *Renewer) handleAnswer(a answer) {
	var panicked *locks.PanicError
	switch {
	case a.err == nil:
		if r.failure != nil {
			r.log(false, "the store answers again", "without", r.clock().Sub(r.Term.Asked))
		}
		r.Term, r.failure = a.term, nil
		r.next = a.term.Asked.Add(renewInterval(a.term, r.killAfter))
		r.warnOfDistance()
		if !r.Final {
			r.Lost = nil
		}
	case errors.As(a.err, new(*locks.EvictedError)):
		r.Lost, r.Final = a.err, true
	case errors.Is(a.err, locks.ErrLost):
		r.Lost = fmt.Errorf("%w: it is gone from the store, last renewed %v ago", a.err, r.SinceRenewal())
		r.Final = true
	case errors.As(a.err, &panicked):
		panic(panicked)
	default:
		if r.failure == nil {
			left := r.Term.End().Sub(r.clock())
			r.log(true, "the slot cannot be renewed at the moment", "error", a.err, "left", left)
		}
		// If r.lease stands for several leases, some may have been renewed, among them the one that ends first.
		if a.term.End() > r.Term.End() {
			r.Term = a.term
		}
		r.warnOfDistance()
		r.failure = a.err
		r.next = r.clock().Add(retryPause(r.Term.TTL))
	}
}

// warnOfDistance warns once of a store that is too far away for the TTL. It is called after a renewal:
// the answer to the first request alone may have been late for another reason.
func (r *Renewer) warnOfDistance() {
	if r.warned || !r.Term.IsFar() {
		return
	}
	r.warned = true
	trip := r.Term.Distance.Trip.Round(time.Millisecond)
	r.log(true, "the store is too far away for this TTL",
		"ttl", r.Term.TTL, "round_trip", trip, "least_ttl", r.Term.Distance.LeastTTL())
}

// ask makes a renewal.
func (r *Renewer) ask(limit time.Duration, answers chan<- answer) {
	defer r.wake()
	var a answer
	defer func() { answers <- a }()
	defer locks.Recover(&a.err)
	ctx, cancel := context.WithTimeout(r.ctx, limit)
	defer cancel()
	a.term, a.err = r.lease.Renew(ctx)
}
