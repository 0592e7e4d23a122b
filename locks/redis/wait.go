package redis

import (
	"context"
	"time"

	"golock/locks"
	"golock/locks/lease"
)

// waiting is the state of an entry that waits. The entry's mutex guards it.
type waiting struct {
	notices    <-chan notice
	stop       context.CancelFunc
	subscribed bool
	joins      int64         // how often it has asked while subscribed
	asked      locks.Instant // before the last Ask that was answered
	jitter     bool          // it has just subscribed, perhaps together with all others
}

// spread shortens the first pause after a subscription by up to a half, which differs
// between entries. Waiters that came together, at a full hour or when the server was back,
// would otherwise ask together ever after.
func (w *waiting) spread(ref locks.Ref, pause time.Duration) time.Duration {
	if w.jitter {
		pause -= pause / 2 * time.Duration(ref.ID[0]) / 256
	}
	w.jitter = false
	return pause
}

// maxGrantAge is how old the last Ask may be when a grant is published. The rest of the
// lease must outlast an outage that begins then, as after a renewal. A waiter asks every
// TTL/3; renewals come a little sooner.
func maxGrantAge(ttl time.Duration) time.Duration { return ttl/3 - ttl/20 }

// Sleep implements lease.Entry. It subscribes, returns when that is confirmed, because a
// wake-up may have come before, and then sleeps until a message tells of a grant or to
// ask, or d is over.
func (e *entry) Sleep(ctx context.Context, d time.Duration, near func()) (a lease.Answer, sent locks.Instant, _ error) {
	e.mu.Lock()
	if e.wait == nil {
		listening, stop := context.WithCancel(e.life)
		notices := make(chan notice)
		e.wait = &waiting{notices: notices, stop: stop}
		go e.listen(listening, 0, func(n notice) {
			select {
			case notices <- n:
			case <-listening.Done():
			}
		})
	}
	notices := e.wait.notices
	e.mu.Unlock()
	alarm := time.NewTimer(d)
	defer alarm.Stop()
	end := time.Now().Add(d)
	for {
		select {
		case <-ctx.Done():
			return a, 0, nil
		case <-alarm.C:
			return a, 0, nil
		case n := <-notices:
			if n.kind != published || n.Recheck <= 0 {
				a, sent = e.react(n)
				return a, sent, nil
			}
			near() // the one in front has its turn
			if sooner := time.Now().Add(n.Recheck.duration()); sooner.Before(end) {
				end = sooner
				alarm.Reset(n.Recheck.duration())
			}
		}
	}
}

// react is for a notice that ends the sleep.
func (e *entry) react(n notice) (a lease.Answer, sent locks.Instant) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.wait
	switch {
	case n.kind != published:
		w.subscribed = n.kind == subscribed
		w.jitter = w.subscribed
	case e.accepts(n.Record):
		e.learn(n.Epoch, n.Record)
		w.stop()
		return lease.Answer{Verdict: lease.Granted, Grant: n.Record.grant(e.ref), TTL: e.ttl, Epoch: n.Epoch}, w.asked
	}
	return a, 0
}

// accepts reports whether a published grant answers the last Ask, so that the lease counts
// from there, and is recent enough. An old message may be about a lease that has ended.
// With ?min-replicas= only the answer to an Ask has waited for the replicas.
func (e *entry) accepts(granted *record) bool {
	return granted != nil && granted.Join == e.record.Join && e.store.target.replicas == 0 &&
		e.store.clock().Sub(e.wait.asked) <= maxGrantAge(e.ttl)
}

// listenDelay passes before a holder subscribes: most short commands have ended by then.
const listenDelay = 100 * time.Millisecond

// Events implements lease.Entry. The first call starts the listener.
func (e *entry) Events() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.events == nil {
		e.events = make(chan struct{}, 4) // more would say nothing new
		go e.watchLease(e.ttl, e.events)
	}
	return e.events
}

// watchLease tells of what happens to a lease. If the connection has gone, the server may
// have gone too; a new one may have missed a message. Both are reasons to renew.
func (e *entry) watchLease(ttl time.Duration, events chan<- struct{}) {
	lease.Pause(e.life, listenDelay)
	e.listen(e.life, ttl/10, func(n notice) {
		if n.Evicted || n.kind != published {
			select {
			case events <- struct{}{}:
			default:
			}
		}
	})
}
