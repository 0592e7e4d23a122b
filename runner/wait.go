package runner

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/runner/renewal"
	"golock/signals"
)

const (
	// leaveLimit limits how long a golock that was told to stop waits until it has left the queue.
	// giveUpLimit is the same limit for a run whose time is over. Without the wait, a grant that the
	// store has just made would last for its TTL.
	leaveLimit  = 60 * time.Millisecond
	giveUpLimit = 200 * time.Millisecond

	// These constants limit how long golock tries to reach a store, on a machine that is not short of
	// processors (JoinLimits.Slowdown).
	reachLimit       = 10 * time.Second
	reachLimitNoWait = 2 * time.Second

	// These constants limit how long golock asks a store that answers, but refuses for a reason that
	// passes.
	refusalLimit       = 60 * time.Second
	refusalLimitNoWait = 10 * time.Second // counts from the first refusal

	// askLimitNoWait limits how long golock asks a store in all, for a run that does not wait for a slot:
	// hundreds of hosts may ask the store at the same time.
	askLimitNoWait = 45 * time.Second

	// nearPlaces is the number of waiters of a lock that have a watchdog, so that a hand-off does not
	// wait for one to start. There may be thousands of others.
	nearPlaces = 64
)

// waitPhase is the phase in which a run waits for its slot. It belongs to the goroutine that owns the run.
type waitPhase struct {
	*Run
	watchdog          *watchdog
	status            *statusServer
	began             time.Time       // when the run began, for messages
	outcomeIfUnwanted func() *Outcome // checked at every wake-up; an outcome ends the waiting; may be nil

	startsAt time.Time // when the attempt asks the store
	attempt  *attempt  // the present attempt; another one begins after suspend

	heldCount      int                    // the number of names that the run holds, as far as golock has noticed
	renewer        *renewal.Renewer       // renews the slots of these names; nil if they need no renewal
	renewedLeases  *leases                // what the renewer renews
	releasedCount  int                    // the number of names whose slots were given back again
	isQueuedNoted  bool                   // golock has noticed that the attempt has queued for the next name
	warned         bool                   // warnOfWaiting has warned
	pendingSignals []syscall.Signal       // signals for the command that came while the run waited
	madeDirectory  atomic.Pointer[string] // the path of a directory that the store had to make; nil if there is none
	progress       progress
}

// wait waits for the slot. It returns the lease, or the outcome of a run that gets none.
func (w *waitPhase) wait() (lease locks.Lease, failed *Outcome) {
	if w.outcomeIfUnwanted == nil {
		w.outcomeIfUnwanted = func() *Outcome { return nil }
	}
	w.Relay.CatchIgnored() // TERM tells a waiter that it was evicted
	if w.Terminal {        // the stop signal must be caught before the run can be in the queue: see suspend
		w.Relay.CatchStop()
	}
	var pause time.Duration
	if w.Jitter > 0 {
		pause = rand.N(w.Jitter)
		w.Log(false, "waits a random time", "for", pause)
	}
	w.begin(pause) // asks the store, if need be in a goroutine of its own
	defer func() { w.finish(lease != nil) }()
	for {
		w.warnOfMadeDirectory()
		end := w.outcomeIfUnwanted()
		if end == nil {
			end = w.renewHeld()
		}
		if end != nil {
			_ = w.leave(releaseLimit) // no person waits for the end, so it may take longer than leaveLimit
			return nil, end
		}
		select {
		case <-w.attempt.ended:
			return w.takeResult()
		default:
		}
		err := w.noteChanges()
		if err != nil {
			_ = w.leave(leaveLimit)
			return nil, w.outcomeOf(err)
		}
		w.makeReady()
		sig, isOver := w.next()
		if isOver {
			return w.endAtDeadline()
		}
		end = w.onSignal(sig)
		if end != nil {
			return nil, end
		}
	}
}

// noteChanges reports what has changed for the run in the queue. The error is a panic in another goroutine.
func (w *waitPhase) noteChanges() error {
	w.noteQueued()
	w.warnOfWaiting()
	statusErr := w.status.failure()
	progressErr := w.updateProgress()
	if statusErr != nil {
		return statusErr
	}
	return progressErr
}

// next waits for the next event, and returns its signal, or 0 for a wake-up. isOver says that nothing has come
// until the waiting ends.
func (w *waitPhase) next() (sig syscall.Signal, isOver bool) {
	w.Relay.WakeAt(int64(w.renewAt()))
	deadline := w.waitEnds()
	sig, hasCome := w.Relay.Next(untilFirst(deadline, w.progress.due))
	hasPassed := !deadline.IsZero() && !time.Now().Before(deadline)
	return sig, !hasCome && hasPassed
}

// finish ends what the waiting has begun. Without a lease it gives back what the run holds.
func (w *waitPhase) finish(hasLease bool) {
	w.warnOfMadeDirectory() // the store may have made the directory after the last look
	const awaitLook = true
	w.endProgress(!awaitLook)
	w.attempt.cancel()
	w.stopRenewals()
	if !hasLease {
		w.dropHeld()
	}
	if w.Terminal {
		w.Relay.DropStop()
	}
}

// waitEnds returns when the waiting ends, or zero if it has no limit. A networked store itself limits a
// request for a place (Request.Limits), so that a request that is under way at the end of
// --wait is no outage. The limit here is longer, and counts only if that one fails.
func (w *waitPhase) waitEnds() time.Time {
	isAsking := w.Store.IsNetworked && w.attempt.queued.Load() == nil
	if w.WaitLimit > 0 && isAsking {
		return w.progress.report.Until.Add(refusalLimit)
	}
	return w.progress.report.Until
}

// untilFirst returns the time until the first of the given times. A zero time does not count. Without any other
// time the result is the longest duration.
func untilFirst(times ...time.Time) time.Duration {
	delay := time.Duration(math.MaxInt64)
	for _, t := range times {
		if !t.IsZero() {
			delay = min(delay, max(time.Until(t), 0))
		}
	}
	return delay
}

// onSignal handles a signal that comes while the run waits. 0 stands for no signal. An outcome ends
// the waiting.
func (w *waitPhase) onSignal(sig syscall.Signal) *Outcome {
	switch {
	case w.ignores(sig):
	case signals.EndsWaiting(sig):
		return w.endBySignal(sig)
	case sig == unix.SIGTSTP:
		return w.suspend()
	case sig != 0 && sig != unix.SIGCONT && sig != unix.SIGWINCH && sig != unix.SIGCHLD:
		w.pendingSignals = append(w.pendingSignals, sig)
	}
	return nil
}

// warnOfMadeDirectory warns of a directory that the store had to make, because its path may be misspelt.
func (w *waitPhase) warnOfMadeDirectory() {
	path := w.madeDirectory.Swap(nil)
	if path != nil {
		w.Log(true, "lock directory made, because it was missing", "path", *path)
	}
}

// makeReady starts the watchdog and opens the status socket, which the command will need. If the run is far
// back in the queue, makeReady ends them instead. It drops errors: a start that fails now is tried again, and
// its error reported, when the command starts.
func (w *waitPhase) makeReady() {
	place := w.attempt.place.Load()
	isFar := w.isQueuedNoted && (place == 0 || place > nearPlaces)
	holdsSlots := w.heldCount > 0 // such a run keeps its watchdog, which gives the slots back if golock is killed
	startsLater := time.Now().Before(w.startsAt)
	if startsLater || isFar && !holdsSlots {
		w.watchdog.dismiss()
		w.status.close()
		return
	}
	_ = w.watchdog.spawn()
	_ = w.status.open()
}

// noteQueued reports once that the attempt has queued.
func (w *waitPhase) noteQueued() {
	w.sayReplaced()
	if w.isQueuedNoted || w.attempt.queued.Load() == nil {
		return
	}
	w.isQueuedNoted = true
	w.logWaiting()
	if w.OnProgress == nil && !w.NotesHolders {
		return
	}
	if w.progress.report.Began.IsZero() {
		w.progress.report.Began = time.Now()
		w.progress.lookedAt = w.progress.report.Began.Add(-lookPause) // so that mayLook allows the first look at once
	}
	w.progress.report.Name = w.current().Name
	w.reportProgress()
	lacksHolders := w.NotesHolders && len(w.progress.waitedFor) == 0
	if lacksHolders && w.progress.looks == nil && w.mayLook() {
		w.startLook()
	}
}

// warnOfWaiting warns once of what makes the waiting slower. The store may learn of that after the
// run has queued.
func (w *waitPhase) warnOfWaiting() {
	if !w.warned && w.isQueuedNoted && w.WaitLimit != 0 {
		w.warned = w.warn(ofWaiting)
	}
}

// takeResult takes the result of an attempt that has ended by itself.
func (w *waitPhase) takeResult() (locks.Lease, *Outcome) {
	w.sayReplaced()
	if w.attempt.err != nil {
		w.dropHeld()
		return nil, w.outcomeOf(w.attempt.err)
	}
	if term := w.attempt.lease.Term(); term.Ends() && locks.BootTime() >= term.End() {
		out := w.outcomeOfLateGrant(w.attempt.lease, errLeaseOver)
		w.dropHeld()
		return nil, out
	}
	return w.attempt.lease, nil
}

// sayReplaced prints which entries the run has replaced.
func (w *waitPhase) sayReplaced() {
	for _, e := range w.attempt.replaced.take() {
		w.Say("replaced " + e.Holder())
	}
}

// giveUp ends the attempt and returns its result. Either the place in the queue is then gone, or the slot was
// granted just before. If the attempt has not ended after limit, giveUp returns neither a lease nor an error.
func (w *waitPhase) giveUp(limit time.Duration) (locks.Lease, error) {
	w.attempt.cancel()
	select {
	case <-w.attempt.ended:
		return w.attempt.lease, w.attempt.err
	case <-time.After(limit):
		return nil, nil
	}
}

// leave leaves the queue, and releases a slot that was granted too late. The error says that the slot or
// the place in the queue was evicted. leave reads the eviction first: on a local store another process may use
// the record of the entry as soon as the run has left.
//
// Over a network leave begins the release of the held slots before it has left the queue: a store that does not
// answer then costs the time only once.
func (w *waitPhase) leave(limit time.Duration) (evicted error) {
	began := time.Now()
	evicted = w.attempt.evicted()
	var drop *pendingRelease
	if w.Store.IsNetworked {
		w.attempt.cancel()
		drop = w.beginDrop(w.attempt.holding())
	}
	lease, err := w.giveUp(limit)
	rest := max(limit-time.Since(began), leaveLimit/4)
	switch {
	case lease != nil && evicted == nil:
		evicted = lease.Evicted()
	case errors.As(err, new(*locks.EvictedError)):
		evicted = err
	}
	w.awaitDrop(drop, rest)
	lateDrop := w.beginDrop(w.attempt.granted()) // a slot may have been granted just before the end of the attempt
	w.awaitDrop(lateDrop, rest)
	return evicted
}

// endAtDeadline ends the waiting at its deadline.
func (w *waitPhase) endAtDeadline() (locks.Lease, *Outcome) {
	lease, err := w.giveUp(giveUpLimit)
	wasCancelled := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	failedItself := err != nil && !wasCancelled
	isOutage := errors.As(err, new(*locks.OutageError))
	switch {
	case lease != nil, failedItself, isOutage: // the attempt came to a result just in time
		return w.takeResult()
	case !w.attempt.hasTurn.Load() && w.Store.IsNetworked:
		return nil, &Outcome{Kind: Refused, Err: &locks.OutageError{Store: w.Store.URL(), Err: context.DeadlineExceeded}}
	}
	w.dropHeld()
	return nil, &Outcome{Kind: Busy, Err: w.whyBusy()}
}

// ignores reports whether a signal has no effect because the caller ignores it. TERM after an
// eviction has an effect.
func (w *waitPhase) ignores(sig syscall.Signal) bool {
	if sig == unix.SIGTERM && w.attempt.evicted() != nil {
		return false
	}
	return w.Relay.Ignored(sig)
}

// endBySignal ends the waiting because of a signal. A local queue evicts by TERM. Whether it has evicted this
// run is known when the attempt has ended, which takes a moment on a busy machine.
func (w *waitPhase) endBySignal(sig syscall.Signal) *Outcome {
	limit := leaveLimit
	if sig == unix.SIGTERM && w.Store.IsLocalQueue {
		limit = releaseLimit
	}
	if evicted := w.leave(limit); evicted != nil && sig == unix.SIGTERM {
		return w.outcomeOf(evicted)
	}
	return interruptedBy(sig)
}

// suspend leaves the queue, stops golock, and joins again when golock is continued. A stopped
// process in the queue would hold up all waiters behind it, so suspend first waits for the end of
// the attempt.
func (w *waitPhase) suspend() *Outcome {
	w.attempt.stopsSoon.Store(true)
	if err := w.leave(math.MaxInt64); err != nil {
		return w.outcomeOf(err)
	}
	if w.isQueuedNoted {
		const awaitLook = true
		w.endProgress(awaitLook)
		w.Log(false, "left the queue", "signal", "TSTP")
	}
	w.stopRenewals()
	w.Relay.Suspend()
	if ref, err := locks.NewRef(w.Request.Name); err == nil {
		w.renumber(ref)      // an ID that has left a queue never joins it again
		w.watchdog.dismiss() // the watchdog would release the old ID
		w.status.close()
	}
	w.begin(max(time.Until(w.startsAt), 0))
	return nil
}
