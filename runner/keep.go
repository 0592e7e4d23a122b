package runner

import (
	"errors"
	"math"
	"time"

	"golock/locks"
	"golock/runner/renewal"
)

// A waiter with several names renews the slots that it holds while it waits for the next one.

// requests returns the requests of all names, in the order in which they are made.
func (r *Run) requests() []locks.Request {
	return append(r.Earlier[:len(r.Earlier):len(r.Earlier)], r.Request)
}

// Names returns the names of the run's locks, in the order in which it takes them.
func (r *Run) Names() (names []string) {
	for _, request := range r.requests() {
		names = append(names, request.Name)
	}
	return names
}

// ids returns the IDs of the run's entries, in the order of its names.
func (r *Run) ids() (ids []string) {
	for _, request := range r.requests() {
		ids = append(ids, request.Ref.String())
	}
	return ids
}

// logGrant logs a grant. The line names the lock only if the run has several.
func (w *waitPhase) logGrant(name string, g locks.Grant) {
	slots := append([]int{}, g.Slots...)
	waited := time.Since(w.began)
	id := g.Ref.String()
	if len(w.Earlier) == 0 {
		w.Log(false, "slot taken", "slots", slots, "fence", g.Fence, "waited", waited, "id", id)
		return
	}
	w.Log(false, "slot taken", "slots", slots, "fence", g.Fence, "waited", waited, "id", id, "lock", name)
}

// logWaiting logs that the run has queued.
func (w *waitPhase) logWaiting() {
	if len(w.Earlier) == 0 {
		w.Log(false, "waiting")
		return
	}
	w.Log(false, "waiting", "lock", w.current().Name)
}

// renumber gives the entries of the run the new ID.
func (r *Run) renumber(ref locks.Ref) {
	for i := range r.Earlier {
		earlier := &r.Earlier[i].Ref
		*earlier = ref.Beside(earlier.Key)
	}
	r.Request.Ref = ref.Beside(r.Request.Ref.Key)
}

// current returns the request of the name that the run waits for.
func (w *waitPhase) current() *locks.Request {
	if len(w.Earlier) == 0 {
		return &w.Request
	}
	return &w.attempt.wanted[min(w.heldCount, len(w.Earlier))]
}

// renewHeld renews the slots that the run holds while it waits for the next name. It returns an outcome if
// one of them is lost.
func (w *waitPhase) renewHeld() *Outcome {
	held := w.attempt.holding()
	if len(held) > w.heldCount {
		w.noteHeld(held)
	}
	if w.renewer == nil {
		return nil
	}
	w.renewer.Step()
	lost := w.renewer.Lost
	switch {
	case lost == nil:
		return nil
	case errors.As(lost, new(*locks.EvictedError)):
		return w.lostBefore(Busy, takenBack(lost))
	}
	return w.lostBefore(Refused, errors.New(lost.Error())) // not ErrLost: no command has lost its slot
}

// noteHeld notes the slots that the run holds now. It begins to renew them, and to wait for the next name.
func (w *waitPhase) noteHeld(held []locks.Lease) {
	for i := w.heldCount; i < len(held); i++ {
		w.logGrant(w.attempt.wanted[i].Name, held[i].Grant())
	}
	w.heldCount, w.isQueuedNoted = len(held), false
	report := &w.progress.report
	report.Name, report.Holders, report.Problem = w.current().Name, nil, ""
	w.progress.looks = nil // a look at the queue of the previous name may be under way; its result is dropped
	w.stopRenewals()
	all := newLeases(w.attempt.names()[:len(held)], held)
	if all.Term().Ends() {
		w.renewedLeases = all
		w.renewer = renewal.New(all, locks.BootTime, 0, w.Relay.Wake, w.Log)
	}
}

// renewAt returns when renewHeld is due, or 0 if there is nothing to renew.
func (w *waitPhase) renewAt() locks.Instant {
	if w.renewer == nil {
		return 0
	}
	return w.renewer.WakeAt()
}

// stopRenewals ends the renewals of the slots that the run holds.
func (w *waitPhase) stopRenewals() {
	stop := w.takeRenewer()
	stop()
}

// takeRenewer returns a function that ends the renewals of the slots that the run holds. From now on the run
// does not call its Step. Any goroutine may call stop. It may wait a moment for a renewal that gets no answer.
func (w *waitPhase) takeRenewer() (stop func()) {
	renewer, leases := w.renewer, w.renewedLeases
	if renewer == nil {
		return func() {}
	}
	w.renewer, w.renewedLeases = nil, nil
	w.Relay.WakeAt(0)
	return func() {
		renewer.Stop()
		leases.cancel()
	}
}

// dropHeld gives back the slots that the run holds, because it does not get the next one.
func (w *waitPhase) dropHeld() {
	drop := w.beginDrop(w.attempt.granted())
	w.awaitDrop(drop, math.MaxInt64)
}

// beginDrop begins to give back the granted slots that it has not given back before. It returns nil
// if there are none.
func (w *waitPhase) beginDrop(granted []locks.Lease) *pendingRelease {
	released := w.releasedCount
	if len(granted) <= released {
		return nil
	}
	w.releasedCount = len(granted)
	if len(w.Earlier) == 0 { // newLeases would add the name of the lock to each error
		return w.beginRelease(granted[0], w.takeRenewer())
	}
	all := newLeases(w.attempt.names()[released:len(granted)], granted[released:])
	return w.beginRelease(all, w.takeRenewer())
}

// awaitDrop waits for what beginDrop has begun, at most for limit, and logs the result.
func (w *waitPhase) awaitDrop(drop *pendingRelease, limit time.Duration) {
	tell := drop.await(limit, w.watchdog)
	tell()
}
