package files

import (
	"cmp"
	"context"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// join enters the queue, or looks whether it is the entry's turn.
func (e *entry) join(ctx context.Context) (a lease.Answer, err error) {
	if e.dir.name == "" {
		if err := e.dir.make(e.request.Name); err != nil {
			return a, err
		}
	}
	a, err = e.joinOnce(ctx)
	for err == locks.ErrLost {
		if err = e.removeRequest(); err != nil {
			break
		}
		e.created = false
		e.member.life++
		a, err = e.joinOnce(ctx)
	}
	if e.givenUp.Load() { // its caller has gone, and may have found no time to take it back
		_, _ = e.leave(context.WithoutCancel(ctx))
	}
	return a, err
}

// joinOnce is locks.ErrLost if the entry may have been taken for dead meanwhile. Then it
// rejoins with a new record: a version that names that is newer than what others may
// have read.
func (e *entry) joinOnce(ctx context.Context) (a lease.Answer, err error) {
	now, term := e.store.clock(), e.term.Load()
	if e.created && now >= term.Asked.Add(queue.AskEvery(term.TTL)) {
		if err := e.writeHeartbeat(phaseJoined); err != nil {
			return a, err
		}
	}
	p, r, isNew := e.step(queue.Join), e.request, e.member.Claim.Ticket == 0
	p.question.NoWait, p.question.By, p.question.Within = r.NoWait, locks.ReplacedBy(r), queue.Enclosing(r)
	p.mustExist = e.state != nil && e.state.has(e.member.record())
	if isNew {
		p.question.MaxQueue = r.MaxQueue
	}
	p.skipWaiters = isNew || now < e.nextObservation
	out, err := p.decide(ctx)
	if err == nil {
		err = e.removeRequest()
	}
	if err != nil {
		return a, err
	}
	e.state = out.state
	a, err = e.answer(&out)
	if next := now.Add(a.Nap.For * 9 / 10); !p.skipWaiters || next < e.nextObservation {
		e.nextObservation = next
	}
	return a, err
}

// answer tells what a decision means for the entry.
func (e *entry) answer(r *result) (a lease.Answer, err error) {
	show := func(entries []queue.Entry) (all []locks.Entry) {
		for _, q := range entries {
			if seen := r.observed[q.ID]; seen != nil {
				all = append(all, seen.entry(e.dir))
			}
		}
		return all
	}
	// It was let in, and granted by a later version before it knew: it has waited.
	waited := e.member.Claim.Ticket == 0 && !e.request.NoWait &&
		r.Verdict == queue.Granted && r.Entry.Fence != r.Entry.Claim.Ticket+1
	switch {
	case r.Verdict == queue.Gone && e.store.clock() >= e.term.Load().End(): // it was taken for dead
		return a, locks.ErrLost
	case r.Verdict == queue.Gone && r.version < e.position.Load().version:
		return a, e.dir.removed("")
	case r.Verdict == queue.Granted && !waited:
		if err := e.writeHeartbeat(phaseAccepted); err != nil {
			return a, err
		}
		e.notePosition(r.version)
		a = e.held(queue.Granted, r.Entry)
		a.Replaced = show(r.Replaced)
		return a, nil
	case r.Verdict == queue.Queued, waited:
		e.member.Claim.Ticket = r.Entry.Claim.Ticket
		place, turns := max(r.Place, 1), 1
		if limit := e.member.Claim.Max; limit > 0 {
			turns = (place + limit - 1) / limit
		}
		e.notePosition(r.version)
		a.Verdict, a.Place, a.Replaced = queue.Queued, place, show(r.Replaced)
		a.Nap = e.nap(r, place, turns)
		if len(r.removed) > 0 || waited { // perhaps those behind the dead are dead too
			a.Nap = queue.Soon(e.member.ttl)
		}
		return a, nil
	}
	a.Outcome = r.Outcome
	if r.Verdict == queue.Busy || r.Verdict == queue.Nested {
		a.Holders = show(r.Holders)
		slices.SortFunc(a.Holders, func(a, b locks.Entry) int { return cmp.Compare(a.Fence, b.Fence) })
		_, err = e.leave(context.Background())
	}
	return a, err
}

// notePosition notes which version was read.
func (e *entry) notePosition(version int64) {
	last := e.position.Load()
	changed := last.changed
	if version != last.version {
		changed = e.store.clock()
	}
	e.position.Store(&position{version, changed})
}

// abilities are those of files. A shared file system pushes nothing, and knows nothing of processes.
func abilities() queue.Abilities {
	return queue.Abilities{
		Observes: true,
		// A look opens the directory and asks for one name.
		Peeks: queue.Spacing{
			LeastPerTurn: 2 * time.Millisecond,
			Most:         100 * time.Millisecond, MostPerTurn: 5 * time.Millisecond,
		},
	}
}

// nap is how the entry waits after a step.
func (e *entry) nap(r *result, place, turns int) queue.Nap {
	w := queue.Waiter{Place: place, Turns: turns, TTL: e.member.ttl, Fits: r.Fits, IsDue: r.Due == e.member.ID}
	return abilities().AfterStep(&r.view, w)
}

// Sleep implements lease.Entry. It looks for new versions: for the next one in front, for several at
// once further back.
func (e *entry) Sleep(ctx context.Context, nap queue.Nap, _ func()) (lease.Answer, locks.Instant, error) {
	changed, clock := e.position.Load().changed, e.store.clock
	for end := clock().Add(nap.For); ; {
		now := clock()
		pause := end.Sub(now)
		if nap.Peek.Moves > 0 {
			pause = min(pause, nap.Peek.Pause(now.Sub(changed)))
		}
		lease.Pause(ctx, pause)
		if ctx.Err() != nil || clock() >= end || e.moved(ctx, nap.Peek.Moves) {
			return lease.Answer{}, 0, nil
		}
	}
}

// moved reports whether there are enough new versions that the entry has to look.
func (e *entry) moved(ctx context.Context, by int) bool {
	at := e.position.Load()
	moved, err := lease.Await(ctx, func() (bool, error) {
		return e.dir.moved(at.version, int64(by)), nil
	})
	return moved || err != nil
}

// moved reports whether there are enough new versions, or no directory. It opens the
// directory anew, as readAt does.
func (d *directory) moved(version, by int64) bool {
	h, err := d.open()
	if err != nil {
		return true
	}
	defer h.close()
	here := func(n int64) bool {
		_, err := stat(h.fd, versionName(n), unix.AT_SYMLINK_NOFOLLOW)
		return err == nil
	}
	switch {
	case here(version + by):
		return true
	case here(version):
		return false
	}
	l, err := h.list()
	return err != nil || l.highest < version || l.highest >= version+by
}

// Events implements lease.Entry. The first call starts a goroutine that watches the entry
// until it is released.
func (e *entry) Events() <-chan struct{} {
	e.watching.Do(func() { go e.watch() })
	return e.events
}

// eventLimit bounds the time until a holder hears, without a renewal, that its slot is
// lost or evicted.
const eventLimit = time.Second

// watch sends an event whenever there is a new version. A renewal tells whether the entry
// still holds.
func (e *entry) watch() {
	defer locks.Recover(new(error)) // a renewal meets the same fault, and hands it on
	for e.open.Err() == nil {
		lease.Pause(e.open, min(eventLimit, queue.AskEvery(e.request.TTL)))
		if e.moved(e.open, 1) {
			select {
			case e.events <- struct{}{}:
			default:
			}
		}
	}
}
