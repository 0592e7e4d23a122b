package runner

import (
	"context"
	"errors"
	"sync/atomic"

	"golock/held"
	"golock/locks"
)

// desk answers other golocks of the same user that ask for the slot by its ID:
// `golock held` in front of a step that must not be done without it, `release`
// and `renew` for a slot that was taken for a process. It is opened while the
// slot is waited for, so that the command need not wait for it, and is deaf until
// it has a slot to speak of. Its goroutines are the listener's and end with close.
type desk struct {
	run      *Run
	listener *held.Listener // nil: not open
	slot     atomic.Pointer[slot]
	ctx      context.Context
	cancel   context.CancelFunc
	closed   atomic.Bool // the slot is lost, or as good as lost, or given back
}

// slot is what a desk speaks of.
type slot struct {
	lease    locks.Lease
	lost     func()       // told when the store says so
	giveBack func() error // nil: the slot is a command's
}

// desk gives one that is not yet open; nil where nobody is to ask.
func (r *Run) desk() *desk {
	if r.Sockets == nil {
		return nil
	}
	return &desk{run: r}
}

// open begins to listen, if that has not been begun.
func (d *desk) open() error {
	if d == nil || d.listener != nil {
		return nil
	}
	dir, err := d.run.Sockets()
	if err != nil {
		return err
	}
	d.closed.Store(false) // it may have been open, far back in the queue
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.listener, err = held.Listen(dir, d.run.Request.Ref.String(), d.answer)
	if err != nil {
		d.cancel()
	}
	return err
}

// serve begins to answer.
func (d *desk) serve(s slot) error {
	if d == nil {
		return nil
	}
	d.slot.Store(&s)
	return d.open()
}

// shut has the desk answer no to everything from now on.
func (d *desk) shut() {
	if d != nil {
		d.closed.Store(true)
	}
}

func (d *desk) close() {
	if d != nil && d.listener != nil {
		d.shut()
		d.cancel()
		d.listener.Close()
		d.listener = nil
	}
}

func (d *desk) answer(q held.Question) (held.Answer, error) {
	s := d.slot.Load()
	switch {
	case s == nil:
		return held.Silence, nil
	case q == held.Release && s.giveBack == nil:
		return held.Refused, nil
	case q == held.Release && d.closed.Swap(true), d.closed.Load() && q == held.Still:
		return held.No, nil
	case q == held.Release:
		return verdict(s.giveBack())
	case q == held.Still:
		a, err := verdict(d.look(s.lease))
		if a == held.No {
			s.lost()
		}
		return a, err
	}
	return held.Unknown, errors.New("that question is not known: the golock that holds the slot is of another version")
}

// look asks the store whether the slot is still held.
func (d *desk) look(lease locks.Lease) error {
	if l, ok := lease.(locks.Leased); ok {
		ctx, cancel := context.WithTimeout(d.ctx, tryLimit(l.Term().TTL))
		defer cancel()
		_, err := l.Renew(ctx)
		return err
	}
	if s, ok := d.run.Store.(locks.Witness); ok {
		return s.Holds(d.ctx, lease.Grant().Ref)
	}
	return nil // the kernel's, for as long as this process has it open
}

// verdict makes an answer of an error of the store's.
func verdict(err error) (held.Answer, error) {
	switch {
	case err == nil:
		return held.Yes, nil
	case errors.Is(err, locks.ErrLost):
		return held.No, nil
	}
	return held.Unknown, err
}
