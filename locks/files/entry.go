package files

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// heartbeatsPerTTL is how many signs of life an entry gives in its TTL while it waits. A
// holder is renewed by whoever holds it.
const heartbeatsPerTTL = 3

// entry is one that this process has made, or that it found (Attach).
type entry struct {
	store    *Store
	request  locks.Request
	attached bool
	given    atomic.Bool   // it is being given up: nothing is to be taken any more
	using    chan struct{} // has room for the one that uses the directory

	events   chan locks.Event
	watching sync.Once
	closed   chan struct{} // closed by Close
	closing  sync.Once

	mu   sync.Mutex // guards what Sleep and Events need; not held while the directory is used
	spot spot
	term locks.Term // of the last good sign of life

	// What follows belongs to who has the room in using.
	watch     *watch
	state     *state // that was seen last
	own       member
	record    record
	heartbeat heartbeat
	created   bool          // its record is there
	asked     bool          // others may let it in
	queued    bool          // it was let into the queue
	judged    locks.Instant // when it looked last whether others live
	released  bool
}

// spot is where an entry was in the queue when it looked last.
type spot struct {
	directory *directory
	version   int64
	turns     int           // so many versions there must be until it can hold, or more
	changed   locks.Instant // when a new version was seen
}

func (s *Store) entryOf(r locks.Request) *entry {
	return &entry{
		store: s, request: r, events: make(chan locks.Event, 1), closed: make(chan struct{}), using: make(chan struct{}, 1),
		own: member{id: r.Ref.ID.String()},
	}
}

func (s *Store) newEntry(r locks.Request) *entry {
	if r.TTL <= 0 {
		r.TTL = lease.DefaultTTL
	}
	e := s.entryOf(r)
	e.record = s.newRecord(r)
	e.own.state, e.own.ttl, e.own.hold, e.own.replace = queue.Waiting, r.TTL, max(r.Hold, 0), r.Replace
	e.own.weight, e.own.max, e.own.priority = r.Claim.Weight, r.Claim.Max, r.Claim.Priority
	return e
}

// outcome is what a step came to. sent is the moment before its sign of life.
type outcome struct {
	lease.Answer
	sent locks.Instant
}

// Ask implements lease.Entry.
func (e *entry) Ask(ctx context.Context, step lease.Step) (lease.Answer, locks.Instant, error) {
	do, passes := e.join, isTemporaryInQueue
	switch step {
	case lease.Join:
		if !e.isQueued() {
			passes = isTemporary
		}
	case lease.Renew:
		do = e.renew
	case lease.Release:
		do = e.release
	case lease.Leave:
		do = e.leave
	}
	if step == lease.Release || step == lease.Leave {
		e.given.Store(true)
	}
	o, err := use(ctx, e, do)
	var panicked *locks.PanicError
	switch {
	case err == nil:
		return o.Answer, o.sent, nil
	case errors.Is(err, locks.ErrLost):
		return lease.Answer{Verdict: lease.Lost}, 0, nil
	case !errors.As(err, &panicked) && (passes(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
		return lease.Answer{}, 0, err
	}
	return lease.Answer{}, 0, &lease.Refusal{Err: err}
}

// Close implements lease.Entry.
func (e *entry) Close() { e.closing.Do(func() { close(e.closed) }) }

// use runs f while no other step of the entry uses the directory. A file system that
// hangs holds up f, not the caller: f may still be running when use has returned, and
// what it finds then goes nowhere.
func use[T any](ctx context.Context, e *entry, f func(context.Context) (T, error)) (found T, err error) {
	select {
	case e.using <- struct{}{}:
	case <-ctx.Done():
		return found, ctx.Err()
	}
	return await(ctx, func() (T, error) {
		defer func() { <-e.using }()
		return f(ctx)
	})
}

// errLate says that the entry may have been taken for dead.
var errLate = errors.New("the sign of life came too late")

// sign gives a sign of life. It counts only if it was there before the last one
// had run out: until then nobody can have taken the entry for dead, and from
// then on everybody sees the new one.
func (e *entry) sign(phase byte) error {
	e.store.at("sign")
	asked, end := e.store.clock(), e.term.End()
	if asked >= end {
		return errLate
	}
	p := heartbeat{count: e.heartbeat.count + 1, asked: asked, phase: phase}
	if err := e.watch.writeHeartbeat(e.own.record(), p); errors.Is(err, fs.ErrNotExist) {
		return errLate
	} else if err != nil {
		return err
	}
	e.store.at("signed")
	if e.store.clock() >= end {
		return errLate
	}
	e.heartbeat = p
	e.setTerm(locks.Term{Asked: asked, TTL: e.own.ttl})
	return nil
}

func (e *entry) setTerm(t locks.Term) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term = t
}

// create makes the entry's record before the entry can be seen.
func (e *entry) create() error {
	if e.given.Load() {
		return errGivenUp
	}
	if e.created {
		return nil
	}
	e.store.at("record")
	e.heartbeat = heartbeat{count: e.heartbeat.count + 1, asked: e.store.clock(), phase: joined}
	if err := e.watch.createRecord(e.own.record(), e.heartbeat, &e.record); err != nil {
		return err
	}
	e.created = true
	e.setTerm(locks.Term{Asked: e.heartbeat.asked, TTL: e.own.ttl})
	return nil
}

// errGivenUp ends a step whose caller has gone.
var errGivenUp = errors.New("the request was given up")

// renew has the answer after the end of the last term be ErrLost, whatever the
// directory shows: somebody may have judged already.
func (e *entry) renew(context.Context) (o outcome, err error) {
	if e.released {
		return o, locks.ErrLost
	}
	if e.attached {
		if err := e.fetch(); err != nil {
			return o, err
		}
	}
	if err := e.sign(accepted); err == errLate {
		return o, locks.ErrLost
	} else if err != nil {
		return o, err
	}
	m, err := e.find()
	switch {
	case err != nil:
		return o, err
	case m.evicted != "":
		return outcome{Answer: lease.Answer{Verdict: lease.Evicted, By: m.evicted}}, nil
	}
	return e.held(lease.Held, m.entry()), nil
}

// find gives the entry as it holds now, or locks.ErrLost.
func (e *entry) find() (*member, error) {
	s, version, err := e.watch.read(nil)
	if errors.Is(err, errRemoved) {
		err = locks.ErrLost
	}
	if err != nil {
		return nil, err
	}
	e.seen(version, 0)
	m := s.find(e.own.id)
	if m == nil || m.state != queue.Holding || (m.life != e.own.life && !e.attached) {
		return nil, locks.ErrLost
	}
	return m, nil
}

// held is the outcome of a grant or a renewal.
func (e *entry) held(v lease.Verdict, q queue.Entry) outcome {
	grant := locks.Grant{Ref: e.request.Ref, Slots: q.Slots, Fence: q.Fence}
	return outcome{lease.Answer{Verdict: v, Grant: grant, TTL: e.term.TTL}, e.term.Asked}
}

// errElsewhere is for a renewal of what another machine has taken: only the
// clock it was taken on tells whether it still lasts.
var errElsewhere = errors.New("the slot was taken on another machine, or before the last boot of this one: it can be renewed only there")

// fetch reads what another process has written last.
func (e *entry) fetch() error {
	if err := e.watch.known(); err != nil {
		return err
	}
	m, err := e.find()
	if err != nil {
		return err
	}
	text, rec, err := e.watch.readRecord(m.record())
	p, ok := parseHeartbeat(text)
	leaves, _ := p.leaves()
	path := e.watch.recordPath(m.record())
	switch {
	case err != nil:
		return err
	case !ok:
		return &locks.PathError{Path: path, Err: errDamaged}
	case leaves:
		return locks.ErrLost
	case rec.Clock == "" || rec.Clock != e.store.clockName():
		return &locks.PathError{Path: path, Err: errElsewhere}
	}
	e.own, e.record, e.heartbeat = *m, rec, p
	e.setTerm(locks.Term{Asked: p.asked, TTL: m.ttl})
	return nil
}

// release ends what the entry holds.
func (e *entry) release(ctx context.Context) (o outcome, err error) {
	o.Verdict = lease.Released
	if e.released {
		return o, nil
	}
	inTime := e.store.clock() < e.term.End()
	r, saysSo, err := e.end(ctx, lease.Release, left, false)
	// Another one may have taken it out since it said so.
	o.Existed, o.Doubtful = r.Existed || r.state == nil && saysSo, r.unsure || (saysSo && inTime)
	e.released = err == nil
	return o, err
}

// end gives up what the entry has. On a full disk its sign of life says so, for which
// there is always room: then there is no state in the result. Whoever makes the next
// version takes it out; so a burst of newcomers does not keep a slot from being free, either.
func (e *entry) end(ctx context.Context, how lease.Step, phase byte, force bool) (r result, saysSo bool, err error) {
	says := heartbeat{count: e.heartbeat.count + 1, asked: e.store.clock(), phase: phase}
	saysSo = !e.attached && e.watch.writeHeartbeat(e.own.record(), says) == nil
	if err = e.unask(); err != nil {
		return r, saysSo, err
	}
	p := &step{watch: e.watch, own: e.own, foreign: e.attached, force: force, question: queue.Question{Step: how, Entry: queue.Entry{ID: e.own.id}}}
	r, err = p.decide(ctx)
	if noSpace(err) && saysSo {
		says.phase -= toSmall
		if err = e.watch.writeHeartbeat(e.own.record(), says); errors.Is(err, fs.ErrNotExist) {
			err = nil // another one has taken it out
		}
	}
	if errors.Is(err, errRemoved) {
		err = nil
	}
	return r, saysSo, err
}

// leave gives the entry up, whatever it is by now, and notes for others what
// this one has seen.
func (e *entry) leave(ctx context.Context) (o outcome, err error) {
	o.Verdict = lease.Released
	if e.watch == nil || e.released { // it has not come so far
		return o, nil
	}
	if e.heartbeat.count > 0 {
		// Who has read its request makes no version any more after a forced one.
		r, _, err := e.end(ctx, lease.Leave, withdrew, e.asked)
		if err != nil {
			return o, err
		}
		e.released, e.state = true, r.state
		if r.state != nil && !r.state.has(e.own.record()) {
			_ = e.watch.removeRecord(e.own.record()) // perhaps no version has had it
		}
	}
	e.watch.writeNotes(e.state)
	return o, nil
}
