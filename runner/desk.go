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
// and `renew` for a slot that was taken for a process. Its goroutines are the
// listener's and end with close.
type desk struct {
	run      *Run
	lease    locks.Lease
	lost     func()       // told when the store says so
	giveBack func() error // nil: the slot is a command's
	listener *held.Listener
	ctx      context.Context
	cancel   context.CancelFunc
	closed   atomic.Bool // the slot is lost, or as good as lost, or given back
}

// openDesk begins to answer. It is nil where nobody is to ask.
func (r *Run) openDesk(lease locks.Lease, lost func(), giveBack func() error) (*desk, error) {
	if r.Sockets == nil {
		return nil, nil
	}
	dir, err := r.Sockets()
	if err != nil {
		return nil, err
	}
	d := &desk{run: r, lease: lease, lost: lost, giveBack: giveBack}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.listener, err = held.Listen(dir, lease.Grant().Ref.String(), d.answer)
	if err != nil {
		d.cancel()
		return nil, err
	}
	return d, nil
}

// shut has the desk answer no to everything from now on.
func (d *desk) shut() {
	if d != nil {
		d.closed.Store(true)
	}
}

func (d *desk) close() {
	if d != nil {
		d.shut()
		d.cancel()
		d.listener.Close()
	}
}

func (d *desk) answer(q held.Question) (held.Answer, error) {
	switch {
	case q == held.Release && d.giveBack == nil:
		return held.Refused, nil
	case q == held.Release && d.closed.Swap(true), d.closed.Load() && q == held.Still:
		return held.No, nil
	case q == held.Release:
		return verdict(d.giveBack())
	case q == held.Still:
		a, err := verdict(d.look())
		if a == held.No {
			d.lost()
		}
		return a, err
	}
	return held.Unknown, errors.New("that question is not known: the golock that holds the slot is of another version")
}

// look asks the store whether the slot is still held.
func (d *desk) look() error {
	if l, ok := d.lease.(locks.Leased); ok {
		ctx, cancel := context.WithTimeout(d.ctx, tryLimit(l.Term().TTL))
		defer cancel()
		_, err := l.Renew(ctx)
		return err
	}
	if s, ok := d.run.Store.(locks.Witness); ok {
		return s.Holds(d.ctx, d.lease.Grant().Ref)
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
