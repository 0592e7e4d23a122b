package runner

import (
	"context"
	"errors"
	"sync/atomic"

	"golock/internal/held"
	"golock/locks"
	"golock/runner/renewal"
)

// statusServer answers other golocks of the same user that ask about the slot by its ID (`held`,
// `release`, `renew`). It begins to listen while golock waits, which makes the start faster, and
// answers once it has a lease. Its methods may be called on nil.
type statusServer struct {
	run      *Run
	listener *held.Listener // nil: not open
	lease    atomic.Pointer[heldLease]
	ctx      context.Context
	cancel   context.CancelFunc
	lost     atomic.Bool // the slot is lost, or soon will be, or was given back
}

type heldLease struct {
	lease   locks.Lease
	onLost  func()       // called when the store says that it is lost
	release func() error // nil: the slot is a command's
}

// open begins to listen, unless it does already or has no directory.
func (s *statusServer) open() error {
	if s == nil || s.listener != nil || s.run.Sockets == nil {
		return nil
	}
	dir, err := s.run.Sockets()
	if err != nil {
		return err
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if s.listener, err = held.Listen(dir, s.run.Request.Ref.String(), s.answer); err != nil {
		s.cancel()
	}
	return err
}

// serve begins to answer.
func (s *statusServer) serve(l heldLease) error {
	if s == nil {
		return nil
	}
	s.lease.Store(&l)
	return s.open()
}

// markLost makes it answer no from now on.
func (s *statusServer) markLost() {
	if s != nil {
		s.lost.Store(true)
	}
}

func (s *statusServer) close() {
	if s != nil && s.listener != nil {
		s.cancel()
		s.listener.Close()
		s.listener = nil
	}
}

func (s *statusServer) answer(q held.Question) (held.Answer, error) {
	l := s.lease.Load()
	switch {
	case l == nil:
		return held.Silence, nil
	case q == held.Release && l.release == nil:
		return held.Refused, nil
	case q == held.Release && s.lost.Swap(true), s.lost.Load() && q == held.Still:
		return held.No, nil
	case q == held.Release:
		return answerOf(l.release())
	case q == held.Still:
		a, err := answerOf(s.ask(l.lease))
		if a == held.No {
			l.onLost()
		}
		return a, err
	}
	return held.Unknown, errors.New("that question is not known: the golock that holds the slot is of another version")
}

// ask asks the store whether the slot is still held.
func (s *statusServer) ask(lease locks.Lease) error {
	if l, ok := lease.(locks.RenewableLease); ok {
		ctx, cancel := context.WithTimeout(s.ctx, renewal.TryLimit(l.Term().TTL))
		defer cancel()
		_, err := l.Renew(ctx)
		return err
	}
	if q, ok := s.run.Store.(locks.QueueStore); ok {
		return locks.Holds(s.ctx, q, lease.Grant().Ref)
	}
	return nil // a kernel lock is held as long as this process has it open
}

// answerOf turns an error of the store into an answer.
func answerOf(err error) (held.Answer, error) {
	switch {
	case err == nil:
		return held.Yes, nil
	case errors.Is(err, locks.ErrLost):
		return held.No, nil
	}
	return held.Unknown, err
}
