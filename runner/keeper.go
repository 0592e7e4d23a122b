package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golock/locks"
)

// keeper keeps one lease alive and says when it is at risk or lost. It is the
// one heartbeat of all leased stores.
//
// Its state belongs to the goroutine that calls attend; that is never kept
// waiting. A renewal is made in a goroutine of its own, at most one at a time,
// which ends with one message to answers; another passes the lease's events on
// until end. All of them call wake when there is something for attend.
//
// When the slot must count as lost follows from the clock and from what the
// store has promised, never from the state of a connection (Gray and Cheriton,
// Leases, 1989):
//
//	asked                                   stop      kill     end
//	  |--------- TTL/3 --------|--- ... -----|---------|--------|
//	  a renewal is sent        the next      stop signal  KILL   somebody else's
type keeper struct {
	lease  locks.Leased
	clock  locks.Clock
	wake   func()
	log    func(warn bool, message string, pairs ...any)
	window time.Duration // from stop to end, at most
	beat   time.Duration // from one renewal to the next

	ctx     context.Context
	cancel  context.CancelFunc
	answers chan answer // has room for the one that can come
	events  chan locks.Event

	term    locks.Term    // the last that was promised
	next    locks.Instant // when to renew
	asking  bool          // a renewal is under way
	again   bool          // and another one is to follow at once
	failure error         // of the last renewal; nil: it went well
	lost    error         // the slot is not ours any more, or soon will not be
	final   bool          // and will not be again
}

// answer is what a renewal comes to.
type answer struct {
	term locks.Term
	err  error
}

// The times of a heartbeat, by the TTL.
const beats = 3 // renewals in a TTL, if all goes well

// tryLimit bounds one renewal.
func tryLimit(ttl time.Duration) time.Duration { return min(ttl/10, time.Second) }

// retryPause is how long after one that failed the next follows. An outage has
// then done no harm if it was shorter than 2/3 TTL - the stop window - 1.5
// tryLimit: after it, what hangs may take one tryLimit to fail.
func retryPause(ttl time.Duration) time.Duration { return min(ttl/40, 100*time.Millisecond) }

// beat is how long after a renewal was sent the next one follows: a third of the
// TTL. That promise has half a tryLimit left for a pause, for the drift of clocks
// (locks.Term.End) and for KILL where the stop window is nothing; where they take
// more, by a long TTL, the renewals come sooner by that.
func beat(ttl, killAfter time.Duration) time.Duration {
	const roundTrip = 10 * time.Millisecond
	drift := ttl - locks.Term{TTL: ttl}.End().Sub(0)
	kill := stopWindow(ttl, killAfter) - min(killAfter, ttl/6)
	return ttl/beats - max(retryPause(ttl)+drift+kill+roundTrip-tryLimit(ttl)/2, 0)
}

// killTime is what it may take to kill: so long before the end KILL is sent.
func killTime(ttl time.Duration) time.Duration { return min(ttl/20, 100*time.Millisecond) }

// stopWindow is how long before the end the stop signal is sent.
func stopWindow(ttl, killAfter time.Duration) time.Duration {
	return max(min(killAfter, ttl/6), killTime(ttl))
}

// newKeeper keeps a lease until end is called.
func newKeeper(lease locks.Leased, clock locks.Clock, killAfter time.Duration, wake func(), log func(bool, string, ...any)) *keeper {
	term := lease.Term()
	k := &keeper{
		lease: lease, clock: clock, wake: wake, log: log, window: stopWindow(term.TTL, killAfter),
		answers: make(chan answer, 1), events: make(chan locks.Event, 1),
		term: term, beat: beat(term.TTL, killAfter), next: term.Asked.Add(beat(term.TTL, killAfter)),
	}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	go k.listen()
	return k
}

// end ends the heartbeat. A renewal that is under way has been told so and is
// waited for, but not for long: it can do no harm to what comes after.
func (k *keeper) end() {
	k.cancel()
	if k.asking {
		timer := time.NewTimer(leaveLimit)
		defer timer.Stop()
		select {
		case <-k.answers:
		case <-timer.C:
		}
		k.asking = false
	}
}

// listen passes the events on.
func (k *keeper) listen() {
	for {
		select {
		case e := <-k.lease.Events():
			select {
			case k.events <- e:
				k.wake()
			case <-k.ctx.Done():
				return
			}
		case <-k.ctx.Done():
			return
		}
	}
}

// hintFrom takes a hint from another goroutine.
func (k *keeper) hintFrom(e locks.Event) {
	select {
	case k.events <- e:
		k.wake()
	default: // there is one already
	}
}

// stopAt is when the command is told to stop, killAt when it is killed.
func (k *keeper) stopAt() locks.Instant { return k.term.End().Add(-k.window) }
func (k *keeper) killAt() locks.Instant { return k.term.End().Add(-killTime(k.term.TTL)) }

// attend does what is due. What the store has answered is looked at first, then
// the clock; only then the store is asked anything.
func (k *keeper) attend() {
	k.takeIn()
	now := k.clock()
	if k.lost == nil && now >= k.stopAt() {
		k.lost = fmt.Errorf("the slot could not be kept: no renewal for %v", now.Sub(k.term.Asked).Round(time.Millisecond))
		if k.failure != nil {
			k.lost = fmt.Errorf("%w: %w", k.lost, k.failure)
		}
	}
	if !k.final && !k.asking && now >= k.next {
		k.asking = true
		go k.renew(tryLimit(k.term.TTL))
	}
}

// wakeAt is when attend has something to do next, unless wake is called before;
// 0: nothing.
func (k *keeper) wakeAt() locks.Instant {
	var at locks.Instant
	if k.lost == nil {
		at = k.stopAt()
	}
	if !k.final && !k.asking && (at == 0 || k.next < at) {
		at = k.next
	}
	return at
}

// takeIn takes in what has come, without waiting.
func (k *keeper) takeIn() {
	for {
		select {
		case a := <-k.answers:
			k.asking = false
			k.answered(a)
		case <-k.events:
			k.hint()
		default:
			return
		}
	}
}

func (k *keeper) answered(a answer) {
	var panicked *locks.PanicError
	switch {
	case a.err == nil:
		if k.failure != nil {
			k.log(false, "the store answers again", "without", k.clock().Sub(k.term.Asked))
		}
		k.term, k.failure = a.term, nil
		k.next = a.term.Asked.Add(k.beat)
		if !k.final {
			k.lost = nil // which is of no help to a command that is being stopped
		}
	case errors.Is(a.err, locks.ErrLost):
		k.lost, k.final = a.err, true
	case errors.As(a.err, &panicked):
		panic(panicked)
	default:
		if k.failure == nil {
			k.log(true, "the slot cannot be renewed at the moment", "error", a.err, "left", k.term.End().Sub(k.clock()))
		}
		k.failure = a.err
		k.next = k.clock().Add(retryPause(k.term.TTL))
	}
	if k.again {
		k.again, k.next = false, k.clock()
	}
}

// hint makes the next renewal come at once. It also says who has taken the slot
// back.
func (k *keeper) hint() {
	if k.asking {
		k.again = true
		return
	}
	k.next = k.clock()
}

func (k *keeper) renew(limit time.Duration) {
	defer k.wake()
	defer func() {
		if v := recover(); v != nil {
			k.answers <- answer{err: locks.NewPanicError(v)}
		}
	}()
	ctx, cancel := context.WithTimeout(k.ctx, limit)
	defer cancel()
	term, err := k.lease.Renew(ctx)
	k.answers <- answer{term, err}
}
