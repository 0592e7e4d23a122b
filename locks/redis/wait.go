package redis

import (
	"context"
	"time"

	"golock/locks"
	"golock/locks/lease"
)

// waiting is what an entry needs while it waits. The entry's mutex guards it, except
// for notices, which belong to the one that waits.
type waiting struct {
	notices    <-chan notice
	stop       context.CancelFunc
	subscribed bool
	joins      int64         // how often it has asked since it is
	asked      locks.Instant // before the last Ask that was answered
	renewed    bool          // it has just subscribed, perhaps in the same moment as all others
}

// nextJoin is the number of the next Ask to join.
func (w *waiting) nextJoin() int64 {
	if !w.subscribed {
		return 0
	}
	w.joins++
	return w.joins
}

// spread shortens a pause after a subscription.
func (w *waiting) spread(ref locks.Ref, pause time.Duration) time.Duration {
	if !w.renewed {
		return pause
	}
	w.renewed = false
	return jitter(ref, pause)
}

// jitter shortens a pause by up to a half, for each entry by another part. Those who
// came together, at a full hour or when the server was back, would otherwise ask
// together from then on, all within the same moment of each third of the TTL.
func jitter(ref locks.Ref, pause time.Duration) time.Duration {
	return pause - pause/2*time.Duration(ref.ID[0])/256
}

// checks is how often a waiter asks in its TTL.
const checks = 3

// maxGrantAge is how old an Ask may be when it is answered by a grant that is
// published. An outage that begins then must leave the command alone for as long as
// it does between two renewals, which come a little sooner than the checks.
func maxGrantAge(ttl time.Duration) time.Duration { return ttl/checks - ttl/20 }

// Sleep implements lease.Entry. It subscribes, has the waiter ask when that is
// confirmed, because its turn may have come meanwhile, and sleeps until a message
// says that it holds, or is to ask, or d is over.
func (e *entry) Sleep(ctx context.Context, d time.Duration, near func()) (lease.Answer, locks.Instant, error) {
	e.mu.Lock()
	if e.wait == nil {
		listening, stop := context.WithCancel(context.Background())
		e.wait = &waiting{notices: e.store.listen(listening, e.ref, e.ttl, 0), stop: stop}
	}
	w := e.wait
	e.mu.Unlock()
	alarm := time.NewTimer(d)
	defer alarm.Stop()
	end := time.Now().Add(d)
	for {
		select {
		case <-ctx.Done():
			return lease.Answer{}, 0, nil
		case <-alarm.C:
			return lease.Answer{}, 0, nil
		case n, ok := <-w.notices:
			switch {
			case !ok: // it does not listen any more
				w.notices = nil
			case n.kind == denied:
				e.store.noPubSub.Store(true)
			case n.kind == published && n.Recheck > 0: // the one in front has its turn
				near()
				if sooner := time.Now().Add(n.Recheck.duration()); sooner.Before(end) {
					end = sooner
					alarm.Reset(n.Recheck.duration())
				}
			default:
				return e.react(n)
			}
		}
	}
}

// react is for a notice that ends the sleep.
func (e *entry) react(n notice) (lease.Answer, locks.Instant, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.wait
	switch n.kind {
	case broken:
		return lease.Answer{}, 0, n.err
	case subscribed:
		w.subscribed, w.renewed = true, true
	case disconnected:
		w.subscribed = false
	case published:
		if !e.accepts(n.Record) {
			break
		}
		e.learn(n.Epoch, n.Record)
		e.stopWaiting()
		return lease.Answer{Verdict: lease.Granted, Grant: n.Record.grant(e.ref), TTL: e.ttl, Epoch: e.epoch}, w.asked, nil
	}
	return lease.Answer{}, 0, nil
}

// accepts reports whether a published grant answers the last Ask, and is as good as an
// answer, for it counts from there. A message that was under way for longer than a lease
// lasts may be about one that has ended. Replicas can only be waited for by who asks.
func (e *entry) accepts(granted *record) bool {
	return granted != nil && granted.Join == e.record.Join && e.store.target.replicas == 0 &&
		e.store.clock().Sub(e.wait.asked) <= maxGrantAge(e.ttl)
}

func (e *entry) stopWaiting() {
	if e.wait != nil {
		e.wait.stop()
	}
}

// leaseEvents passes on what a holder's channel says.
type leaseEvents struct {
	channel chan locks.Event
	stop    context.CancelFunc
	err     error // the listener's: the next renewal tells it; guarded by the entry's mutex
}

const (
	// eventRoom is how many events wait to be taken; more would say nothing new.
	eventRoom = 4

	// listenDelay passes before a holder subscribes: most short commands have ended
	// by then.
	listenDelay = 100 * time.Millisecond
)

// Events implements lease.Entry. The first call starts the listener.
func (e *entry) Events() <-chan locks.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.events == nil {
		ctx, stop := context.WithCancel(context.Background())
		e.events = &leaseEvents{channel: make(chan locks.Event, eventRoom), stop: stop}
		if e.closed {
			stop()
		}
		go e.watchLease(ctx, e.ttl)
	}
	return e.events.channel
}

// watchLease tells of what happens to a lease. A connection that has gone may mean that
// the server has; one that has come (again) may have missed something. Both are reasons
// to renew.
func (e *entry) watchLease(ctx context.Context, ttl time.Duration) {
	lease.Pause(ctx, listenDelay)
	if ctx.Err() != nil {
		return
	}
	last := subscribed
	for n := range e.store.listen(ctx, e.ref, ttl, ttl/10) {
		switch {
		case n.Evicted:
			e.events.tell(locks.Evicted)
		case n.kind == broken:
			e.mu.Lock()
			e.events.err = n.err
			e.mu.Unlock()
			e.events.tell(locks.Unsure)
		case n.kind == subscribed, n.kind == disconnected && last != disconnected:
			e.events.tell(locks.Unsure)
		}
		last = n.kind
	}
}

func (h *leaseEvents) tell(e locks.Event) {
	select {
	case h.channel <- e:
	default:
	}
}
