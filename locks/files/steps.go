package files

import (
	"context"
	"encoding/hex"
	"errors"
	"io/fs"
	"slices"
	"time"

	"golock/locks"
	"golock/locks/lease"
)

// outcome is what a step came to. sent is the moment before its sign of life.
type outcome struct {
	lease.Answer
	sent locks.Instant
}

// Ask implements lease.Entry.
func (e *entry) Ask(ctx context.Context, step lease.Step) (lease.Answer, locks.Instant, error) {
	var o outcome
	var err error
	passes := mayPassInQueue
	switch step {
	case lease.Join:
		if !e.queued {
			passes = mayPass
		}
		o, err = await(ctx, func() (outcome, error) { return e.join(ctx) })
	case lease.Renew:
		o, err = use(ctx, e, e.renew)
	case lease.Release:
		o, err = use(ctx, e, e.release)
	case lease.Leave:
		e.given.Store(true)
		_, err = await(ctx, func() (outcome, error) { e.leave(); return o, nil })
	}
	var evicted *locks.EvictedError
	var panicked *locks.PanicError
	switch {
	case err == nil:
		return o.Answer, o.sent, nil
	case errors.As(err, &evicted):
		return lease.Answer{Verdict: lease.Evicted, By: evicted.By}, 0, nil
	case errors.Is(err, errTakenOut):
		return lease.Answer{Verdict: lease.Gone}, 0, nil
	case errors.Is(err, locks.ErrLost):
		return lease.Answer{Verdict: lease.Lost}, 0, nil
	case !errors.As(err, &panicked) && (passes(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
		return lease.Answer{}, 0, err
	}
	return lease.Answer{}, 0, &lease.Refusal{Err: err}
}

// Sleep implements lease.Entry. Nothing is pushed over a shared file system.
func (e *entry) Sleep(ctx context.Context, d time.Duration, _ func()) (lease.Answer, locks.Instant, error) {
	lease.Pause(ctx, d)
	return lease.Answer{}, 0, nil
}

// Close implements lease.Entry.
func (e *entry) Close() { e.closing.Do(func() { close(e.closed) }) }

// use runs f while no other call of a lease uses the directory. A file system that
// hangs holds up f, not the caller: f may still be running when use has returned, and
// what it finds then goes nowhere.
func use[T any](ctx context.Context, e *entry, f func() (T, error)) (found T, err error) {
	select {
	case e.using <- struct{}{}:
	case <-ctx.Done():
		return found, ctx.Err()
	}
	return await(ctx, func() (T, error) {
		defer func() { <-e.using }()
		e.mu.Lock()
		defer e.mu.Unlock()
		return f()
	})
}

// held is the outcome of a grant or a renewal.
func (e *entry) held(v lease.Verdict) outcome {
	grant := locks.Grant{Ref: e.request.Ref, Slots: slices.Clone(e.record.Slots), Fence: e.record.Fence}
	return outcome{lease.Answer{Verdict: v, Grant: grant, TTL: e.term.TTL}, e.term.Asked}
}

// errElsewhere is for a renewal of what another machine has taken: only the
// clock it was taken on tells whether it still lasts.
var errElsewhere = errors.New("the slot was taken on another machine, or before the last boot of this one: it can be renewed only there")

// renew has the answer after the end of the last term be ErrLost, whatever the
// directory shows: somebody may have judged already.
func (e *entry) renew() (o outcome, err error) {
	if e.released {
		return o, locks.ErrLost
	}
	if e.attached {
		if err := e.fetch(); err != nil {
			return o, err
		}
	}
	if by, ok := e.queue.evictedBy(e.token.id); ok {
		return o, &locks.EvictedError{By: by}
	}
	if err := e.beat(); errors.Is(err, errGone) {
		return o, locks.ErrLost
	} else if err != nil {
		return o, err
	}
	return e.held(lease.Held), nil
}

// fetch reads what another process has written last.
func (e *entry) fetch() error {
	tokens, err := e.queue.find(e.request.Ref)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && (len(tokens) == 0 || tokens[0].kind != holds)) {
		return locks.ErrLost
	}
	if err != nil {
		return err
	}
	text, rec, err := e.queue.readRecord(tokens[0].id)
	if errors.Is(err, fs.ErrNotExist) {
		return locks.ErrLost
	}
	if err != nil {
		return err
	}
	p, ok := parsePulse(text)
	if !ok {
		return &locks.PathError{Path: e.queue.recordPath(tokens[0].id), Err: errDamaged}
	}
	if rec.Clock == "" || rec.Clock != e.store.clockName() {
		return &locks.PathError{Path: e.queue.recordPath(tokens[0].id), Err: errElsewhere}
	}
	e.token, e.record, e.pulse = tokens[0], rec, p
	e.term = locks.Term{Asked: p.asked, TTL: rec.TTL}
	return nil
}

// lookLimit is how long it takes at most until a holder sees, without a renewal,
// that its slot has gone or that somebody wants it back.
const lookLimit = time.Second

// Events implements lease.Entry. The first call starts a goroutine that looks
// after the entry until it is released.
func (e *entry) Events() <-chan locks.Event {
	e.watching.Do(func() { go e.watchOver() })
	return e.events
}

// watchOver sees that the entry has gone, or that it was told to go: sooner than
// a renewal would, which then says so.
func (e *entry) watchOver() {
	e.mu.Lock()
	every := lookLimit
	if ttl := e.term.TTL; ttl > 0 {
		every = min(every, ttl/beats)
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
		told, _ = use(ctx, e, func() (bool, error) {
			here, err := e.queue.here(e.token)
			_, evicted := e.queue.evictedBy(e.token.id)
			return err == nil && (!here || evicted), nil
		})
		cancel()
	}
	select {
	case e.events <- locks.Unsure:
	default:
	}
}

// release ends what the entry holds.
func (e *entry) release() (o outcome, err error) {
	o.Verdict = lease.Released
	if e.released {
		return o, nil
	}
	e.given.Store(true)
	if !e.attached {
		o.Existed, err = e.drop(e.token)
		return o, err
	}
	tokens, err := e.queue.find(e.request.Ref)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && len(tokens) == 0) {
		e.released = true
		return o, nil
	}
	over := false
	for _, t := range tokens {
		if err != nil {
			break
		}
		if t.kind == holds {
			var text string
			text, e.record, _ = e.queue.readRecord(t.id)
			if e.record.Left { // nobody holds it any more, it only stays
				e.released = true
				return outcome{Answer: lease.Answer{Verdict: lease.Released}}, nil
			}
			over = e.ranOut(text)
		}
		var existed bool
		existed, err = e.drop(t)
		o.Existed = o.Existed || existed
	}
	o.Existed = o.Existed && !over
	return o, err
}

// ranOut reports whether the record that was read last, with its pulse, is of a
// lease whose time is over, as far as this machine can know.
func (e *entry) ranOut(text string) bool {
	p, ok := parsePulse(text)
	return ok && e.record.Clock != "" && e.record.Clock == e.store.clockName() && e.store.clock() >= p.asked.Add(e.record.TTL)
}

// drop removes an entry, or leaves a holder's to itself for the rest of its hold.
func (e *entry) drop(t token) (existed bool, err error) {
	if left := e.holdLeft(t); t.kind == holds && left > 0 {
		if err := e.abandon(t, left); !errors.Is(err, fs.ErrNotExist) {
			e.released = e.released || err == nil
			return err == nil, err
		}
	}
	removed, err := e.queue.remove(t)
	if err != nil && !removed {
		return false, err
	}
	e.released = true // what could not be cleaned up counts for nothing
	return removed, nil
}

// holdLeft is how much of its hold an entry has before it.
func (e *entry) holdLeft(t token) time.Duration {
	r := &e.record
	if r.Hold <= 0 || r.Left {
		return 0
	}
	if _, evicted := e.queue.evictedBy(t.id); evicted {
		return 0
	}
	if r.Clock == "" || r.Clock != e.store.clockName() {
		return r.Hold // too long is better than too short
	}
	return r.Hold - e.store.clock().Sub(r.Granted)
}

// abandon keeps the slot until the hold ends; each machine measures from its first
// observation, and this is the one of this machine.
func (e *entry) abandon(t token, left time.Duration) error {
	beat, rec, err := e.queue.readRecord(t.id)
	if err != nil {
		return err
	}
	was, _ := parsePulse(beat)
	now := e.store.clock()
	p := pulse{count: was.count + 1, asked: now}
	rec.Left, rec.Rest = true, left
	if err := e.queue.writeRecord(t.id, p, &rec); err != nil {
		return err
	}
	e.queue.noteSeen(t.id, p.String(), now)
	return nil
}

// refOf is the Ref of an entry of this name.
func (q *queue) refOf(t token) locks.Ref { return locks.Ref{Key: q.key, ID: t.refID()} }

// keyFromName reads a key as keyPath writes it.
func keyFromName(name string) (k locks.Key, ok bool) {
	n, err := hex.Decode(k[:], []byte(name[:min(len(name), 32)]))
	return k, err == nil && n == len(k) && k.String() == name
}
