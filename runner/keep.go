package runner

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// Keep is a slot that is kept for another process, without a command: what a
// process of golock's own does for `golock acquire`. It signals nobody; that
// the slot is lost is for others to ask.
type Keep struct {
	*Run

	// Process is a pidfd of the process that the slot is for. When that ends, so
	// does the keeping.
	Process int

	// Caller is a socket, not blocking, to the golock that was called. It sends
	// one byte when it has told its own caller the ID; if it goes before that,
	// nobody knows of the slot.
	Caller int

	// Granted tells the caller.
	Granted func(locks.Grant) error

	confirmed bool
	given     atomic.Bool // back, because somebody said so
}

var (
	errProcessGone = errors.New("the process that the slot was for has ended")
	errCallerGone  = errors.New("the golock that asked for the slot is gone")
)

// Take takes the slot and leaves it to the caller, to whom it belongs with the
// lease. The outcome says why there is none.
func (r *Run) Take() (locks.Lease, *Outcome) {
	lease, _, failed := r.acquire(nil, nil)
	return lease, failed
}

// Do takes the slot and returns when it is given back, lost, or could not be
// had.
func (k *Keep) Do() (out Outcome) {
	k.unwanted = k.check
	k.Relay.Watch(k.Process, k.Caller)
	lease, failed := k.Take()
	if failed != nil {
		return *failed
	}
	defer func() {
		if v := recover(); v != nil {
			out = faultOf(v)
			_ = lease.Release(context.Background())
		}
	}()
	if l, ok := lease.(locks.Settler); ok {
		l.Settle()
	}
	out = k.hold(lease)
	k.release(lease, out.Kind)
	return out
}

// hold keeps the slot until there is a reason to give it back.
func (k *Keep) hold(lease locks.Lease) (out Outcome) {
	beat := func() error { return nil }
	lost := func() {}
	if l, ok := lease.(locks.Leased); ok {
		t, err := newTicker()
		if err != nil {
			return Outcome{Kind: Fault, Err: err}
		}
		defer t.close()
		keep := newKeeper(l, locks.BootTime, 0, k.Relay.Wake, k.Log)
		defer keep.end()
		k.Relay.Watch(t.fd)
		defer k.Relay.Unwatch(t.fd)
		lost = func() { keep.hintFrom(locks.Unsure) }
		beat = func() error {
			keep.attend()
			t.set(keep.wakeAt())
			if keep.final {
				return keep.lost
			}
			return nil // of one that is only not renewed in time nothing is known: it may be put back
		}
	}
	desk := k.desk()
	defer desk.close()
	err := desk.serve(slot{lease: lease, lost: lost, giveBack: func() error {
		ctx, cancel := context.WithTimeout(context.Background(), releaseLimit)
		defer cancel()
		err := lease.Release(ctx)
		k.given.Store(true)
		k.Relay.Wake()
		return err
	}})
	if err != nil {
		return Outcome{Kind: Refused, Err: err}
	}
	if err := k.Granted(lease.Grant()); err != nil {
		return Outcome{Kind: Unwanted, Err: err}
	}
	for {
		if err := k.check(); err != nil {
			return Outcome{Kind: Unwanted, Err: err}
		}
		if err := beat(); err != nil {
			return Outcome{Kind: Lost, Err: err}
		}
		if k.given.Load() {
			return Outcome{Kind: Ended}
		}
		if sig, _ := k.Relay.Next(time.Duration(-1)); sig == unix.SIGTERM {
			return Outcome{Kind: Interrupted, Signal: sig}
		}
	}
}

// check says whether somebody still wants the slot.
func (k *Keep) check() error {
	ready := []unix.PollFd{{Fd: int32(k.Process), Events: unix.POLLIN}}
	if n, err := unix.Poll(ready, 0); err == nil && n > 0 {
		return errProcessGone
	}
	if k.confirmed {
		return nil
	}
	var word [1]byte
	n, err := unix.Read(k.Caller, word[:])
	switch {
	case n > 0:
		k.confirmed = true
		k.Relay.Unwatch(k.Caller)
		unix.Close(k.Caller)
	case err != unix.EAGAIN && err != unix.EINTR:
		return errCallerGone
	}
	return nil
}
