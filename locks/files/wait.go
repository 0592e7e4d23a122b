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

// join makes the entry join the queue, or take its slot if it is its turn. An entry that others may have
// taken for dead rejoins.
func (e *entry) join(ctx context.Context) (a lease.Answer, err error) {
	if e.dir.name == "" {
		if err := e.dir.findOrBuild(e.request.Name); err != nil {
			return a, err
		}
	}
	a, err = e.joinOnce(ctx)
	for err == locks.ErrLost {
		err = e.removeRequest()
		if err != nil {
			break
		}
		e.created = false
		e.member.life++
		a, err = e.joinOnce(ctx)
	}
	if e.givenUp.Load() { // the caller has given up, perhaps before the entry was there to leave
		_, _ = e.leave(context.WithoutCancel(ctx))
	}
	return a, err
}

// joinOnce makes the step of a join. It returns locks.ErrLost if the entry may have been taken for dead
// meanwhile. Then the entry must rejoin with a new record: a version with that record is newer than any
// version in which others have found the entry dead.
func (e *entry) joinOnce(ctx context.Context) (a lease.Answer, err error) {
	now, term := e.store.clock(), e.term.Load()
	if e.created && now >= term.Asked.Add(queue.AskEvery(term.TTL)) {
		if err := e.writeHeartbeat(phaseJoined); err != nil {
			return a, err
		}
	}
	p, r := e.step(queue.Join), e.request
	p.question.NoWait, p.question.By, p.question.Within = r.NoWait, locks.ReplacedBy(r), queue.Enclosing(r)
	p.mustExist = e.state != nil && e.state.hasRecord(e.member.record())
	isNewcomer := e.member.Claim.Ticket == 0
	if isNewcomer {
		p.question.MaxQueue = r.MaxQueue
	}
	p.skipWaiters = isNewcomer || now < e.nextObservation
	out, err := p.decide(ctx)
	if err == nil {
		err = e.removeRequest()
	}
	if err != nil {
		return a, err
	}
	e.state = out.state
	a, err = e.answer(&out)
	next := now.Add(a.Nap.For * 9 / 10) // a little before the next join, so that the next join observes other waiters
	if !p.skipWaiters || next < e.nextObservation {
		e.nextObservation = next
	}
	return a, err
}

// answer returns what a decision means for the entry.
func (e *entry) answer(r *result) (a lease.Answer, err error) {
	// Another process may have queued the request of a newcomer, and a later version may have granted it.
	// Such an entry counts as a run that has waited.
	isNewcomer := e.member.Claim.Ticket == 0
	isLaterGrant := r.Verdict == queue.Granted && r.Entry.Fence != r.Entry.Claim.Ticket+1
	waited := isNewcomer && !e.request.NoWait && isLaterGrant
	switch {
	case r.Verdict == queue.Gone && e.store.clock() >= e.term.Load().End(): // the entry was taken for dead
		return a, locks.ErrLost
	case r.Verdict == queue.Gone && r.version < e.latestSeen.Load().number:
		return a, e.dir.lossError("")
	case r.Verdict == queue.Granted && !waited:
		if err := e.writeHeartbeat(phaseAccepted); err != nil {
			return a, err
		}
		e.noteVersion(r.version)
		a = e.held(queue.Granted, r.Entry)
		a.Replaced = r.describe(e.dir, r.Replaced)
		return a, nil
	case r.Verdict == queue.Queued, waited:
		e.member.Claim.Ticket = r.Entry.Claim.Ticket
		place, turns := max(r.Place, 1), 1
		if limit := e.member.Claim.Max; limit > 0 {
			turns = (place + limit - 1) / limit
		}
		e.noteVersion(r.version)
		a.Verdict, a.Place, a.Replaced = queue.Queued, place, r.describe(e.dir, r.Replaced)
		a.Nap = e.nap(r, place, turns)
		if len(r.removed) > 0 || waited { // the waiters behind a dead one may be dead too
			a.Nap = queue.Soon(e.member.ttl)
		}
		return a, nil
	}
	a.Outcome = r.Outcome
	if r.Verdict == queue.Busy || r.Verdict == queue.Nested {
		a.Holders = r.describe(e.dir, r.Holders)
		slices.SortFunc(a.Holders, func(a, b locks.Entry) int { return cmp.Compare(a.Fence, b.Fence) })
		_, err = e.leave(context.Background())
	}
	return a, err
}

// describe makes the public entries of those entries that the step has observed.
func (r *result) describe(d *directory, entries []queue.Entry) (all []locks.Entry) {
	for _, q := range entries {
		if observed := r.observed[q.ID]; observed != nil {
			all = append(all, observed.describe(d))
		}
	}
	return all
}

// noteVersion notes the version that the entry has read.
func (e *entry) noteVersion(version int64) {
	if version != e.latestSeen.Load().number {
		e.latestSeen.Store(&seenVersion{number: version, since: e.store.clock()})
	}
}

// abilities are the abilities of lease files: a shared file system cannot wake a waiter, and does not
// know which processes are alive.
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

// nap returns when the entry looks again after a step.
func (e *entry) nap(r *result, place, turns int) queue.Nap {
	w := queue.Waiter{Place: place, Turns: turns, TTL: e.member.ttl, Fits: r.Fits, IsDue: r.Due == e.member.ID}
	return abilities().AfterStep(&r.view, w)
}

// Sleep implements lease.Entry. It polls for new versions. A waiter at the front ends its sleep at the
// next version, a waiter further back after several (queue.Peek).
func (e *entry) Sleep(ctx context.Context, nap queue.Nap, _ func()) (lease.Answer, locks.Instant, error) {
	changed, clock := e.latestSeen.Load().since, e.store.clock
	end := clock().Add(nap.For)
	for {
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

// moved reports whether count new versions were made since the entry has read one. In doubt it reports
// true.
func (e *entry) moved(ctx context.Context, count int) bool {
	latest := e.latestSeen.Load()
	moved, err := lease.Await(ctx, func() (bool, error) {
		return e.dir.moved(latest.number, int64(count)), nil
	})
	return moved || err != nil
}

// moved reports whether at least count versions were made after a version, or whether the directory
// cannot be opened. It opens the directory anew, so that an NFS client asks the server for changes (readAt).
func (d *directory) moved(version, count int64) bool {
	h, err := d.open()
	if err != nil {
		return true
	}
	defer h.close()
	exists := func(n int64) bool {
		_, err := stat(h.fd, versionName(n), unix.AT_SYMLINK_NOFOLLOW)
		return err == nil
	}
	switch {
	case exists(version + count):
		return true
	case exists(version):
		return false
	}
	l, err := h.list()
	return err != nil || l.highest < version || l.highest >= version+count
}

// Events implements lease.Entry. The first call starts a goroutine that polls for new versions until
// Close.
func (e *entry) Events() <-chan struct{} {
	e.watching.Do(func() { go e.watch() })
	return e.events
}

// eventLimit limits the time until a holder hears, without a renewal, that its slot is lost or that it
// is evicted.
const eventLimit = time.Second

// watch sends an event whenever there is a new version. The renewal that follows finds out whether the
// entry still holds.
func (e *entry) watch() {
	defer locks.Recover(new(error)) // a renewal meets the same fault, and returns it
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
