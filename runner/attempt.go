package runner

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golock/internal/procfs"
	"golock/locks"
)

// attempt is an attempt to get the slots of all names of a run. Its goroutine wakes the relay when it has
// queued for a name, when it has got the slot of a name but not of the last one, and when it ends.
type attempt struct {
	ctx    context.Context
	cancel context.CancelFunc
	wanted []locks.Request // the requests of all names, in the order in which they are made
	until  time.Time       // when the run gives up; zero if it never does

	stopsSoon atomic.Bool // set before this process is stopped (suspend)

	// These fields are about the name that comes next.
	place  atomic.Int64                          // the place in the queue; 0 if it is not known
	pause  atomic.Pointer[locks.QuarantineError] // the quarantine of the store; nil if there is none
	reason atomic.Pointer[string]                // what keeps the run from its slot beside holders and waiters; "" or nil if nothing does
	queued atomic.Pointer[locks.Admission]       // nil as long as the attempt has not queued

	// held has the leases of the names that come before the next one. It is nil if there are none, and when
	// the field lease has all leases.
	held atomic.Pointer[[]locks.Lease]
	// hasTurn says that the store has queued the run, or given it a slot. From then on an outage does not end the run.
	hasTurn  atomic.Bool
	replaced replacedEntries

	ended     chan struct{}   // closed when the fields below do not change any more
	admission locks.Admission // what Join gave for the name that comes next; nil if the attempt has not joined its queue
	lease     locks.Lease     // the lease of all names; nil as long as one is missing
	later     []func()        // work that the store has put off until the command has started
	err       error           // why there is no lease; nil if there is one
}

// replacedEntries are the entries that the run has replaced and not yet printed (sayReplaced).
type replacedEntries struct {
	mu  sync.Mutex
	all []locks.Entry
}

func (r *replacedEntries) add(entries []locks.Entry) {
	if len(entries) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, entries...)
}

func (r *replacedEntries) take() []locks.Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	entries := r.all
	r.all = nil
	return entries
}

// begin starts an attempt to get the slots, after a pause. Without a pause it first asks the store in this
// goroutine. If the answer needs waiting, and after a pause, another goroutine asks the store.
func (w *waitPhase) begin(pause time.Duration) {
	w.startsAt = time.Now().Add(pause)
	if w.WaitLimit > 0 && w.progress.report.Until.IsZero() {
		w.progress.report.Until = w.startsAt.Add(w.WaitLimit)
	}
	a := &attempt{ended: make(chan struct{}), until: w.progress.report.Until}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	w.attempt, w.isQueuedNoted, w.heldCount, w.releasedCount = a, false, 0, 0
	for _, r := range w.requests() {
		a.wanted = append(a.wanted, w.complete(r, a))
	}
	const atOnce = true
	if pause == 0 {
		a.take(w.Store, atOnce, nil)
		if a.isFinal() {
			close(a.ended) // no other goroutine has to be woken
			return
		}
	}
	go func() {
		defer w.Relay.Wake()
		defer close(a.ended)
		if pause > 0 {
			select {
			case <-time.After(pause):
				w.Relay.Wake() // the pause is over, so makeReady may start what the command needs
			case <-a.ctx.Done():
				a.err = a.ctx.Err()
				return
			}
		}
		a.take(w.Store, !atOnce, w.Relay.Wake)
	}()
}

// complete adds to a request what depends on the run, and the functions that inform the attempt.
func (w *waitPhase) complete(r locks.Request, a *attempt) locks.Request {
	r.NoWait = w.WaitLimit == 0
	r.Hooks.OnPlace = func(place int) {
		a.place.Store(int64(place))
		w.Relay.Wake()
	}
	r.Hooks.OnQuarantine = a.pause.Store
	r.Hooks.OnObstacle = func(reason string) { a.reason.Store(&reason) }
	r.Hooks.StopsSoon = a.stopsSoon.Load
	r.Hooks.DoLater = func(work func()) { a.later = append(a.later, work) }
	r.Hooks.OnNewDirectory = func(path string) { w.madeDirectory.Store(&path) }
	r.Limits.Slowdown = procfs.Slowdown
	isFirst := len(a.wanted) == 0
	if isFirst || w.WaitLimit == 0 { // once the run has its first slot, an outage does not end the waiting
		r.Limits.Reach, r.Limits.Total = w.tryLimit(), w.askLimit()
	}
	if w.WaitLimit == 0 {
		r.Limits.Refusals = refusalLimitNoWait
	}
	if !isFirst { // the store has answered before, so it may still answer the question under way at the end of --wait
		r.Limits.LeastAnswer = reachLimitNoWait
	}
	return r
}

// isFinal reports whether the attempt has come to its result.
func (a *attempt) isFinal() bool { return a.lease != nil || a.err != nil }

// take gets the slots that are missing, one name after the other. With atOnce it returns instead of
// waiting. It calls wake, if not nil, when it has queued for a name, and when it goes on to the next name.
func (a *attempt) take(store locks.KnownStore, atOnce bool, wake func()) {
	defer locks.Recover(&a.err)
	for !a.isFinal() {
		if a.admission == nil {
			a.join(store, atOnce)
		}
		if a.admission == nil { // see join
			return
		}
		isQueued := a.admission.Queued()
		if isQueued && atOnce {
			return
		}
		if isQueued {
			if wake != nil {
				wake()
			}
			a.err = a.refusedInside(store)
			if a.err != nil {
				a.cancel() // so Wait leaves the queue
			}
		}
		lease, err := a.admission.Wait(a.ctx)
		if err != nil && a.err == nil {
			a.err = err
		}
		if err != nil {
			return
		}
		a.add(lease)
		if wake != nil && !a.isFinal() {
			wake()
		}
	}
}

// join joins the queue of the name that comes next. If it sets no admission, the field err says why. With
// atOnce err is nil too if the store cannot answer without waiting.
func (a *attempt) join(store locks.Store, atOnce bool) {
	r := a.wanted[len(a.holding())]
	r.AtOnce = atOnce
	if r.Limits.Total == 0 && !a.until.IsZero() {
		r.Limits.Total = max(time.Until(a.until), 1)
	}
	a.err = a.ctx.Err()
	if a.err != nil {
		return
	}
	admission, err := store.Join(a.ctx, r)
	switch {
	case atOnce && errors.Is(err, locks.ErrWouldBlock): // another goroutine joins later
	case err != nil:
		a.err = err
	default:
		a.admission = admission
		a.replaced.add(admission.Replaced())
		if admission.Queued() {
			a.queued.Store(&admission)
			a.hasTurn.Store(true)
		}
	}
}

// add adds a lease that was granted.
func (a *attempt) add(lease locks.Lease) {
	all := append(slices.Clone(a.holding()), lease)
	switch {
	case len(a.wanted) == 1:
		a.lease = lease
	case len(all) == len(a.wanted):
		a.lease = newLeases(a.names(), all)
		a.held.Store(nil)
	default:
		a.held.Store(&all)
		a.hasTurn.Store(true)
		a.admission = nil
		a.queued.Store(nil)
		a.place.Store(0)
		a.pause.Store(nil)
		a.reason.Store(nil)
	}
}

// holding returns the leases of the names that the run holds while it waits for the next one.
func (a *attempt) holding() []locks.Lease {
	held := a.held.Load()
	if held == nil {
		return nil
	}
	return *held
}

// granted returns the leases of all names that the run holds, also of the last one if the attempt has ended.
func (a *attempt) granted() []locks.Lease {
	select {
	case <-a.ended:
		if a.lease != nil {
			return eachOf(a.lease)
		}
	default:
	}
	return a.holding()
}

func (a *attempt) names() (names []string) {
	for _, r := range a.wanted {
		names = append(names, r.Name)
	}
	return names
}

// evicted returns an *EvictedError if the place in the queue, or a slot that the run holds already, was
// taken back. It knows that only on a store that tells the owner by a signal.
func (a *attempt) evicted() error {
	if admission := a.queued.Load(); admission != nil {
		if err := (*admission).Evicted(); err != nil {
			return err
		}
	}
	held := a.holding()
	if len(held) == 0 {
		return nil
	}
	if err := newLeases(a.names(), held).Evicted(); err != nil {
		return takenBack(err)
	}
	return nil
}

// tryLimit returns how long golock tries to reach a store over a network. Once the run has queued,
// an outage does not end it. For a run that may go on without a slot, the limit is at least
// reachLimitNoWait, however short --wait is: a slow store is not an unavailable one.
func (w *waitPhase) tryLimit() time.Duration {
	if w.WaitLimit < 0 {
		return reachLimit
	}
	limit := min(w.WaitLimit, reachLimit)
	if w.WaitLimit == 0 || w.Unavailable == RunAnyway {
		return max(limit, reachLimitNoWait)
	}
	return limit
}

// askLimit returns how long golock repeats the request to queue the run. It covers both a store that does
// not answer and one that refuses for a temporary reason.
func (w *waitPhase) askLimit() time.Duration {
	switch {
	case w.WaitLimit == 0:
		return askLimitNoWait
	case w.WaitLimit < 0:
		return refusalLimit
	}
	return max(min(w.WaitLimit, refusalLimit), w.tryLimit())
}
