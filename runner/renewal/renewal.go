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

// Renewer renews one lease and says when it is at risk or lost, for all stores with leases.
//
// Its state belongs to the goroutine that calls Step, which never waits. A renewal has a goroutine
// of its own, at most one at a time, which ends with one message to answers; another one hears
// the lease's events until Stop. All of them call wake when there is something for Step.
//
// When the slot must count as lost follows from the clock and from what the store has promised,
// never from the state of a connection (Gray and Cheriton, Leases, 1989):
//
//	sent                                    stop      kill     end
//	  |--------- TTL/3 --------|--- ... -----|---------|--------|
//	  a renewal                the next      stop signal  KILL   somebody else's
type Renewer struct {
	lease    locks.Lease
	clock    locks.Clock
	wake     func()
	log      func(warn bool, message string, pairs ...any)
	interval time.Duration // from one renewal to the next

	ctx     context.Context
	cancel  context.CancelFunc
	answers chan answer // has room for that of the renewal in flight; nil: none is
	hinted  atomic.Bool // to renew at once

	next    locks.Instant // when to renew
	failure error         // of the last renewal; nil: it went well

	Window time.Duration // from StopAt to the end of the lease
	Term   locks.Term    // the last that was promised
	Lost   error         // the slot is not ours any more, or soon will not be
	Final  bool          // and will not be again
}

// answer is the result of a renewal.
type answer struct {
	term locks.Term
	err  error
}

// PerTTL is how often a lease is renewed in its TTL, if all goes well.
const PerTTL = 3

// stopLimit bounds how long Stop waits.
const stopLimit = 60 * time.Millisecond

// TryLimit bounds one renewal.
func TryLimit(ttl time.Duration) time.Duration { return min(ttl/10, time.Second) }

// retryPause is the time from a failed renewal to the next. An outage has then done no harm if
// it was shorter than 2/3 TTL - the stop window - 1.5 TryLimit: after it, what hangs may take one
// TryLimit to fail.
func retryPause(ttl time.Duration) time.Duration { return min(ttl/40, 100*time.Millisecond) }

// renewInterval is a third of the TTL. The promise at retryPause leaves half a TryLimit for that
// pause, the drift of clocks (locks.Term.End), and KILL if there is no stop window. Where these
// take more, as with a long TTL, the interval is shorter by the difference.
func renewInterval(ttl, killAfter time.Duration) time.Duration {
	const roundTrip = 10 * time.Millisecond
	drift := ttl - locks.Term{TTL: ttl}.End().Sub(0)
	kill := stopWindow(ttl, killAfter) - min(killAfter, ttl/6)
	return ttl/PerTTL - max(retryPause(ttl)+drift+kill+roundTrip-TryLimit(ttl)/2, 0)
}

// killTime is how long before the end KILL is sent: on a busy machine a process needs time to die.
func killTime(ttl time.Duration) time.Duration { return min(ttl/20, 500*time.Millisecond) }

// stopWindow is how long before the end the stop signal is sent.
func stopWindow(ttl, killAfter time.Duration) time.Duration {
	return max(min(killAfter, ttl/6), killTime(ttl))
}

// New keeps a lease until Stop is called. The command is to have killAfter between the stop signal
// and KILL, as far as the TTL allows.
func New(lease locks.Lease, clock locks.Clock, killAfter time.Duration, wake func(), log func(bool, string, ...any)) *Renewer {
	term := lease.Term()
	interval := renewInterval(term.TTL, killAfter)
	r := &Renewer{
		lease: lease, clock: clock, wake: wake, log: log,
		Window: stopWindow(term.TTL, killAfter), interval: interval,
		Term: term, next: term.Asked.Add(interval),
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	go r.watchEvents()
	return r
}

// Stop ends the renewals. One that is under way is waited for, but not for long: it can do no harm
// to what comes after. A nil Renewer has none.
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

// RenewSoon has the lease renewed at once, or after the renewal in flight. It may be called from any
// goroutine, and on nil.
func (r *Renewer) RenewSoon() {
	if r != nil && !r.hinted.Swap(true) {
		r.wake()
	}
}

// StopAt is when the command is told to stop, and KillAt when it is killed.
func (r *Renewer) StopAt() locks.Instant { return r.Term.End().Add(-r.Window) }
func (r *Renewer) KillAt() locks.Instant { return r.Term.End().Add(-killTime(r.Term.TTL)) }

// Without is the time since the last good renewal was sent, or since the grant, for people.
func (r *Renewer) Without() time.Duration {
	return r.clock().Sub(r.Term.Asked).Round(100 * time.Millisecond)
}

// cause is why the lease was not renewed.
func (r *Renewer) cause() error {
	switch {
	case r.failure != nil:
		return r.failure
	case r.answers != nil:
		return errors.New("the store has not answered")
	}
	return errors.New("golock itself was stopped or held up")
}

// Step does what is due: it takes in the store's answer, looks at the clock, and only then asks the
// store.
func (r *Renewer) Step() {
	select {
	case a := <-r.answers:
		r.answers = nil
		r.answered(a)
	default:
	}
	now := r.clock()
	if r.Lost == nil && now >= r.StopAt() {
		r.Lost = fmt.Errorf("the slot could not be kept: no renewal for %v: %w", r.Without(), r.cause())
	}
	if !r.Final && r.answers == nil && (r.hinted.Load() || now >= r.next) {
		r.answers = make(chan answer, 1)
		r.hinted.Store(false)
		go r.ask(TryLimit(r.Term.TTL), r.answers)
	}
}

// WakeAt is when Step has something to do next, unless wake is called before; 0: nothing.
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

func (r *Renewer) answered(a answer) {
	var panicked *locks.PanicError
	switch {
	case a.err == nil:
		if r.failure != nil {
			r.log(false, "the store answers again", "without", r.clock().Sub(r.Term.Asked))
		}
		r.Term, r.failure = a.term, nil
		r.next = a.term.Asked.Add(r.interval)
		if !r.Final {
			r.Lost = nil // which is of no help to a command that is being stopped
		}
	case errors.As(a.err, new(*locks.EvictedError)):
		r.Lost, r.Final = a.err, true
	case errors.Is(a.err, locks.ErrLost):
		r.Lost, r.Final = fmt.Errorf("%w: it is gone from the store, last renewed %v ago", a.err, r.Without()), true
	case errors.As(a.err, &panicked):
		panic(panicked)
	default:
		if r.failure == nil {
			left := r.Term.End().Sub(r.clock())
			r.log(true, "the slot cannot be renewed at the moment", "error", a.err, "left", left)
		}
		r.failure = a.err
		r.next = r.clock().Add(retryPause(r.Term.TTL))
	}
}

// ask makes one renewal.
func (r *Renewer) ask(limit time.Duration, answers chan<- answer) {
	defer r.wake()
	var a answer
	defer func() { answers <- a }()
	defer locks.Recover(&a.err)
	ctx, cancel := context.WithTimeout(r.ctx, limit)
	defer cancel()
	a.term, a.err = r.lease.Renew(ctx)
}
