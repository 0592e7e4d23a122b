package runner

import (
	"context"
	"errors"
	"time"

	"golock/locks"
)

// releaseLimit limits each request to a store when a run ends, except a release, which has a limit of its own.
const releaseLimit = 2 * time.Second

// release gives a slot back. A failure is a warning and changes nothing else. An unused slot loses
// its hold too: another host may be able to use it. Nothing is printed before tell is called, so
// that nobody waits for that. age is the time since the grant.
func (r *Run) release(lease locks.Lease, unused bool, age time.Duration) (tell func()) {
	failed := func(err error) bool { return err != nil && !errors.Is(err, locks.ErrLost) }
	hold := r.Request.Hold
	err := lease.Release(context.Background())
	var evictErr error
	grants := grantsOf(lease)
	if hold > 0 && unused && (!failed(err) || len(grants) > 1) { // only a store with a queue has holds
		var refs []locks.Ref
		for _, g := range grants {
			refs = append(refs, g.Ref)
		}
		evictErr = endHolds(r.Store.Can.Queue, refs)
	}
	return func() {
		switch {
		case failed(err) && !unused && outlastsLease(hold-age, lease):
			r.Log(false, "slot given back", "held", hold) // no release would have freed it sooner
		case failed(err):
			r.Log(true, "the slot could not be given back", "error", err)
		case failed(evictErr):
			r.Log(true, "the slot stays taken for its hold", "error", evictErr)
		case unused:
			r.Log(false, "slot given back", "held", time.Duration(0))
		default:
			r.Log(false, "slot given back", "held", hold)
		}
	}
}

// outlastsLease reports whether a hold that lasts for so long ends after the lease.
func outlastsLease(hold time.Duration, lease locks.Lease) bool {
	left := time.Duration(0)
	if term := lease.Term(); term.Ends() {
		left = term.End().Sub(locks.BootTime())
	}
	return hold > 0 && hold >= left
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

// releaseWithin is release for an unused slot of a run that a signal ends.
func (r *Run) releaseWithin(limit time.Duration, lease locks.Lease, w *watchdog) (tell func()) {
	return r.beginRelease(lease, func() {})(limit, w)
}

// beginRelease begins to give an unused slot back, after prepare. end waits for that, but not longer than
// limit. After that the watchdog goes on, as if golock was killed, and golock can end. Without a watchdog the
// slot is free at the end of its lease; that of a local store is free when golock has ended.
func (r *Run) beginRelease(lease locks.Lease, prepare func()) (end func(limit time.Duration, w *watchdog) (tell func())) {
	var tell func()
	var fault error
	released := make(chan struct{})
	go func() {
		defer close(released)
		defer locks.Recover(&fault)
		prepare()
		tell = r.release(lease, true, 0)
	}()
	return func(limit time.Duration, w *watchdog) func() {
		select {
		case <-released:
			if fault != nil {
				panic(fault)
			}
			return tell
		case <-time.After(limit):
		}
		if !r.Store.IsNetworked {
			return func() {}
		}
		err := errors.New("no answer in time: it is free at the end of its lease")
		if w.takeOver(r.Request.Hold > 0) {
			err = errors.New("no answer in time: the watchdog tries for another " + releaseLimit.String())
		}
		return func() { r.Log(true, "the slot could not be given back", "error", err) }
	}
}
