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
// lease counts from that question. If an outage begins after the grant, the rest of the lease must be as long as
// the rest that a holder has before its next renewal. A waiter asks every TTL/3, a holder renews a little more
// often.
func maxGrantAge(ttl time.Duration) time.Duration { return queue.AskEvery(ttl) - ttl/20 }

// Sleep implements lease.Entry. The first call subscribes and returns when that is confirmed, because a wake-up
// may have come before. Later calls sleep until a message has a grant or makes the entry ask, or until the nap is
// over.
func (e *entry) Sleep(ctx context.Context, nap queue.Nap, onNext func()) (a lease.Answer, sent locks.Instant, _ error) {
	const atOnce = 0
	e.listening.Do(func() { go e.listen(atOnce) })
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
			onNext() // the waiter before this one has its turn
			ctx, cancel = context.WithTimeout(ctx, m.Recheck.duration())
			defer cancel()
		}
	}
}

// accept returns the grant in a message, or an empty answer if the entry must ask. The message must answer the
// last Join, from which the lease counts, and the Join must be recent: an old message may be about a lease that
// has ended. With ?min-replicas= the entry must always ask, because only the answer to a Join has waited for the
// replicas.
func (e *entry) accept(m *message) (a lease.Answer, sent locks.Instant) {
	e.mu.Lock()
	defer e.mu.Unlock()
	const holds = true
	r, err := readRecord(m.Record, holds)
	if err != nil || e.store.target.replicas > 0 {
		return a, 0
	}
	isAnswer := r.Join == e.record.Join
	isRecent := e.store.clock().Sub(e.asked) <= maxGrantAge(e.ttl)
	if !isAnswer || !isRecent {
		return a, 0
	}
	e.learn(m.Epoch, r)
	a.Verdict, a.Epoch = queue.Granted, m.Epoch
	a.Grant, a.TTL, a.Distance = r.grant(e.ref), e.ttl, e.store.distance()
	return a, e.asked
}

// listenDelay is the time before a holder subscribes. Most short commands have ended by then.
const listenDelay = 100 * time.Millisecond

// Events implements lease.Entry. The listener sends a hint when its connection is lost, because the server may be
// gone too, and when it has a new one, which may have missed a message.
func (e *entry) Events() <-chan struct{} {
	e.listening.Do(func() { go e.listen(listenDelay) })
	return e.events
}
