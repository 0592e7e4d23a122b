package leasefile

import (
	"context"
	"encoding/hex"
	"errors"
	"io/fs"
	"slices"
	"sync"
	"time"

	"golock/locks"
)

// lease is a held slot, or one that another process took (Attach).
type lease struct {
	*entry
	attached bool
	events   chan locks.Event
	watching sync.Once
	quit     chan struct{} // closed by the first Release
	quitting sync.Once
	using    chan struct{} // has room for the one that uses the directory

	known struct { // what the methods that do no I/O tell
		sync.Mutex
		grant locks.Grant
		term  locks.Term
	}
	released bool // guarded by using
}

// releaseLimit bounds a release. After it the lease ends by itself.
const releaseLimit = 2 * time.Second

// lookLimit is how long it takes at most until a holder sees, without a renewal,
// that its slot has gone or that somebody wants it back.
const lookLimit = time.Second

func newLease(e *entry) *lease {
	l := &lease{entry: e, events: make(chan locks.Event, 1), quit: make(chan struct{}), using: make(chan struct{}, 1)}
	l.learn()
	return l
}

// Attach implements locks.Attacher. Slots, fence and TTL are known after the
// first renewal.
func (s *Store) Attach(ref locks.Ref) locks.Leased {
	q := &queue{store: s, key: ref.Key, path: s.keyPath(ref.Key)}
	e := &entry{store: s, queue: q, request: locks.Request{Ref: ref}}
	e.watch = q.watch(defaultTTL)
	l := newLease(e)
	l.attached = true
	return l
}

// learn makes known what the entry has become.
func (l *lease) learn() {
	l.known.Lock()
	defer l.known.Unlock()
	l.known.grant = locks.Grant{Ref: l.request.Ref, Slots: slices.Clone(l.record.Slots), Fence: l.record.Fence}
	l.known.term = l.term
}

// Grant implements locks.Lease.
func (l *lease) Grant() locks.Grant {
	l.known.Lock()
	defer l.known.Unlock()
	return l.known.grant
}

// Term implements locks.Leased.
func (l *lease) Term() locks.Term {
	l.known.Lock()
	defer l.known.Unlock()
	return l.known.term
}

// use runs f while no other call of this lease uses the directory. A file system
// that hangs holds up f, not the caller: f may still be running when use has
// returned, and what it finds then goes nowhere.
func use[T any](ctx context.Context, l *lease, f func() (T, error)) (found T, err error) {
	select {
	case l.using <- struct{}{}:
	case <-ctx.Done():
		return found, ctx.Err()
	}
	return await(ctx, func() (T, error) {
		defer func() { <-l.using }()
		l.mu.Lock()
		defer l.mu.Unlock()
		return f()
	}, func(T, error) {})
}

// errElsewhere is for a renewal of what another machine has taken: only the
// clock it was taken on tells whether it still lasts.
var errElsewhere = errors.New("the slot was taken on another machine, or before the last boot of this one: it can be renewed only there")

// Renew implements locks.Leased. An answer after the end of the last term is
// ErrLost, whatever the directory shows: somebody may have judged already.
func (l *lease) Renew(ctx context.Context) (locks.Term, error) {
	return use(ctx, l, func() (none locks.Term, err error) {
		if l.released {
			return none, locks.ErrLost
		}
		if l.attached {
			if err := l.fetch(); err != nil {
				return none, err
			}
		}
		if by, ok := l.queue.evictedBy(l.token.id); ok {
			return none, &locks.EvictedError{By: by}
		}
		if err := l.beat(); errors.Is(err, errGone) {
			return none, locks.ErrLost
		} else if err != nil {
			return none, err
		}
		l.learn()
		return l.entry.term, nil
	})
}

// fetch reads what another process has written last.
func (l *lease) fetch() error {
	tokens, err := l.queue.find(l.request.Ref)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && (len(tokens) == 0 || tokens[0].kind != holds)) {
		return locks.ErrLost
	}
	if err != nil {
		return err
	}
	text, rec, err := l.queue.readRecord(tokens[0].id)
	if errors.Is(err, fs.ErrNotExist) {
		return locks.ErrLost
	}
	if err != nil {
		return err
	}
	p, ok := parsePulse(text)
	if !ok {
		return &Error{Path: l.queue.recordPath(tokens[0].id), Err: errDamaged}
	}
	if rec.Clock == "" || rec.Clock != l.store.clockName() {
		return &Error{Path: l.queue.recordPath(tokens[0].id), Err: errElsewhere}
	}
	l.token, l.record, l.pulse = tokens[0], rec, p
	l.entry.term = locks.Term{Asked: p.asked, TTL: rec.TTL}
	return nil
}

// Events implements locks.Leased. The first call starts a goroutine that looks
// after the entry until it is released.
func (l *lease) Events() <-chan locks.Event {
	l.watching.Do(func() { go l.watchOver() })
	return l.events
}

// watchOver sees that the entry has gone, or that it was told to go: sooner than
// a renewal would, which then says so.
func (l *lease) watchOver() {
	every := lookLimit
	if ttl := l.Term().TTL; ttl > 0 {
		every = min(every, ttl/beats)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for told := false; !told; {
		select {
		case <-tick.C:
		case <-l.quit:
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), every)
		told, _ = use(ctx, l, func() (bool, error) {
			here, err := l.queue.here(l.token)
			_, evicted := l.queue.evictedBy(l.token.id)
			return err == nil && (!here || evicted), nil
		})
		cancel()
	}
	select {
	case l.events <- locks.Unsure:
	default:
	}
}

// Release implements locks.Lease. It tries for two seconds at most. ErrLost says
// that the slot was not ours any more.
func (l *lease) Release(ctx context.Context) error {
	l.quitting.Do(func() { close(l.quit) })
	ctx, cancel := context.WithTimeout(ctx, releaseLimit)
	defer cancel()
	for {
		_, err := use(ctx, l, func() (struct{}, error) { return struct{}{}, l.release() })
		if err == nil || errors.Is(err, locks.ErrLost) || ctx.Err() != nil || !mayPassInLine(err) {
			return err
		}
		pause(ctx, retryPause)
	}
}

func (l *lease) release() error {
	if l.released {
		return nil
	}
	if !l.attached {
		l.given.Store(true)
		return l.drop(l.entry.token)
	}
	tokens, err := l.queue.find(l.request.Ref)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && len(tokens) == 0) {
		l.released = true
		return locks.ErrLost
	}
	over := false
	for _, t := range tokens {
		if err != nil {
			break
		}
		if t.kind == holds {
			var text string
			text, l.record, _ = l.queue.readRecord(t.id)
			if l.record.Left { // nobody holds it any more, it only stays
				l.released = true
				return locks.ErrLost
			}
			over = l.ranOut(text)
		}
		err = l.drop(t)
	}
	if err == nil && over {
		err = locks.ErrLost
	}
	return err
}

// ranOut reports whether the record that was read last, with its pulse, is of a
// lease whose time is over, as far as this machine can know.
func (l *lease) ranOut(text string) bool {
	p, ok := parsePulse(text)
	return ok && l.record.Clock != "" && l.record.Clock == l.store.clockName() && l.store.clock() >= p.asked.Add(l.record.TTL)
}

// drop removes an entry, or leaves a holder's to itself for the rest of its
// hold.
func (l *lease) drop(t token) error {
	if left := l.holdLeft(t); t.kind == holds && left > 0 {
		if err := l.abandon(t, left); !errors.Is(err, fs.ErrNotExist) {
			l.released = l.released || err == nil
			return err
		}
	}
	removed, err := l.queue.remove(t)
	switch {
	case err != nil && !removed:
		return err
	case !removed:
		l.released = true
		return locks.ErrLost
	}
	l.released = true // what could not be cleaned up counts for nothing
	return nil
}

// holdLeft is how much of its hold an entry has before it.
func (l *lease) holdLeft(t token) time.Duration {
	r := &l.record
	if r.Hold <= 0 || r.Left {
		return 0
	}
	if _, evicted := l.queue.evictedBy(t.id); evicted {
		return 0
	}
	if r.Clock == "" || r.Clock != l.store.clockName() {
		return r.Hold // too long is better than too short
	}
	return r.Hold - l.store.clock().Sub(r.Granted)
}

// abandon leaves a slot taken for a time that each machine counts on its own
// clock. This one has seen it now.
func (l *lease) abandon(t token, left time.Duration) error {
	beat, rec, err := l.queue.readRecord(t.id)
	if err != nil {
		return err
	}
	was, _ := parsePulse(beat)
	now := l.store.clock()
	p := pulse{count: was.count + 1, asked: now}
	rec.Left, rec.Rest = true, left
	if err := l.queue.writeRecord(t.id, p, &rec); err != nil {
		return err
	}
	l.queue.noteSeen(t.id, p.String(), now)
	return nil
}

// refOf is the Ref of an entry of this name.
func (q *queue) refOf(t token) locks.Ref { return locks.Ref{Key: q.key, ID: t.refID()} }

// keyFromName reads a key as keyPath writes it.
func keyFromName(name string) (k locks.Key, ok bool) {
	n, err := hex.Decode(k[:], []byte(name[:min(len(name), 32)]))
	return k, err == nil && n == len(k) && k.String() == name
}
