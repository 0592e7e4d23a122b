package runner

import (
	"context"
	"time"

	"golock/locks"
)

// Waiting is what is known of a run that waits for its slot.
type Waiting struct {
	Name    string
	Began   time.Time     // to wait
	Place   int           // in the queue, 1 is the next; 0: not known
	Holders []locks.Entry // when they were last seen; none: not known
	Problem string        // why they could not be seen the last time; "": they could
}

// How often a run that waits looks who holds, at most. A store over a network is
// asked once in a third of the TTL, and only by those in front: a look costs the
// more the longer the queue is, and where thousands have begun to wait in the same
// second they would all look in the same second, each at all the others. Their
// place they know without. On a store of one machine those far behind look more
// rarely.
const (
	lookPause   = 3 * time.Second
	lookByPlace = 200 * time.Millisecond // times the place of who is far behind
	lookByCost  = 20                     // times what the last look took
	lookLimit   = 5 * time.Second
	lookGrace   = 500 * time.Millisecond // what the user is kept waiting for a look
	farPlace    = 16
	settleLimit = 2 * time.Second // a local store's gate takes one at most
)

// onlooker keeps who is told of the waiting up to date. It belongs to the
// goroutine that owns the run; a look has one of its own, which ends with one
// message to seen.
type onlooker struct {
	run   *Run
	view  Waiting
	place func() int // by the ticket, no I/O; nil: not waiting
	moved int        // what that said at the last look; while it does, the look's own count is newer
	due   time.Time  // to tell; zero: not at all
	ready bool       // to do so without a look

	seen   chan view
	asked  time.Time // the last look; zero: none
	cost   time.Duration
	cancel context.CancelFunc // of the look under way; nil: none
}

// view is what a look came to.
type view struct {
	holders []locks.Entry
	place   int // 0: not known
	cost    time.Duration
	err     error
}

// begin is called when the run has queued.
func (o *onlooker) begin(place func() int) {
	if o.run.Waits == nil {
		return
	}
	if o.seen == nil {
		o.seen = make(chan view, 1)
		o.view.Name, o.view.Began = o.run.Request.Name, time.Now()
	}
	o.place = place
	o.tell()
}

// attend does what is due. The error is a fault in a look.
func (o *onlooker) attend() error {
	select {
	case v := <-o.seen:
		o.cancel()
		o.cancel, o.cost = nil, v.cost
		switch fault, panicked := v.err.(*locks.PanicError); {
		case panicked:
			return fault
		case o.place == nil: // it was for a waiting that is over
			return nil
		case v.err != nil:
			o.view.Problem = v.err.Error()
		default:
			o.view.Holders, o.view.Problem = v.holders, ""
			if v.place > 0 {
				o.view.Place, o.moved = v.place, o.place()
			}
		}
		if o.ready {
			o.tell()
		}
	default:
	}
	if o.due.IsZero() || time.Now().Before(o.due) {
		return nil
	}
	if !o.ready && o.cancel == nil && o.mayLook() {
		o.look()
		o.ready, o.due = true, time.Now().Add(lookGrace)
		return nil
	}
	o.tell()
	return nil
}

// patience is how long attend has nothing to do, unless the relay is woken, at
// most limit; negative: for ever.
func (o *onlooker) patience(limit time.Duration) time.Duration {
	if o.due.IsZero() {
		return limit
	}
	left := max(time.Until(o.due), 0)
	if limit >= 0 {
		left = min(left, limit)
	}
	return left
}

// tell tells what is known.
func (o *onlooker) tell() {
	o.view.Place = o.at()
	o.ready, o.due = false, time.Time{}
	if again := o.run.Waits(&o.view); again > 0 {
		o.due = time.Now().Add(again)
	}
}

// at is the place in the queue as far as it is known.
func (o *onlooker) at() int {
	if now := o.place(); now != o.moved || o.view.Place == 0 {
		o.view.Place, o.moved = now, now
	}
	return o.view.Place
}

// mayLook reports whether the store may be asked now.
func (o *onlooker) mayLook() bool {
	pause := max(lookPause, lookByCost*o.cost)
	place, leased := o.at(), o.run.Store.Traits().Leased
	if leased {
		pause = max(pause, o.run.Request.TTL/beats)
	}
	last := o.asked
	if place > farPlace {
		if leased {
			return false
		}
		pause = max(pause, time.Duration(place)*lookByPlace)
		if last.IsZero() {
			last = o.view.Began
		}
	}
	return last.IsZero() || time.Since(last) >= pause
}

func (o *onlooker) look() {
	ctx, cancel := context.WithTimeout(context.Background(), lookLimit)
	o.cancel, o.asked = cancel, time.Now()
	name, own := o.run.Request.Name, o.run.Request.Ref.ID
	go func() {
		defer o.run.Relay.Wake()
		var v view
		defer func() {
			if p := recover(); p != nil {
				v.err = locks.NewPanicError(p)
			}
			v.cost = time.Since(o.asked)
			o.seen <- v
		}()
		for e, err := range o.run.Store.Entries(ctx, name) {
			if err != nil {
				v.err = err
				return
			}
			switch {
			case e.State == locks.Holding:
				v.holders = append(v.holders, e)
			case e.Ref.ID == own:
				v.place = e.Position
				return
			}
		}
	}()
}

// end is called when the waiting is over. A process that will be stopped must
// not be so inside a store, where it might keep others out: with settled, the
// end of a look is waited for.
func (o *onlooker) end(settled bool) {
	if o.place == nil {
		return
	}
	o.place, o.due, o.view.Place, o.moved = nil, time.Time{}, 0, 0
	if o.cancel != nil {
		o.cancel()
		if settled {
			patience := time.NewTimer(settleLimit)
			defer patience.Stop()
			select {
			case <-o.seen:
				o.cancel = nil
			case <-patience.C: // it is not in a store of this machine
			}
		}
	}
	o.run.Waits(nil)
}
