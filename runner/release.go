package runner

import (
	"context"
	"errors"
	"time"

	"golock/locks"
)

// releaseLimit limits each request to a store when a run ends, except a release, which has a limit of its own.
const releaseLimit = 2 * time.Second

// release gives a slot back. A failure is a warning and changes nothing else. With unused the command has not
// begun, and release ends the hold too, because another host may be able to use the slot. Only tell prints, so
// that the caller can do what is urgent before the printing. age is the time since the grant.
func (r *Run) release(lease locks.Lease, unused bool, age time.Duration) (tell func()) {
	hold := r.Request.Hold
	err := lease.Release(context.Background())
	var holdErr error
	grants := grantsOf(lease)
	mayBeFree := !keepsSlot(err) || len(grants) > 1 // of several slots some may be free in spite of the error
	if hold > 0 && unused && mayBeFree {            // only a store with a queue has holds
		var refs []locks.Ref
		for _, g := range grants {
			refs = append(refs, g.Ref)
		}
		holdErr = endHolds(r.Store.Can.Queue, refs)
	}
	return func() {
		switch {
		case keepsSlot(err) && !unused && outlastsLease(hold-age, lease):
			r.Log(false, "slot given back", "held", hold) // no release would have freed it sooner
		case keepsSlot(err):
			r.Log(true, "the slot could not be given back", "error", err)
		case keepsSlot(holdErr):
			r.Log(true, "the slot stays taken for its hold", "error", holdErr)
		case unused:
			r.Log(false, "slot given back", "held", time.Duration(0))
		default:
			r.Log(false, "slot given back", "held", hold)
		}
	}
}

// keepsSlot reports whether a slot may still be taken after a release with this error. A lost slot is free.
func keepsSlot(err error) bool { return err != nil && !errors.Is(err, locks.ErrLost) }

// outlastsLease reports whether a hold ends after the lease. holdLeft is the rest of the hold's time.
func outlastsLease(holdLeft time.Duration, lease locks.Lease) bool {
	leaseLeft := time.Duration(0)
	if term := lease.Term(); term.Ends() {
		leaseLeft = term.End().Sub(locks.BootTime())
	}
	return holdLeft > 0 && holdLeft >= leaseLeft
}

// endHolds ends the holds of slots that were given back unused. A slot that is lost has no hold any more.
func endHolds(queue locks.Queue, refs []locks.Ref) error {
	ctx, cancel := context.WithTimeout(context.Background(), releaseLimit)
	defer cancel()
	var all []error
	for _, ref := range refs {
		err := queue.Evict(ctx, []locks.Ref{ref}, "nothing was begun with it")[0]
		if err != nil && !errors.Is(err, locks.ErrLost) {
			all = append(all, err)
		}
	}
	return onOneLine(all)
}

// releaseWithin is release for an unused slot of a run that a signal ends. After limit the watchdog goes on.
func (r *Run) releaseWithin(limit time.Duration, lease locks.Lease, w *watchdog) (tell func()) {
	return r.beginRelease(lease, func() {}).await(limit, w)
}

// pendingRelease is the release of an unused slot in another goroutine. A nil pendingRelease is done.
type pendingRelease struct {
	run   *Run
	done  chan struct{} // closed when the fields below are set
	tell  func()        // the result of release
	fault error         // a panic
}

// beginRelease begins to give an unused slot back, in another goroutine, which calls prepare first.
func (r *Run) beginRelease(lease locks.Lease, prepare func()) *pendingRelease {
	p := &pendingRelease{run: r, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		defer locks.Recover(&p.fault)
		prepare()
		const unused = true
		p.tell = r.release(lease, unused, 0)
	}()
	return p
}

// await waits for the release, but not longer than limit, and returns a function that logs its result. After
// limit the watchdog goes on, as if golock was killed, and golock can end. Without a watchdog the slot is free at
// the end of its lease, or, on a local store, when golock has ended. But a hold would keep the slot, although
// nothing was begun with it: if no watchdog can end the hold, await waits for at least releaseLimit.
func (p *pendingRelease) await(limit time.Duration, w *watchdog) (tell func()) {
	if p == nil {
		return func() {}
	}
	hasHold := p.run.Request.Hold > 0
	if hasHold && !w.canTakeOver() {
		limit = max(limit, releaseLimit)
	}
	select {
	case <-p.done:
		if p.fault != nil {
			panic(p.fault)
		}
		return p.tell
	case <-time.After(limit):
	}
	return p.tellUnanswered(w.takeOver(hasHold))
}

// tellUnanswered returns a function that logs that the release got no answer. isTakenOver says that the watchdog
// goes on with the release.
func (p *pendingRelease) tellUnanswered(isTakenOver bool) (tell func()) {
	hasHold := p.run.Request.Hold > 0
	var err error
	switch {
	case isTakenOver:
		err = errors.New("no answer in time: the watchdog tries for another " + releaseLimit.String())
	case hasHold:
		err = errors.New("no answer in time: it may stay taken until its hold is over (golock break ends a hold)")
	case !p.run.Store.IsNetworked:
		return func() {}
	default:
		err = errors.New("no answer in time: it is free at the end of its lease")
	}
	return func() { p.run.Log(true, "the slot could not be given back", "error", err) }
}
