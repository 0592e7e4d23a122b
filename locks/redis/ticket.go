package redis

import (
	"context"
	"sync/atomic"
	"time"

	"golock/locks"
)

// ticket is a request of ours that was granted or queued.
type ticket struct {
	entry  *entry
	lease  *lease // granted at once
	queued bool
	asked  locks.Instant // before the last look that was answered
	looked hearing       // what that look said that it hears
	place  atomic.Int64  // in the queue, by the last answer
	look   time.Duration // until when the store wants to be asked again
	quiet  time.Time     // until then nothing is granted to anybody
	near   func()        // to be told, once, when the turn is near; nil: nobody

	replaced []locks.Entry // whom it evicted
}

// Queued implements locks.Ticket.
func (t *ticket) Queued() bool { return t.queued }

// Place implements locks.Located.
func (t *ticket) Place() int { return int(t.place.Load()) }

// Replaced implements locks.Replacer.
func (t *ticket) Replaced() []locks.Entry { return t.replaced }

// WhenNear implements locks.Placed.
func (t *ticket) WhenNear(f func()) { t.near = f }

func (t *ticket) isNear() {
	if t.near != nil {
		t.near()
		t.near = nil
	}
}

// Wait implements locks.Ticket. It subscribes, looks again when that is
// confirmed, because its turn may have come meanwhile, and sleeps until it is
// told that it holds, or to look, or the time that the store named is over. Every
// look also keeps the place alive; a waiter that was taken for dead gets its old
// place back.
func (t *ticket) Wait(ctx context.Context) (locks.Lease, error) {
	if !t.queued {
		return t.lease, nil
	}
	e := t.entry
	listening, stop := context.WithCancel(context.Background())
	defer stop()
	notices := e.store.listen(listening, e.ref, e.ttl, 0)
	alarm := time.NewTimer(t.look)
	defer alarm.Stop()
	next := time.Now().Add(t.look)
	var outage error // the last look failed with it
	hears, looks := deafened, hearing(0)
	together := false // subscribed, perhaps in the same moment as all others
	for {
		select {
		case <-ctx.Done():
			return nil, t.leave(ctx, outage)
		case <-alarm.C:
		case n, ok := <-notices:
			switch {
			case !ok:
				notices = nil
				continue
			case n.kind == broken:
				t.leave(ctx, nil)
				return nil, n.err
			case n.kind == up:
				hears = grants
				if e.store.target.replicas > 0 { // to be waited for: only who asks can
					hears = hints
				}
				together = true
			case n.kind == down: // is it the connection, or the server?
				hears = deafened
			case n.kind == given && t.isFor(n):
				return t.take(n), nil
			case n.kind == deaf:
				e.store.deaf.Store(true)
				continue
			case n.look > 0: // the one in front has its turn
				t.isNear()
				if sooner := time.Now().Add(n.look); sooner.Before(next) {
					next = sooner
					alarm.Reset(n.look)
				}
				continue
			}
		}
		ears := hears
		if hears == grants {
			looks++
			ears += looks
		}
		e.setEars(ears)
		a, asked, err := e.ask(ctx, join)
		pause := retryPause
		switch {
		case err != nil && ctx.Err() != nil:
			continue
		case err != nil && !mayPass(err):
			t.leave(ctx, nil)
			return nil, err
		case err != nil:
			outage = err
		case a.word == "granted":
			return newLease(e, asked), nil
		case a.word == "waiting":
			outage, pause, t.quiet = nil, a.look, time.Now().Add(a.quiet)
			t.asked, t.looked = asked, ears
			if together {
				pause, together = e.apart(pause), false
			}
			t.place.Store(int64(a.place))
			if a.place <= 2 {
				t.isNear()
			}
		case a.word == "evicted":
			t.leave(ctx, nil) // it may have been given the slot meanwhile
			return nil, e.refused(a)
		default:
			return nil, e.refused(a)
		}
		next = time.Now().Add(pause)
		alarm.Reset(pause)
	}
}

// apart shortens a pause by up to a half, for each entry by another part. Who
// came together, at a full hour or when the server was back, would otherwise
// look together from then on, all within the same moment of each third of the
// TTL.
func (e *entry) apart(pause time.Duration) time.Duration {
	return pause - pause/2*time.Duration(e.ref.ID[0])/256
}

// isFor reports whether a grant that was not asked for is an answer to the last
// look, and as good as one, for it counts from there. A message that was under
// way for longer than a lease lasts may be about one that has ended.
func (t *ticket) isFor(n notice) bool {
	return t.looked >= grants && n.record.ears == t.looked && t.entry.store.clock().Sub(t.asked) <= fresh(t.entry.ttl)
}

// beats is how many looks a waiter makes in its TTL.
const beats = 3

// fresh is how old a look may be when it is answered by a grant. An outage that
// begins then must leave the command alone for as long as it does between two
// renewals, which for the drift of clocks and for KILL come a little sooner than
// looks.
func fresh(ttl time.Duration) time.Duration { return ttl/beats - ttl/20 }

// take makes the lease that was given.
func (t *ticket) take(n notice) *lease {
	e := t.entry
	e.epoch, e.raw, e.record = n.epoch, n.raw, n.record
	return newLease(e, t.asked)
}

// leave gives the place up.
func (t *ticket) leave(ctx context.Context, outage error) error {
	t.entry.giveUp(ctx, leaveWait)
	if outage != nil {
		return &locks.OutageError{Store: t.entry.store.URL(), Err: outage}
	}
	if left := time.Until(t.quiet); left > 0 {
		return &locks.BusyError{Name: t.entry.name, Reason: whyQuiet(left)}
	}
	return ctx.Err()
}
