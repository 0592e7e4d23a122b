package files

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/owner"
	"golock/locks/queue"
)

// entry is an entry that this process has made, or that another process has made (Attach).
type entry struct {
	store    *Store
	dir      *directory
	request  locks.Request
	attached bool
	evictor  string        // who evicts the entry (Evict)
	givenUp  atomic.Bool   // the entry is being given up: it must not take a slot any more
	using    chan struct{} // a semaphore: one step at a time uses the directory

	events   chan struct{}
	watching sync.Once
	open     context.Context // until Close
	close    context.CancelFunc

	// Only the step that has the semaphore stores these.
	position atomic.Pointer[position]
	term     atomic.Pointer[locks.Term] // the term of the last good heartbeat

	// Only the step that has the semaphore uses the fields below.
	state           *state // the state that was read last
	member          member // its ticket is 0 until it has a place in the queue
	record          record
	heartbeat       heartbeat
	created         bool          // the record file exists
	requested       bool          // the file of its request exists, so that others may queue it
	nextObservation locks.Instant // when it observes other waiters again
}

// position is where an entry was in the queue when it looked last.
type position struct {
	version int64         // 0 before the first look
	changed locks.Instant // when it saw another version than before
}

func (s *Store) attachedEntry(ref locks.Ref, evictor string) *entry {
	e := &entry{
		store: s, dir: s.directoryOf(ref.Key), request: locks.Request{Ref: ref}, attached: true,
		evictor: locks.Printable(evictor, 200), member: member{Entry: queue.Entry{ID: ref.ID.String()}},
		events: make(chan struct{}, 1), using: make(chan struct{}, 1),
	}
	e.position.Store(&position{})
	e.term.Store(&locks.Term{})
	e.open, e.close = context.WithCancel(context.Background())
	return e
}

func (s *Store) newEntry(r locks.Request) *entry {
	e := s.attachedEntry(r.Ref, "")
	e.request, e.attached = r, false
	e.record = record{
		Owner: owner.Of(r), NoGolock: !r.Keeper.HasGolock(), Clock: s.clockName(), Process: s.self(),
		TTL: r.TTL,
	}
	e.member.State, e.member.Claim, e.member.Replace, e.member.Reachable = queue.Waiting, r.Claim, r.Replace, true
	e.member.ttl, e.member.hold = r.TTL, r.GrantHold()
	return e
}

// Ask implements lease.Entry.
func (e *entry) Ask(ctx context.Context, step queue.Step) (lease.Answer, locks.Instant, error) {
	if step == queue.Release || step == queue.Leave {
		e.givenUp.Store(true)
	}
	isQueued := step != queue.Join || e.position.Load().version != 0
	a, err := e.use(ctx, e.methodOf(step))
	switch {
	case err == nil:
		return a, e.term.Load().Asked, nil
	case errors.Is(err, locks.ErrLost), step != queue.Join && errors.Is(err, errRemoved):
		return lease.Answer{Outcome: queue.Outcome{Verdict: queue.Lost}}, 0, nil
	case ctx.Err() != nil || isTemporary(err) || isQueued && (noSpace(err) || errors.Is(err, errNoDir) || isForeign(err)):
		return lease.Answer{}, 0, err
	case lease.IsFinal(err):
		return lease.Answer{}, 0, err
	}
	return lease.Answer{}, 0, &lease.Refusal{Err: err}
}

// methodOf returns the method that makes a step.
func (e *entry) methodOf(step queue.Step) func(context.Context) (lease.Answer, error) {
	switch step {
	case queue.Join:
		return e.join
	case queue.Renew:
		return e.renew
	case queue.Hold:
		return e.hold
	case queue.Release:
		return e.release
	case queue.Leave:
		return e.leave
	default: // queue.Evict: no caller has another one
		return e.evict
	}
}

// noteAnswer tells the request that the directory can be read.
func (e *entry) noteAnswer() {
	if e.request.Answered != nil {
		e.request.Answered()
	}
}

// Close implements lease.Entry.
func (e *entry) Close() { e.close() }

// use runs a step while no other step of the entry uses the directory. A file system that hangs stops
// the step, not the caller: the step may still run when use has returned, and its answer is lost.
func (e *entry) use(ctx context.Context, step func(context.Context) (lease.Answer, error)) (lease.Answer, error) {
	select {
	case e.using <- struct{}{}:
	case <-ctx.Done():
		return lease.Answer{}, ctx.Err()
	}
	return lease.Await(ctx, func() (lease.Answer, error) {
		defer func() { <-e.using }()
		if e.attached {
			if _, err := e.dir.load(); err != nil {
				return lease.Answer{}, err
			}
		}
		return step(ctx)
	})
}

// isTemporary reports whether an error of a shared file system may pass by itself.
func isTemporary(err error) bool {
	var number unix.Errno
	return errors.As(err, &number) && slices.Contains([]unix.Errno{
		unix.EIO, unix.ESTALE, unix.ETIMEDOUT, unix.EAGAIN, unix.EHOSTDOWN, unix.ENETDOWN, unix.ENETUNREACH,
		unix.EHOSTUNREACH, unix.ECONNREFUSED, unix.ECONNRESET, unix.ECONNABORTED, unix.ENOTCONN, unix.ESHUTDOWN,
		unix.EPIPE, unix.EREMOTEIO, unix.ENFILE, unix.EMFILE, unix.ENOMEM,
	}, number)
}

// isForeign reports whether others have put something in the place of golock's files. They may remove it
// again.
func isForeign(err error) bool {
	return slices.ContainsFunc([]error{errDamaged, errForeign, unix.EISDIR, unix.ENOTDIR, unix.ELOOP, unix.ENXIO}, func(one error) bool {
		return errors.Is(err, one)
	})
}

// noSpace reports whether the disk is full, which is temporary for an entry in the queue.
func noSpace(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// writeHeartbeat writes the next heartbeat. It returns locks.ErrLost if the last one has expired before:
// then somebody may have taken the entry for dead.
func (e *entry) writeHeartbeat(phase byte) error {
	sent, end := e.store.clock(), e.term.Load().End()
	if sent >= end {
		return locks.ErrLost
	}
	p := e.nextHeartbeat(sent, phase)
	if err := e.dir.writeHeartbeat(e.member.record(), p); errors.Is(err, fs.ErrNotExist) {
		return locks.ErrLost
	} else if err != nil {
		return err
	}
	e.store.at("signed")
	if e.store.clock() >= end {
		return locks.ErrLost
	}
	e.noteHeartbeat(p)
	return nil
}

// nextHeartbeat returns the heartbeat after the last one.
func (e *entry) nextHeartbeat(sent locks.Instant, phase byte) heartbeat {
	last := e.heartbeat
	next := heartbeat{count: last.count + 1, sent: sent, since: last.since, phase: phase}
	if last.since == 0 || phase == phaseAccepted && last.phase != phaseAccepted {
		next.since = sent
	}
	return next
}

// noteHeartbeat notes the heartbeat that counts, and the term that it begins.
func (e *entry) noteHeartbeat(p heartbeat) {
	e.heartbeat = p
	e.term.Store(&locks.Term{Asked: p.sent, TTL: e.member.ttl})
}

// create makes the entry's record before the entry can be seen.
func (e *entry) create() error {
	if e.givenUp.Load() {
		return context.Canceled // the caller has gone, so nobody gets the error
	}
	if e.created {
		return nil
	}
	p := e.nextHeartbeat(e.store.clock(), phaseJoined)
	e.heartbeat = p // kept after an error too, because the file may exist then
	text, _ := json.Marshal(&e.record)
	if err := e.dir.makeFile(recordsDir+"/"+e.member.record(), fmt.Appendf(nil, "%v%s\n", p, text)); err != nil {
		return err
	}
	e.created = true
	e.noteHeartbeat(p)
	return nil
}

// renew makes the step of a renewal. It returns ErrLost after the end of the last term, whatever the
// directory shows: somebody may have taken the entry for dead.
func (e *entry) renew(ctx context.Context) (a lease.Answer, err error) {
	if e.givenUp.Load() {
		return a, locks.ErrLost
	}
	if e.attached {
		if err := e.fetch(ctx); err != nil {
			return a, err
		}
	}
	if err := e.writeHeartbeat(phaseAccepted); err != nil {
		return a, err
	}
	m, err := e.find(ctx)
	switch {
	case err != nil:
		return a, err
	case m.Evicted != "":
		return lease.Answer{Outcome: queue.Outcome{Verdict: queue.Evicted, By: m.Evicted}}, nil
	}
	return e.held(queue.Held, m.Entry), nil
}

// hold is a renewal with which the hold begins.
func (e *entry) hold(ctx context.Context) (a lease.Answer, err error) {
	a, err = e.renew(ctx)
	if err != nil || a.Verdict != queue.Held {
		return a, err
	}
	r, err := e.step(queue.Hold).decide(ctx)
	if err != nil {
		return a, err
	}
	a.Outcome = r.Outcome
	return a, nil
}

// find returns the entry if it holds, or locks.ErrLost.
func (e *entry) find(ctx context.Context) (*member, error) {
	r, err := (&step{directory: e.dir}).decide(ctx)
	if err != nil {
		return nil, err
	}
	e.notePosition(r.version)
	m := r.state.find(e.member.ID)
	if m != nil && m.flaw != nil {
		dead := map[string]bool{}
		for i := range r.state.entries { // only its own flaw counts
			if id := r.state.entries[i].ID; id != m.ID {
				dead[id] = true
			}
		}
		return nil, lease.Invalid(e.dir.invalid(r.state, dead))
	}
	if m == nil || m.State != queue.Holding || (m.life != e.member.life && !e.attached) {
		return nil, locks.ErrLost
	}
	return m, nil
}

// held returns the answer to a grant or a renewal.
func (e *entry) held(v queue.Verdict, q queue.Entry) lease.Answer {
	grant := locks.Grant{Ref: e.request.Ref, Slots: q.Slots, Fence: q.Fence}
	return lease.Answer{Outcome: queue.Outcome{Verdict: v}, Grant: grant, TTL: e.member.ttl}
}

// fetch reads the entry and the heartbeat that another process has written. It fails on a host with
// another clock than that of the holder: there nobody can tell whether the last heartbeat has expired.
func (e *entry) fetch(ctx context.Context) error {
	m, err := e.find(ctx)
	if err != nil {
		return err
	}
	p, rec, err := e.dir.readRecord(m.record())
	path := e.dir.path + "/" + recordsDir + "/" + m.record()
	switch {
	case err != nil:
		return err
	case p == heartbeat{} || rec.Process.PID == 0: // each record of golock names a process
		return &locks.PathError{Path: path, Err: errDamaged}
	case p.leaves():
		return locks.ErrLost
	case !e.store.isSameClock(&rec):
		return &locks.PathError{Path: path, Err: errors.New(
			"the slot was taken on another machine, or before the last boot of this one: it can be renewed only there")}
	}
	e.member = *m
	e.noteHeartbeat(p)
	return nil
}

// release ends what the entry holds.
func (e *entry) release(ctx context.Context) (lease.Answer, error) {
	return e.end(ctx, queue.Release, phaseReleased)
}

// leave gives the entry up, whatever it is by now, and notes for others what it has seen.
func (e *entry) leave(ctx context.Context) (a lease.Answer, err error) {
	if e.heartbeat.count > 0 {
		if a, err = e.end(ctx, queue.Leave, phaseWithdrawn); err != nil {
			return a, err
		}
		if e.state != nil && !e.state.has(e.member.record()) {
			_ = e.dir.removeRecord(e.member.record()) // perhaps no version has had it
		}
	}
	e.dir.writeNotes(e.state)
	return a, nil
}

// end makes the step of a release or a leave. It announces the end in the heartbeat first, so that no
// burst of newcomers delays it. A full disk has room for a heartbeat, but not for a version: then the
// next process that makes a version removes the entry, and the result of end has no state.
func (e *entry) end(ctx context.Context, how queue.Step, phase byte) (a lease.Answer, err error) {
	last := e.nextHeartbeat(e.store.clock(), phase)
	inTime := last.sent < e.term.Load().End()
	announced := !e.attached && e.dir.writeHeartbeat(e.member.record(), last) == nil
	// After a forced version nobody who has read the request can commit it.
	p := e.step(how)
	p.force = e.requested
	if err := e.removeRequest(); err != nil {
		return a, err
	}
	r, err := p.decide(ctx)
	if noSpace(err) && announced {
		err = nil
	}
	e.state = r.state
	// Somebody else may have taken it out since it was announced.
	a.Existed, a.Doubtful = r.Existed || r.state == nil && announced, r.unsure || announced && inTime
	a.Verdict = queue.Released
	return a, err
}

// evict takes the entry back from its owner.
func (e *entry) evict(ctx context.Context) (a lease.Answer, err error) {
	p := e.step(queue.Evict)
	p.question.By = e.evictor
	r, err := p.decide(ctx)
	return lease.Answer{Outcome: r.Outcome, Doubtful: r.unsure}, err
}
