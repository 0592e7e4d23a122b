// Package progress reports, to a run that waits for its slot, what is known of the queue: its place
// and who holds. It looks into the store, but rarely: thousands may wait.
package progress

import (
	"context"
	"time"

	"golock/locks"
	"golock/runner/renewal"
)

// Waiting is what is known of a run that waits for its slot.
type Waiting struct {
	Name    string
	Began   time.Time     // to wait
	Until   time.Time     // when the run gives up; zero: never
	Place   int           // in the queue, 1 is the next; 0: not known
	Holders []locks.Entry // when they were last seen; none: not known
	Problem string        // why they could not be seen the last time; "": they could
	Pause   string        // why the store gives nobody a slot for now; "": it does
}

// How often a run that waits asks the store who holds, at most. A networked store is asked once in a
// third of the TTL, and only by those in front: the cost of a look grows with the queue, and
// thousands may have begun to wait in the same second. A local store is asked more rarely by those
// far behind.
const (
	lookPause   = 3 * time.Second
	lookByPlace = 200 * time.Millisecond // times the place of who is far behind
	lookByCost  = 20                     // times what the last look took
	lookLimit   = 5 * time.Second
	lookGrace   = 500 * time.Millisecond // how long a report waits for a look
	farPlace    = 16
	settleLimit = 2 * time.Second // a local store's gate takes one at most
)

// Reporter reports a waiting. It belongs to one goroutine. A look at the store has a goroutine of
// its own, which ends with one message to looks and calls Wake.
type Reporter struct {
	Store locks.Store
	Name  string
	ID    *locks.ID // of the entry in the queue
	TTL   time.Duration
	Wake  func()
	Until time.Time // see Waiting

	// Quarantine is what the store has said of it, nil: nothing. It does no I/O. It may be nil.
	Quarantine func() *locks.QuarantineError

	// Report is called when the run has queued, and again when the time is over that it has
	// returned (0: not any more). With nil the waiting is over. Report nil: nothing is reported.
	Report func(*Waiting) (again time.Duration)

	view      Waiting
	place     func() int // by the ticket, no I/O; nil: not waiting
	lastPlace int        // what it said at the last look; while it does, the look's own count is newer
	due       time.Time  // of the next report; zero: none
	noLook    bool       // it needs no look

	looks    chan look
	lookedAt time.Time // the last look; zero: none
	cost     time.Duration
	cancel   context.CancelFunc // of the look under way; nil: none
}

// look is what one look at the store showed.
type look struct {
	holders []locks.Entry
	place   int // 0: not known
	cost    time.Duration
	err     error
}

// Begin is called when the run has queued.
func (p *Reporter) Begin(place func() int) {
	if p.Report == nil {
		return
	}
	if p.looks == nil {
		p.looks = make(chan look, 1)
		p.view.Name, p.view.Began, p.view.Until = p.Name, time.Now(), p.Until
	}
	p.place = place
	p.report()
}

// Update does what is due. The error is a fault in a look.
func (p *Reporter) Update() error {
	select {
	case l := <-p.looks:
		if err := p.take(l); err != nil {
			return err
		}
	default:
	}
	if p.due.IsZero() || time.Now().Before(p.due) {
		return nil
	}
	if !p.noLook && p.cancel == nil && p.mayLook() {
		p.look()
		p.noLook, p.due = true, time.Now().Add(lookGrace)
		return nil
	}
	p.report()
	return nil
}

func (p *Reporter) take(l look) error {
	p.cancel()
	p.cancel, p.cost = nil, l.cost
	switch panicked, ok := l.err.(*locks.PanicError); {
	case ok:
		return panicked
	case p.place == nil: // it was for a waiting that is over
		return nil
	case l.err != nil:
		p.view.Problem = l.err.Error()
	default:
		p.view.Holders, p.view.Problem = l.holders, ""
		if l.place > 0 {
			p.view.Place, p.lastPlace = l.place, p.place()
		}
	}
	if p.noLook {
		p.report()
	}
	return nil
}

// Patience is how long Update has nothing to do, unless Wake is called, at most limit; negative:
// for ever.
func (p *Reporter) Patience(limit time.Duration) time.Duration {
	if p.due.IsZero() {
		return limit
	}
	left := max(time.Until(p.due), 0)
	if limit >= 0 {
		left = min(left, limit)
	}
	return left
}

func (p *Reporter) report() {
	p.view.Place, p.view.Pause = p.currentPlace(), p.pause()
	p.noLook, p.due = false, time.Time{}
	if again := p.Report(&p.view); again > 0 {
		p.due = time.Now().Add(again)
	}
}

func (p *Reporter) pause() string {
	if p.Quarantine != nil {
		if q := p.Quarantine(); q != nil && time.Now().Before(q.End) {
			return q.Error()
		}
	}
	return ""
}

// currentPlace is the place in the queue as far as it is known.
func (p *Reporter) currentPlace() int {
	if now := p.place(); now != p.lastPlace || p.view.Place == 0 {
		p.view.Place, p.lastPlace = now, now
	}
	return p.view.Place
}

// mayLook reports whether the store may be asked now.
func (p *Reporter) mayLook() bool {
	pause := max(lookPause, lookByCost*p.cost)
	place, leased := p.currentPlace(), locks.KindOf(p.Store) == locks.LeaseQueue
	if leased {
		pause = max(pause, p.TTL/renewal.PerTTL)
	}
	last := p.lookedAt
	if place > farPlace {
		if leased {
			return false
		}
		pause = max(pause, time.Duration(place)*lookByPlace)
		if last.IsZero() {
			last = p.view.Began
		}
	}
	return last.IsZero() || time.Since(last) >= pause
}

// look starts a look at the store.
func (p *Reporter) look() {
	ctx, cancel := context.WithTimeout(context.Background(), lookLimit)
	began := time.Now()
	p.cancel, p.lookedAt = cancel, began
	id := *p.ID
	go func() {
		defer p.Wake()
		var l look
		defer func() {
			if v := recover(); v != nil {
				l.err = locks.NewPanicError(v)
			}
			l.cost = time.Since(began)
			p.looks <- l
		}()
		for e, err := range p.Store.Entries(ctx, p.Name) {
			if err != nil {
				l.err = err
				return
			}
			switch {
			case e.State == locks.Holding:
				l.holders = append(l.holders, e)
			case e.Ref.ID == id:
				l.place = e.Position
				return
			}
		}
	}()
}

// End is called when the waiting is over. A process that is about to be stopped must not be inside
// a store, where it might keep others out: with settled, the end of a look is waited for.
func (p *Reporter) End(settled bool) {
	if p.place == nil {
		return
	}
	p.place, p.due, p.view.Place, p.lastPlace = nil, time.Time{}, 0, 0
	if p.cancel != nil {
		p.cancel()
		if settled {
			timer := time.NewTimer(settleLimit)
			defer timer.Stop()
			select {
			case <-p.looks:
				p.cancel = nil
			case <-timer.C: // a networked store: it keeps nobody out
			}
		}
	}
	p.Report(nil)
}
