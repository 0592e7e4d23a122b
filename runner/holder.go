package runner

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/pidfd"
	"golock/locks"
	"golock/runner/renewal"
)

// Holder holds a slot for another process, without a command: the holder process of `golock
// acquire`. It signals nobody; `held` shows that the slot is lost.
type Holder struct {
	*Run

	// Process is the process that the slot is for. The Holder gives the slot back when that process ends.
	Process *pidfd.Process

	// Caller is a socket, not blocking, to golock acquire. golock acquire sends one byte when it has
	// printed the ID. If it ends before that, nobody knows of the slot.
	Caller int

	// Granted sends the grant to golock acquire.
	Granted func(locks.Grant, locks.Term)

	confirmed bool                  // golock acquire has printed the ID
	fault     atomic.Pointer[error] // a panic in awaitProcess; nil if there was none
}

// Take takes the slot. The lease belongs to the caller. If there is none, the outcome says why.
func (r *Run) Take() (locks.Lease, *Outcome) { return (&waitPhase{Run: r}).wait() }

// GiveBack releases a slot that Take has returned and that nobody knows of.
func (r *Run) GiveBack(lease locks.Lease) {
	const unused = true
	tell := r.release(lease, unused, 0)
	tell()
}

// Do takes the slot and keeps it. It returns when the slot is given back or lost, or could not be taken.
func (h *Holder) Do() Outcome {
	h.Relay.Watch(h.Caller)
	if h.Process.Wakes() {
		h.Relay.Watch(h.Process.FD())
	} else {
		go h.awaitProcess()
	}
	w := &waitPhase{Run: h.Run, outcomeIfUnwanted: h.outcomeIfUnwanted}
	lease, failed := w.wait()
	if failed != nil {
		return *failed
	}
	granted := time.Now()
	for _, work := range w.attempt.later {
		work()
	}
	out := runPhase(func() *Outcome { return h.hold(lease) })
	unused := !h.confirmed
	tell := h.release(lease, unused, time.Since(granted))
	tell()
	return *out
}

// awaitProcess wakes the relay when Process has ended. It serves kernels whose pidfd cannot be watched.
func (h *Holder) awaitProcess() {
	defer h.Relay.Wake()
	var fault error
	defer func() {
		if fault != nil {
			h.fault.Store(&fault)
		}
	}()
	defer locks.Recover(&fault)
	h.Process.AwaitEnd()
}

// hold keeps the slot until there is a reason to release it.
func (h *Holder) hold(lease locks.Lease) *Outcome {
	var renewer *renewal.Renewer
	if lease.Term().Ends() {
		renewer = renewal.New(lease, locks.BootTime, 0, h.Relay.Wake, h.Log)
		defer renewer.Stop()
	}
	status := &statusServer{run: h.Run}
	defer status.close()
	defer status.markLost()
	release := func() error {
		defer h.Relay.Wake()
		return lease.Release(context.Background())
	}
	err := status.serve(heldLease{lease: lease, onLost: renewer.RenewSoon, release: release})
	if err != nil {
		return &Outcome{Kind: Refused, Err: err}
	}
	h.Relay.CatchIgnored() // whoever evicts a holder sends TERM
	h.Granted(lease.Grant(), lease.Term())
	for {
		if end := h.outcomeIfUnwanted(); end != nil {
			return end
		}
		if fault := status.failure(); fault != nil {
			return &Outcome{Kind: Fault, Err: fault}
		}
		if status.lost.Load() { // a client had the slot released; status.close waits for the answer to the client
			return &Outcome{Kind: Ended}
		}
		if renewer != nil {
			renewer.Step()
			h.Relay.WakeAt(int64(renewer.WakeAt()))
			if renewer.Final { // without Final, a late renewal may bring the slot back
				return &Outcome{Kind: Lost, Err: renewer.Lost}
			}
		}
		sig, _ := h.Relay.Next(-1)
		// A signal that the caller ignores does nothing: the caller, which got it too, goes on with the slot.
		isIgnored := h.Relay.Ignored(sig) && lease.Evicted() == nil
		if sig == unix.SIGTERM && !isIgnored {
			return &Outcome{Kind: Interrupted, Signal: sig}
		}
	}
}

// outcomeIfUnwanted returns an outcome if nobody wants the slot any more, otherwise nil.
func (h *Holder) outcomeIfUnwanted() *Outcome {
	if fault := h.fault.Load(); fault != nil {
		return &Outcome{Kind: Fault, Err: *fault}
	}
	if h.Process.Ended() {
		return &Outcome{Kind: Busy, Err: errors.New("the process that the slot was for has ended")}
	}
	if h.confirmed {
		return nil
	}
	var confirmation [1]byte
	n, err := unix.Read(h.Caller, confirmation[:])
	switch {
	case n > 0:
		h.confirmed = true
		h.Relay.Unwatch(h.Caller)
		unix.Close(h.Caller)
	case err != unix.EAGAIN && err != unix.EINTR:
		return &Outcome{Kind: Busy, Err: errors.New("the golock that asked for the slot is gone")}
	}
	return nil
}
