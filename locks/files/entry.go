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

// entry implements lease.Entry.
type entry struct {
	store    *Store
	dir      *directory
	request  locks.Request
	attached bool          // another process has made the entry (Attach, Evict)
	evictor  string        // who evicts the entry (Evict)
	givenUp  atomic.Bool   // the caller gives the entry up: it must not take a slot any more
	using    chan struct{} // a semaphore: one step at a time uses the directory

	events   chan struct{}      // gets a value when the entry may have changed
	watching sync.Once          // starts watch
	open     context.Context    // ends with Close
	close    context.CancelFunc // ends open

	// Only the step that has the semaphore stores these. Others may load them.
	latestSeen atomic.Pointer[seenVersion]
	term       atomic.Pointer[locks.Term] // the term that began with the last good heartbeat

	// Only the step that has the semaphore uses the fields below.
	state           *state // the state that was read last
	member          member // what the entry asks for; its ticket is 0 until it has a place in the queue
	record          record
	heartbeat       heartbeat     // the heartbeat that was written last
	created         bool          // the record file exists
	requested       bool          // the request file exists, so that others may queue the entry
	nextObservation locks.Instant // when the entry observes other waiters again
}

// seenVersion is the version that an entry has read last.
type seenVersion struct {
	number int64         // 0 before the entry has read one
	since  locks.Instant // when the entry read it first
}

func (s *Store) attachedEntry(ref locks.Ref, evictor string) *entry {
	e := &entry{
		store: s, dir: s.directoryOf(ref.Key), request: locks.Request{Ref: ref}, attached: true,
		evictor: locks.Printable(evictor, 200), member: member{Entry: queue.Entry{ID: ref.ID.String()}},
		events: make(chan struct{}, 1), using: make(chan struct{}, 1),
	}
	e.latestSeen.Store(&seenVersion{})
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
	isQueued := step != queue.Join || e.latestSeen.Load().number != 0
	a, err := e.use(ctx, e.methodOf(step))
	switch {
	case err == nil:
		return a, e.term.Load().Asked, nil
	case errors.Is(err, locks.ErrLost), step != queue.Join && errors.Is(err, errRemoved):
		return lease.Answer{Outcome: queue.Outcome{Verdict: queue.Lost}}, 0, nil
	case ctx.Err() != nil, isTemporary(err), isQueued && mayBeMended(err), lease.IsFinal(err):
		return lease.Answer{}, 0, err // it is an outage, or a Refusal already
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
	default: // queue.Evict: no caller asks for another step
		return e.evict
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

// mayBeMended reports whether somebody may mend what has caused an error, so that an entry in the queue
// tries again. A newcomer does not.
func mayBeMended(err error) bool { return noSpace(err) || errors.Is(err, errNoDir) || isForeign(err) }

// isForeign reports whether others have put something in the place of golock's files.
func isForeign(err error) bool {
	return slices.ContainsFunc([]error{errDamaged, errForeign, unix.EISDIR, unix.ENOTDIR, unix.ELOOP, unix.ENXIO}, func(one error) bool {
		return errors.Is(err, one)
	})
}

// noSpace reports whether the disk, or the user's part of it, is full.
func noSpace(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// writeHeartbeat writes the next heartbeat. It returns locks.ErrLost if the previous heartbeat expires before
// the new one is written: somebody may have taken the entry for dead.
func (e *entry) writeHeartbeat(phase byte) error {
	sent, end := e.store.clock(), e.term.Load().End()
	if sent >= end {
		return locks.ErrLost
	}
	beat := e.nextHeartbeat(sent, phase)
	err := e.dir.writeHeartbeat(e.member.record(), beat)
	if errors.Is(err, fs.ErrNotExist) {
		return locks.ErrLost
	}
	if err != nil {
		return err
	}
	e.store.hook("signed")
	if e.store.clock() >= end {
		return locks.ErrLost
	}
	e.noteHeartbeat(beat)
	return nil
}

// nextHeartbeat returns the heartbeat after the last one.
func (e *entry) nextHeartbeat(sent locks.Instant, phase byte) heartbeat {
	last := e.heartbeat
	next := heartbeat{count: last.count + 1, sent: sent, since: last.since, phase: phase}
	isFirst := last.since == 0
	isAccepting := phase == phaseAccepted && last.phase != phaseAccepted
	if isFirst || isAccepting {
		next.since = sent
	}
	return next
}

// noteHeartbeat notes a heartbeat that was written in time, and the term that it begins.
func (e *entry) noteHeartbeat(beat heartbeat) {
	e.heartbeat = beat
	e.term.Store(&locks.Term{Asked: beat.sent, TTL: e.member.ttl})
}

// create makes the entry's record file, before a version shows the entry.
func (e *entry) create() error {
	if e.givenUp.Load() {
		return context.Canceled // the caller has gone, so nobody gets the error
	}
	if e.created {
		return nil
	}
	beat := e.nextHeartbeat(e.store.clock(), phaseJoined)
	e.heartbeat = beat // even if makeFile fails, because the file may exist then
	text, _ := json.Marshal(&e.record)
	err := e.dir.makeFile(recordsDir+"/"+e.member.record(), fmt.Appendf(nil, "%v%s\n", beat, text))
	if err != nil {
		return err
	}
	e.created = true
	e.noteHeartbeat(beat)
	return nil
}

// renew makes the step of a renewal. It returns ErrLost after the end of the last term, even if the
// directory still shows the entry: somebody may have taken it for dead.
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

// hold renews the lease and makes the hold begin.
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
	e.noteVersion(r.version)
	m := r.state.find(e.member.ID)
	switch {
	case m == nil:
		return nil, locks.ErrLost
	case m.flaw != nil:
		others := map[string]bool{} // only the flaw of this entry counts
		for i := range r.state.entries {
			if id := r.state.entries[i].ID; id != m.ID {
				others[id] = true
			}
		}
		return nil, lease.Invalid(e.dir.invalid(r.state, others))
	case m.State != queue.Holding, m.life != e.member.life && !e.attached:
		return nil, locks.ErrLost
	}
	return m, nil
}

// held returns the answer to a grant or a renewal.
func (e *entry) held(v queue.Verdict, q queue.Entry) lease.Answer {
	grant := locks.Grant{Ref: e.request.Ref, Slots: q.Slots, Fence: q.Fence}
	return lease.Answer{Outcome: queue.Outcome{Verdict: v}, Grant: grant, TTL: e.member.ttl}
}

// fetch reads an entry of another process and its heartbeat. It fails on a host whose clock is not the
// holder's: there golock cannot tell whether the last heartbeat has expired.
func (e *entry) fetch(ctx context.Context) error {
	m, err := e.find(ctx)
	if err != nil {
		return err
	}
	beat, rec, err := e.dir.readRecord(m.record())
	path := e.dir.path + "/" + recordsDir + "/" + m.record()
	switch {
	case err != nil:
		return err
	case beat == heartbeat{}, rec.Process.PID == 0: // each record that golock writes names a process
		return &locks.PathError{Path: path, Err: errDamaged}
	case beat.leaves():
		return locks.ErrLost
	case !e.store.isSameClock(&rec):
		return &locks.PathError{Path: path, Err: errors.New(
			"the slot was taken on another machine, or before the last boot of this one: it can be renewed only there")}
	}
	e.member = *m
	e.noteHeartbeat(beat)
	return nil
}

// release gives the slot back. A hold stays.
func (e *entry) release(ctx context.Context) (lease.Answer, error) {
	return e.end(ctx, queue.Release, phaseReleased)
}

// leave gives the entry up, whether it waits or holds, and writes the notes.
func (e *entry) leave(ctx context.Context) (a lease.Answer, err error) {
	if e.heartbeat.count > 0 {
		a, err = e.end(ctx, queue.Leave, phaseWithdrawn)
		if err != nil {
			return a, err
		}
		if e.state != nil && !e.state.hasRecord(e.member.record()) {
			_ = e.dir.removeRecord(e.member.record()) // no version has named it, so decide has not removed it
		}
	}
	e.dir.writeNotes(e.state)
	return a, nil
}

// end makes the step of a release or a leave. It announces the end in the heartbeat first, so that no
// burst of newcomers delays it. A full disk has room for a heartbeat, but not for a version: then the
// next process that makes a version removes the entry, and e.state is nil after end.
func (e *entry) end(ctx context.Context, how queue.Step, phase byte) (a lease.Answer, err error) {
	last := e.nextHeartbeat(e.store.clock(), phase)
	isInTime := last.sent < e.term.Load().End()
	isAnnounced := false
	if !e.attached {
		isAnnounced = e.dir.writeHeartbeat(e.member.record(), last) == nil
	}
	p := e.step(how)
	p.force = e.requested // a process that has read the request cannot commit it after another version
	if err := e.removeRequest(); err != nil {
		return a, err
	}
	r, err := p.decide(ctx)
	if noSpace(err) && isAnnounced {
		err = nil
	}
	e.state = r.state
	a.Existed = r.Existed || r.state == nil && isAnnounced
	// After the announcement another process may have removed the entry. Then a release that does not find the
	// entry may still have succeeded.
	a.Doubtful = r.unsure || isAnnounced && isInTime
	a.Verdict = queue.Released
	return a, err
}

// evict makes the step of an eviction of another process's entry.
func (e *entry) evict(ctx context.Context) (a lease.Answer, err error) {
	p := e.step(queue.Evict)
	p.question.By = e.evictor
	r, err := p.decide(ctx)
	return lease.Answer{Outcome: r.Outcome, Doubtful: r.unsure}, err
}
