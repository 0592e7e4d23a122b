package runner

import (
	"context"
	"errors"
	"os"
	"time"

	"golock/locks"
)

// A waiting run reports its place in the queue and the holders (Run.OnProgress). It asks the store
// rarely, because thousands of runs may wait.

// WaitProgress describes a run that waits for its slot.
type WaitProgress struct {
	Name    string
	Began   time.Time     // when the run began to wait
	Until   time.Time     // when the run gives up; zero if it never does
	Place   int           // the place in the queue; 1 is next; 0 if it is not known
	Holders []locks.Entry // the holders at the last look; empty if they are not known
	Problem string        // why the last look failed; "" if it did not
	Pause   string        // why the store grants no slots for now, apart from holders and waiters; "" if it does
}

// The time between two looks at the store is at least the largest of the first three. A look costs more in a
// longer queue, and thousands of runs may have begun to wait in the same second. So a run far back
// in the queue does not look at a networked store at all.
const (
	lookPause   = 3 * time.Second
	lookByPlace = 200 * time.Millisecond // multiplied by the place; only for a local store, beyond farPlace
	lookByCost  = 20                     // multiplied by the duration of the last look

	// farPlace is the last place from which a run looks at a networked store.
	farPlace = 16

	// lookLimit limits a look, and how long a report and endProgress wait for one. A look has left the
	// gate of a local store by then.
	lookLimit = 2 * time.Second
)

// progress is the part of a waitPhase that reports. A look at the store has its own goroutine, which
// ends with a message to looks and wakes the relay.
type progress struct {
	report WaitProgress // what OnProgress gets
	due    time.Time    // when the next report or look is due; zero if none is

	waitedFor []locks.Entry // the holders at the first look that found any

	looks    chan look     // gets the result of the look under way; nil if there is none
	lookedAt time.Time     // when the last look began
	cost     time.Duration // how long the last look took
}

// look is the result of a look at the store.
type look struct {
	holders  []locks.Entry
	isListed bool // this run has an entry
	place    int  // the place of this run; 0 if it is not known
	cost     time.Duration
	err      error
}

// updateProgress takes the result of a look, or makes the look or report that is due. The error is a
// panic in a look.
func (w *waitPhase) updateProgress() error {
	select {
	case l := <-w.progress.looks:
		return w.takeLook(l)
	default:
	}
	switch {
	case w.progress.due.IsZero() || time.Now().Before(w.progress.due): // nothing is due
	case w.progress.looks == nil && w.mayLook():
		w.progress.due = time.Now().Add(lookLimit) // after this time the report goes out without the look
		w.startLook()
	default:
		w.reportProgress()
	}
	return nil
}

// takeLook reports the result of a look. The error is a panic in the look.
func (w *waitPhase) takeLook(l look) error {
	w.progress.looks, w.progress.cost = nil, l.cost
	switch {
	case errors.As(l.err, new(*locks.PanicError)):
		return l.err
	case l.err != nil:
		w.progress.report.Problem = l.err.Error()
	case w.Store.IsLocalQueue && !l.isListed: // the run waits in a file that was removed, still behind the same holders
		w.progress.report.Problem = "its lock file was removed"
	default:
		w.progress.report.Holders, w.progress.report.Problem = l.holders, ""
		w.noteHolders(l.holders)
		if l.place > 0 {
			w.attempt.place.Store(int64(l.place))
		}
	}
	w.reportProgress()
	return nil
}

// noteHolders keeps the holders of the first look that found any.
func (w *waitPhase) noteHolders(holders []locks.Entry) {
	if len(w.progress.waitedFor) > 0 || len(holders) == 0 {
		return
	}
	w.progress.waitedFor = holders
	w.Log(false, "who holds the slot", "held_by", locks.HoldersText(holders))
}

// reportProgress calls Run.OnProgress with what is known. OnProgress says when the next report is due.
func (w *waitPhase) reportProgress() {
	w.progress.report.Place, w.progress.report.Pause = int(w.attempt.place.Load()), ""
	if reason := w.attempt.reason.Load(); reason != nil {
		w.progress.report.Pause = *reason
	}
	if q := w.attempt.pause.Load(); q != nil && time.Now().Before(q.End) {
		w.progress.report.Pause = q.Error()
	}
	w.progress.due = time.Time{}
	if w.OnProgress == nil {
		return
	}
	if again := w.OnProgress(&w.progress.report); again > 0 {
		w.progress.due = time.Now().Add(again)
	}
}

// mayLook reports whether the store may be asked now.
func (w *waitPhase) mayLook() bool {
	pause := max(lookPause, lookByCost*w.progress.cost)
	place := w.attempt.place.Load()
	if place > farPlace {
		if w.Store.IsNetworked {
			return false
		}
		pause = max(pause, time.Duration(place)*lookByPlace)
	}
	return time.Since(w.progress.lookedAt) >= pause
}

// startLook starts a look at the store. The look ends with the attempt at the latest.
func (w *waitPhase) startLook() {
	ctx, cancel := context.WithTimeout(w.attempt.ctx, lookLimit)
	began := time.Now()
	looks := make(chan look, 1)
	w.progress.looks, w.progress.lookedAt = looks, began
	r := w.current()
	name, id := r.Name, r.Ref.ID
	go func() {
		defer w.Relay.Wake()
		defer cancel()
		var l look
		defer func() {
			l.cost = time.Since(began)
			looks <- l
		}()
		defer locks.Recover(&l.err)
		entries, err := w.Store.Entries(ctx, name)
		isPlaceKnown := l.read(entries, id)
		if !isPlaceKnown {
			l.err = err
		}
	}()
}

// read finds the other holders and the place of the run with the given ID.
func (l *look) read(entries []locks.Entry, id locks.ID) (isPlaceKnown bool) {
	for _, e := range entries {
		switch {
		case e.State == locks.Holding && isOfRun(e, id):
			l.isListed = true // the slot was granted to this run just now
		case e.State == locks.Holding:
			l.holders = append(l.holders, e)
		case e.Ref.ID == id:
			l.isListed, l.place = true, e.Position
			return true
		}
	}
	return false
}

// isOfRun reports whether an entry belongs to this run. Entries of a plain lock have no ID.
func isOfRun(e locks.Entry, id locks.ID) bool {
	if e.Ref == (locks.Ref{}) {
		return e.PID == os.Getpid()
	}
	return e.Ref.ID == id
}

// endProgress is called when the waiting is over. With awaitLook it waits for the look under way: a
// look may hold the gate of a local store, and a stopped process would keep others out.
func (w *waitPhase) endProgress(awaitLook bool) {
	if !w.isQueuedNoted {
		return
	}
	if awaitLook && w.progress.looks != nil {
		select {
		case <-w.progress.looks:
		case <-time.After(lookLimit): // the store is over a network, where a look keeps nobody out
		}
	}
	w.progress.due, w.progress.looks = time.Time{}, nil // the result of a look under way is dropped
	if w.OnProgress != nil {
		w.OnProgress(nil)
	}
}
