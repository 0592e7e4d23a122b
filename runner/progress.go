package runner

import (
	"context"
	"errors"
	"time"

	"golock/locks"
)

// A waiting run reports its place in the queue and who holds (Run.Waits). It asks the store rarely:
// thousands may wait.

// Waiting describes a run that waits for its slot.
type Waiting struct {
	Name    string
	Began   time.Time     // to wait
	Until   time.Time     // when the run gives up; zero: never
	Place   int           // in the queue, 1 is the next; 0: not known
	Holders []locks.Entry // when they were last seen; none: not known
	Problem string        // why they could not be seen the last time; "": they could
	Pause   string        // why the store gives nobody a slot for now; "": it does
}

// The least time between two looks at the store is the largest of these. A look costs more in a
// longer queue, and thousands may have begun to wait in the same second: so nobody far behind looks
// at a networked store at all.
const (
	lookPause   = 3 * time.Second
	lookByPlace = 200 * time.Millisecond // times the place; local store, beyond farPlace
	lookByCost  = 20                     // times the duration of the last look

	farPlace = 16

	// A report, and endProgress, wait so long for a look. A local store's gate takes no longer.
	lookLimit = 2 * time.Second
)

// progress is the part of a waiter that reports. A look at the store has a goroutine of its own,
// which ends with one message to looks and wakes the relay.
type progress struct {
	view Waiting
	due  time.Time // of the next report, or look; zero: none

	looks    chan look // of the look under way; nil: none
	lookedAt time.Time // the last look
	cost     time.Duration
}

// look is what one look at the store has shown.
type look struct {
	holders []locks.Entry
	place   int // 0: not known
	cost    time.Duration
	err     error
}

// updateProgress takes the end of a look, or does what is due. Looks update the place. The error is a
// fault in a look.
func (w *waiter) updateProgress() error {
	select {
	case l := <-w.looks:
		w.looks, w.cost = nil, l.cost
		switch {
		case errors.As(l.err, new(*locks.PanicError)):
			return l.err
		case l.err != nil:
			w.view.Problem = l.err.Error()
		default:
			w.view.Holders, w.view.Problem = l.holders, ""
			if l.place > 0 {
				w.place.Store(int64(l.place))
			}
		}
		w.report()
		return nil
	default:
	}
	switch {
	case w.due.IsZero() || time.Now().Before(w.due):
	case w.looks == nil && w.mayLook():
		w.due = time.Now().Add(lookLimit) // then it is reported without
		w.look()
	default:
		w.report()
	}
	return nil
}

func (w *waiter) report() {
	w.view.Place, w.view.Pause = int(w.place.Load()), ""
	if q := w.pause.Load(); q != nil && time.Now().Before(q.End) {
		w.view.Pause = q.Error()
	}
	w.due = time.Time{}
	if again := w.Waits(&w.view); again > 0 {
		w.due = time.Now().Add(again)
	}
}

// mayLook reports whether the store may be asked now.
func (w *waiter) mayLook() bool {
	pause, place := max(lookPause, lookByCost*w.cost), w.place.Load()
	if place > farPlace {
		if w.leases() != nil {
			return false
		}
		pause = max(pause, time.Duration(place)*lookByPlace)
	}
	return time.Since(w.lookedAt) >= pause
}

// look starts a look at the store, which ends with the attempt.
func (w *waiter) look() {
	ctx, cancel := context.WithTimeout(w.ctx, lookLimit)
	began, looks := time.Now(), make(chan look, 1)
	w.looks, w.lookedAt = looks, began
	id, l := w.Request.Ref.ID, look{}
	go func() {
		defer w.Relay.Wake()
		defer cancel()
		defer func() {
			l.cost = time.Since(began)
			looks <- l
		}()
		defer locks.Recover(&l.err)
		entries, err := w.Store.Entries(ctx, w.Request.Name)
		for _, e := range entries {
			switch {
			case e.State == locks.Holding:
				l.holders = append(l.holders, e)
			case e.Ref.ID == id:
				l.place = e.Position
				return
			}
		}
		l.err = err
	}()
}

// endProgress is called when the waiting is over. With settled it returns after the end of a look: a
// process that is about to be stopped must not keep others out of a store.
func (w *waiter) endProgress(settled bool) {
	if !w.noted || w.Waits == nil {
		return
	}
	if settled && w.looks != nil {
		select {
		case <-w.looks:
		case <-time.After(lookLimit): // a networked store: it keeps nobody out
		}
	}
	w.due, w.looks = time.Time{}, nil // what a look still shows is dropped
	w.Waits(nil)
}
