package redis

import (
	"cmp"
	"context"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// maxGrantAge is the largest age of a waiter's last question at which a published grant is accepted. The
// lease counts from that question. If an outage begins after the grant, the lease must last as long as
// after a renewal. A waiter asks every TTL/3, a holder renews a little more often.
func maxGrantAge(ttl time.Duration) time.Duration { return queue.AskEvery(ttl) - ttl/20 }

// Sleep implements lease.Entry. It subscribes and returns when that is confirmed, because a wake-up
// may have come before. When it is called again, it sleeps until a message tells of a grant or to
// ask, or until the nap is over.
func (e *entry) Sleep(ctx context.Context, nap queue.Nap, near func()) (a lease.Answer, sent locks.Instant, _ error) {
	e.listening.Do(func() { go e.listen(0) })
	ctx, cancel := context.WithTimeout(ctx, nap.For)
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return a, 0, nil
		case <-e.events:
			e.mu.Lock()
			m := cmp.Or(e.message, &message{})
			e.message = nil
			e.mu.Unlock()
			if m.Recheck <= 0 {
				a, sent = e.accept(m)
				return a, sent, nil
			}
			near() // the entry in front has its turn
			ctx, cancel = context.WithTimeout(ctx, m.Recheck.duration())
			defer cancel()
		}
	}
}

// accept returns the grant in a message. The message must answer the last Ask, from which the lease
// counts, and must be recent: an old message may be about a lease that has ended. With
// ?min-replicas= accept refuses, because only the answer to an Ask has waited for the replicas.
func (e *entry) accept(m *message) (a lease.Answer, sent locks.Instant) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r, err := readRecord(m.Record, true)
	if err != nil || r.Join != e.record.Join || e.store.target.replicas > 0 ||
		e.store.clock().Sub(e.asked) > maxGrantAge(e.ttl) {
		return a, 0
	}
	e.learn(m.Epoch, r)
	return lease.Answer{Outcome: queue.Outcome{Verdict: queue.Granted}, Grant: r.grant(e.ref), TTL: e.ttl, Distance: e.store.distance(), Epoch: m.Epoch}, e.asked
}

// listenDelay is the time before a holder subscribes. Most short commands have ended by then.
const listenDelay = 100 * time.Millisecond

// Events implements lease.Entry. If the connection has gone, the server may have gone too. A new
// connection may have missed a message. Both are reasons to renew.
func (e *entry) Events() <-chan struct{} {
	e.listening.Do(func() { go e.listen(listenDelay) })
	return e.events
}
