package files

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/eintr"
	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// join enters the queue, or looks whether it is the entry's turn.
func (e *entry) join(ctx context.Context) (o outcome, err error) {
	if e.watch == nil {
		d, err := e.store.directory(e.request.Name)
		if err != nil {
			return o, err
		}
		e.watch = d.watch()
	}
	o, err = e.joinOnce(ctx, false)
	for err == errLate {
		o, err = e.joinOnce(ctx, true)
	}
	if e.given.Load() { // its caller has gone, and may have found no time to take it back
		_, _ = e.leave(context.WithoutCancel(ctx))
	}
	return o, err
}

// joinOnce is errLate if the entry may have been taken for dead meanwhile. Then it
// comes again, with a new record: a version that has that is newer than what others
// may have read.
func (e *entry) joinOnce(ctx context.Context, late bool) (o outcome, err error) {
	if e.created && !late && e.store.clock() >= e.term.Asked.Add(e.term.TTL/heartbeatsPerTTL) {
		if err = e.sign(joined); err != nil && err != errLate {
			return o, err
		}
		late = err == errLate
	}
	if late && e.created {
		if err := e.unask(); err != nil {
			return o, err
		}
		e.created = false
		e.own.life++
	}
	r := e.request
	p := &step{watch: e.watch, own: e.own, entry: e, mustBe: e.queued && e.created, question: queue.Question{
		Step: lease.Join, NoWait: r.NoWait, Entry: e.own.entry(), By: locks.ReplacedBy(r), Within: lease.Enclosing(r),
	}}
	if !e.queued {
		p.question.MaxQueue, p.thorough = r.MaxQueue, r.MaxQueue != nil || r.Replace != locks.ReplaceNone
	}
	now := e.store.clock()
	p.blind = !p.thorough && !r.NoWait && len(p.question.Within) == 0 && (!e.queued || now.Sub(e.judged) < e.judgeEvery())
	out, err := p.decide(ctx)
	if err != nil {
		return o, err
	}
	if !p.blind {
		e.judged = now
	}
	e.state = out.state
	return e.answer(&out)
}

// answer tells what a decision means for the entry.
func (e *entry) answer(r *result) (o outcome, err error) {
	show := func(entries []queue.Entry) (all []locks.Entry) {
		for _, q := range entries {
			if seen := r.observed[q.ID]; seen != nil {
				all = append(all, seen.entry(e.watch.directory))
			}
		}
		return all
	}
	// Granted by a later version than that which let it in: it has waited, and did not know.
	waited := !e.queued && !e.request.NoWait && r.Verdict == lease.Granted && r.Entry.Fence != r.Entry.Claim.Ticket+1
	if waited {
		r.Verdict, r.Place = lease.Queued, 1
	}
	switch r.Verdict {
	case lease.Granted:
		if err := e.sign(accepted); err != nil {
			return o, err
		}
		o = e.held(lease.Granted, r.Entry)
		o.Replaced = show(r.Replaced)
		return o, nil
	case lease.Queued:
		e.own.ticket, e.queued = r.Entry.Claim.Ticket, true
		turns := 1
		if limit := e.own.max; limit > 0 {
			turns = (r.Place + limit - 1) / limit
		}
		e.seen(r.version, turns)
		o.Verdict, o.Place, o.Replaced = lease.Queued, r.Place, show(r.Replaced)
		o.Recheck = min(time.Duration(turns)*lookEvery, slowestLook, e.own.ttl/heartbeatsPerTTL)
		if waited {
			o.Recheck = time.Nanosecond
		}
		return o, nil
	}
	if r.missing && e.store.clock() >= e.term.End() { // it was taken for dead
		return o, errLate
	}
	if r.missing && r.version < e.spot.version {
		return o, &locks.PathError{Path: e.watch.path, Err: errRemoved}
	}
	if r.missing {
		return outcome{Answer: lease.Answer{Verdict: lease.Gone}}, nil
	}
	o.Verdict, o.By = r.Verdict, r.By
	if r.Verdict == lease.Busy || r.Verdict == lease.Nested {
		o.Full, o.Waiters, o.Holders = r.Full, r.Waiters, show(r.Holders)
		slices.SortFunc(o.Holders, func(a, b locks.Entry) int { return cmp.Compare(a.Fence, b.Fence) })
		o.Inside = r.Inside
		_, err = e.leave(context.Background())
	}
	return o, err
}

// judgeEvery is how often it looks whether those before it live.
func (e *entry) judgeEvery() time.Duration {
	return min(time.Duration(e.spot.turns)*lookEvery, slowestLook) * 9 / 10
}

// seen notes which version was read.
func (e *entry) seen(version int64, turns int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	changed := e.spot.changed
	if version != e.spot.version {
		changed = e.store.clock()
	}
	e.spot = spot{e.watch.directory, version, turns, changed}
}

func (e *entry) isQueued() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.spot.version != 0
}

// How long a waiter sleeps until it looks for a new version: a quarter of the time
// for which there was none, so that short commands follow each other quickly, within
// bounds that grow with its place.
const (
	shortestPoll = 2 * time.Millisecond
	longestPoll  = 100 * time.Millisecond // of the one in front
	slowestLook  = time.Second            // of anybody

	// lookEvery is when the one in front looks at the others, without a new version:
	// somebody may have died.
	lookEvery = 200 * time.Millisecond
)

// Sleep implements lease.Entry. Nothing is pushed over a shared file system. It
// returns when there are new versions, not one by one for those far behind.
func (e *entry) Sleep(ctx context.Context, d time.Duration, _ func()) (lease.Answer, locks.Instant, error) {
	e.mu.Lock()
	at := e.spot
	e.mu.Unlock()
	clock := e.store.clock
	for end := clock().Add(d); ; {
		turns, now := time.Duration(at.turns), clock()
		pause := min(max(now.Sub(at.changed)/4, turns*shortestPoll), turns*longestPoll, slowestLook, end.Sub(now))
		lease.Pause(ctx, pause)
		if ctx.Err() != nil || clock() >= end || at.directory == nil {
			return lease.Answer{}, 0, nil
		}
		moved, err := await(ctx, func() (bool, error) {
			return at.directory.moved(at.version, min(max(at.turns/2, 1), kept*3/4))
		})
		if moved || err != nil { // which the next look tells
			return lease.Answer{}, 0, nil
		}
	}
}

// moved reports whether there are so many new versions, or so many more that they were
// removed. The directory is opened anew: see readAt.
func (d *directory) moved(version int64, by int) (bool, error) {
	d.store.at("poll")
	fd, err := openAt(unix.AT_FDCWD, d.path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return true, err
	}
	defer unix.Close(fd)
	here := func(n int64) bool {
		var st unix.Stat_t
		return eintr.Repeat(func() error { return unix.Fstatat(fd, versionName(n), &st, unix.AT_SYMLINK_NOFOLLOW) }) == nil
	}
	return here(version+int64(by)) || !here(version), nil
}

// Events implements lease.Entry. The first call starts a goroutine that looks
// after the entry until it is released.
func (e *entry) Events() <-chan locks.Event {
	e.watching.Do(func() { go e.watchOver() })
	return e.events
}

// eventLimit is how long it takes at most until a holder sees, without a renewal,
// that its slot has gone or that somebody wants it back.
const eventLimit = time.Second

// watchOver sees that the entry has gone, or that it was told to go: sooner than
// a renewal would, which then says so.
func (e *entry) watchOver() {
	e.mu.Lock()
	every := eventLimit
	if ttl := e.term.TTL; ttl > 0 {
		every = min(every, ttl/heartbeatsPerTTL)
	}
	e.mu.Unlock()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for told := false; !told; {
		select {
		case <-tick.C:
		case <-e.closed:
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), every)
		told, _ = use(ctx, e, func(context.Context) (bool, error) { return e.isTold() })
		cancel()
	}
	select {
	case e.events <- locks.Unsure:
	default:
	}
}

// isTold reports whether the entry does not simply hold any more.
func (e *entry) isTold() (bool, error) {
	e.mu.Lock()
	at := e.spot
	e.mu.Unlock()
	if moved, err := e.watch.moved(at.version, 1); err == nil && !moved {
		return false, nil
	}
	m, err := e.find()
	if err != nil {
		return errors.Is(err, locks.ErrLost) || !isTemporaryInQueue(err), nil
	}
	return m.evicted != "", nil
}
