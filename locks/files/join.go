package files

import (
	"cmp"
	"context"
	"slices"
	"time"

	"golock/locks"
	"golock/locks/lease"
)

// Bounds of what a request that cannot be queued waits for others that are only
// passing through: they choose a ticket, do not wait either, or have been told
// to go.
const (
	passing      = 2 * time.Millisecond // until it looks again
	passingLimit = time.Second          // a run that does not wait
	passingBrief = 100 * time.Millisecond
)

// join makes an entry and looks at the queue until it is known what becomes of it.
// One that is in the queue looks once.
func (e *entry) join(ctx context.Context) (o outcome, err error) {
	if e.queued {
		v, err := e.look()
		if err == nil && !e.settled && !v.choosing {
			e.settle(v.picked)
		}
		return e.answer(v), err
	}
	r := e.request
	if e.queue == nil {
		if e.queue, err = e.store.queue(r.Name); err != nil {
			return o, err
		}
		e.watch = e.queue.watch(e.record.TTL)
	}
	inside := e.enclosing()
	noWait := r.NoWait || inside != nil
	e.record.NoWait = noWait || (r.MaxQueue != nil && *r.MaxQueue <= 0) // others need not count with it
	if err := e.enter(); err != nil {
		e.withdraw()
		return o, err
	}
	limit := passingBrief
	if noWait || r.MaxQueue != nil {
		limit = passingLimit
	}
	if end, ok := ctx.Deadline(); ok { // it knows by then what became of it, and does not take the store for out of reach
		limit = min(limit, time.Until(end)/2)
	}
	began := e.store.clock()
	for {
		v, err := e.look()
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			e.withdraw()
			return o, err
		}
		switch {
		case v.granted:
			return e.answer(v), nil
		case v.passing && e.store.clock().Sub(began) < limit:
			lease.Pause(ctx, passing)
			continue
		case !noWait && !v.full(r):
			e.queued = true
			if !v.choosing { // else a later look sees who is ahead
				e.settle(v.picked)
			}
			o := e.answer(v)
			for _, p := range v.picked {
				o.Replaced = append(o.Replaced, p.entry(r.Name))
			}
			return o, nil
		}
		e.withdraw()
		o.Answer = v.busy(r.Name)
		o.Full = !noWait
		if inside != nil {
			o.Verdict, o.Inside = lease.Nested, *inside
		}
		return o, nil
	}
}

// answer is what a look means for a waiter.
func (e *entry) answer(v view) outcome {
	if v.granted {
		return e.held(lease.Granted)
	}
	return outcome{Answer: lease.Answer{Verdict: lease.Queued, Place: v.place, Recheck: v.nextLook(e.record.TTL)}}
}

// How long a waiter sleeps between two looks: a quarter of the time for which
// the queue has not changed, so that short commands follow each other quickly,
// within bounds that grow with its place.
const (
	shortestLook = 2 * time.Millisecond
	longestLook  = 100 * time.Millisecond // of the one in front
	slowestLook  = time.Second            // of anybody
)

// nextLook is when to look again. It is never later than a third of the TTL:
// each look keeps the place alive.
func (v view) nextLook(ttl time.Duration) time.Duration {
	if v.passing {
		return passing
	}
	place := time.Duration(max(v.place, 1))
	d := min(max(v.unchanged/4, place*shortestLook), place*longestLook)
	return min(d, slowestLook, ttl/beats)
}

// full reports whether a request would be one too many in the line. Those that
// it puts out of its way do not count.
func (v view) full(r locks.Request) bool {
	if r.MaxQueue == nil {
		return false
	}
	staying := v.waiters // without those that do not wait
	for _, p := range v.rivals {
		if p.kind == waits && p.evicted != "" && !p.record.NoWait {
			staying--
		}
	}
	for _, p := range v.picked {
		if p.kind == waits && !p.record.NoWait {
			staying--
		}
	}
	return staying >= *r.MaxQueue
}

// enclosing is the innermost of the runs around this one that holds the name.
func (e *entry) enclosing() *locks.Ref {
	if len(e.request.Within) == 0 {
		return nil
	}
	line, err := e.queue.list()
	if err != nil {
		return nil // the look that follows tells
	}
	for _, w := range slices.Backward(e.request.Within) {
		if w.Key != e.request.Ref.Key {
			continue
		}
		for _, t := range line {
			if t.kind != holds || !t.of(w) {
				continue
			}
			if _, rec, err := e.queue.readRecord(t.id); err != nil || !rec.Left { // nobody is inside what has ended
				return &w
			}
		}
	}
	return nil
}

// busy says who is in the way.
func (v view) busy(name string) lease.Answer {
	busy := lease.Answer{Verdict: lease.Busy, Waiters: v.waiters}
	for _, h := range v.holders {
		busy.Holders = append(busy.Holders, h.entry(name))
	}
	slices.SortFunc(busy.Holders, func(a, b locks.Entry) int { return cmp.Compare(a.Fence, b.Fence) })
	if v.passing && len(busy.Holders) == 0 && busy.Waiters == 0 {
		busy.Reason = "somebody else is joining just now and does not go on"
	}
	return busy
}
