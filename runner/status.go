package runner

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golock/locks"
	"golock/runner/held"
)

// statusServer answers other golocks of the same user that ask about the slot by its ID (held,
// release, renew). It listens while golock still waits, which makes the start faster, and answers
// once it has a lease. Its methods may be called on nil.
type statusServer struct {
	run       *Run
	listeners []*held.Listener // one for each name; empty as long as the server does not listen
	lease     atomic.Pointer[heldLease]
	lost      atomic.Bool // set when the slot is lost, will be lost soon, or was given back
	fault     atomic.Pointer[error]
}

// heldLease is the lease that a statusServer answers for, and what the owner of the run does for it.
type heldLease struct {
	lease   locks.Lease
	onLost  func()       // called when the store says that the slot is lost
	release func() error // releases the slot on request; nil if a command runs in it
}

// open begins to listen. It does nothing if the server listens already, or if the run has no Sockets. If
// there is no directory, the server listens on abstract sockets.
func (s *statusServer) open() error {
	if s == nil || len(s.listeners) > 0 || s.run.Sockets == nil {
		return nil
	}
	dir, noDirectory := s.run.Sockets()
	for _, r := range s.run.requests() {
		listener, err := held.Listen(dir, r.Ref.String(), s.answer, s.notePanic)
		if err != nil {
			s.close()
			if noDirectory != nil {
				err = fmt.Errorf("%w; %w", noDirectory, err)
			}
			return err
		}
		s.listeners = append(s.listeners, listener)
	}
	return nil
}

// serve begins to answer for a lease.
func (s *statusServer) serve(l heldLease) error {
	if s == nil {
		return nil
	}
	s.lease.Store(&l)
	return s.open()
}

// notePanic passes a panic in an answer to the goroutine that owns the run.
func (s *statusServer) notePanic(fault error) {
	s.fault.Store(&fault)
	s.run.Relay.Wake()
}

// failure returns a panic in an answer, or nil.
func (s *statusServer) failure() error {
	if s == nil {
		return nil
	}
	if fault := s.fault.Load(); fault != nil {
		return *fault
	}
	return nil
}

// markLost makes the server answer "lost" from now on.
func (s *statusServer) markLost() {
	if s != nil {
		s.lost.Store(true)
	}
}

// close stops to listen, and waits for the answers under way.
func (s *statusServer) close() {
	if s == nil {
		return
	}
	for _, listener := range s.listeners {
		listener.Close()
	}
	s.listeners = nil
}

// answer answers a question about the slot. held.ErrNobody says that there is no lease yet.
func (s *statusServer) answer(ctx context.Context, q held.Question) error {
	l := s.lease.Load()
	if l == nil {
		return held.ErrNobody
	}
	switch q {
	case held.Release:
		return s.giveBack(l)
	case held.Confirm:
		return s.confirm(ctx, l)
	}
	return errors.New("that question is not known: the golock that holds the slot is of another version")
}

// giveBack releases the slot, unless it is lost or was given back before.
func (s *statusServer) giveBack(l *heldLease) error {
	if l.release == nil {
		return held.ErrRefused
	}
	wasLost := s.lost.Swap(true)
	if wasLost {
		return locks.ErrLost
	}
	return l.release()
}

// confirm asks the store whether the slot is still held.
func (s *statusServer) confirm(ctx context.Context, l *heldLease) error {
	if s.lost.Load() {
		return locks.ErrLost
	}
	ctx, cancel := context.WithTimeout(ctx, l.lease.Term().RenewalLimit())
	defer cancel()
	err := l.lease.Confirm(ctx)
	if errors.Is(err, locks.ErrLost) {
		l.onLost()
	}
	return err
}
