// Package progress reports, to a run that waits for its slot, its place in the queue and who holds.
// It asks the store rarely: thousands may wait.
package progress

import (
	"context"
	"sync/atomic"
	"time"

	"golock/locks"
)

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

	// A report, and End, wait so long for a look. A local store's gate takes no longer.
	lookLimit = 2 * time.Second
)

// Reporter reports a waiting. It belongs to one goroutine. A look at the store has a goroutine of
// its own, which ends with one message to looks and calls Wake.
type Reporter struct {
	Store   locks.Store
	Request *locks.Request // its ID is read at each look
	Wake    func()
	Until   time.Time // see Waiting

	// Report is called when the run has queued, and again after the time that it returns (0: never).
	// It gets nil when the waiting is over. Without it nothing is reported.
	Report func(*Waiting) (again time.Duration)

	view  Waiting
	place *atomic.Int64 // in the queue; nil: not waiting
	pause *atomic.Pointer[locks.QuarantineError]
	due   time.Time // of the next report, or look; zero: none

	looks    chan look // of this waiting
	lookedAt time.Time // the last look
	cost     time.Duration
	cancel   context.CancelFunc // of the look under way; nil: none
}

// look is what one look at the store has shown.
type look struct {
	holders []locks.Entry
	place   int // 0: not known
	cost    time.Duration
	err     error
}

// Begin is called when the run has queued. Looks update the place. pause has the store's quarantine,
// or nil.
func (p *Reporter) Begin(place *atomic.Int64, pause *atomic.Pointer[locks.QuarantineError]) {
	if p.Report == nil {
		return
	}
	if p.view.Began.IsZero() {
		p.view.Name, p.view.Began, p.view.Until = p.Request.Name, time.Now(), p.Until
		p.lookedAt = p.view.Began.Add(-lookPause)
	}
	p.place, p.pause, p.looks = place, pause, make(chan look, 1)
	p.report()
}

// Update does what is due. The error is a fault in a look.
func (p *Reporter) Update() error {
	select {
	case l := <-p.looks:
		return p.take(l)
	default:
	}
	switch {
	case p.due.IsZero() || time.Now().Before(p.due):
	case p.cancel == nil && p.mayLook():
		p.due = time.Now().Add(lookLimit) // then it is reported without
		p.look()
	default:
		p.report()
	}
	return nil
}

// take takes the end of a look.
func (p *Reporter) take(l look) error {
	p.cancel()
	p.cancel, p.cost = nil, l.cost
	switch _, panicked := l.err.(*locks.PanicError); {
	case panicked:
		return l.err
	case l.err != nil:
		p.view.Problem = l.err.Error()
	default:
		p.view.Holders, p.view.Problem = l.holders, ""
		if l.place > 0 {
			p.place.Store(int64(l.place))
		}
	}
	p.report()
	return nil
}

// Patience is how long Update has nothing to do, unless Wake is called, at most limit.
func (p *Reporter) Patience(limit time.Duration) time.Duration {
	if !p.due.IsZero() {
		limit = min(limit, max(time.Until(p.due), 0))
	}
	return limit
}

func (p *Reporter) report() {
	p.view.Place, p.view.Pause = int(p.place.Load()), ""
	if q := p.pause.Load(); q != nil && time.Now().Before(q.End) {
		p.view.Pause = q.Error()
	}
	p.due = time.Time{}
	if again := p.Report(&p.view); again > 0 {
		p.due = time.Now().Add(again)
	}
}

// mayLook reports whether the store may be asked now.
func (p *Reporter) mayLook() bool {
	pause, place := max(lookPause, lookByCost*p.cost), p.place.Load()
	if place > farPlace {
		if locks.HasLeases(p.Store) {
			return false
		}
		pause = max(pause, time.Duration(place)*lookByPlace)
	}
	return time.Since(p.lookedAt) >= pause
}

// look starts a look at the store.
func (p *Reporter) look() {
	ctx, cancel := context.WithTimeout(context.Background(), lookLimit)
	began := time.Now()
	p.cancel, p.lookedAt = cancel, began
	id, name := p.Request.Ref.ID, p.Request.Name
	l, looks := look{}, p.looks
	go func() {
		defer p.Wake()
		defer func() {
			l.cost = time.Since(began)
			looks <- l
		}()
		defer locks.Recover(&l.err)
		entries, err := p.Store.Entries(ctx, name)
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

// End is called when the waiting is over. With settled it returns after the end of a look: a
// process that is about to be stopped must not keep others out of a store.
func (p *Reporter) End(settled bool) {
	if p.place == nil {
		return
	}
	if p.cancel != nil {
		p.cancel()
		if settled {
			select {
			case <-p.looks:
			case <-time.After(lookLimit): // a networked store: it keeps nobody out
			}
		}
	}
	p.place, p.due, p.looks, p.cancel = nil, time.Time{}, nil, nil // what a look still shows is dropped
	p.Report(nil)
}
