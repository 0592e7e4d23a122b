// Package kernel is what the engines on kernel locks share: local, lockfile and bind.
package kernel

import (
	"context"
	"errors"
	"sync"

	"golock/locks"
)

// ErrTaken says that somebody else has the lock.
var ErrTaken = errors.New("is taken")

// Attempt is a Join of an engine that keeps no queue, and its ticket.
type Attempt struct {
	Request locks.Request
	Take    func() (*Lease, error)                // ErrTaken; waits for nothing
	Await   func(context.Context) (*Lease, error) // until it is taken
	Has     func(pid int) (bool, error)           // whether a process has the lock open

	lease *Lease // nil: it has to wait for one
}

// Join gives a ticket that has a lease, or that has to wait for one.
func Join(a Attempt) (_ locks.Ticket, err error) {
	if a.lease, err = a.Take(); err == nil {
		return &a, nil
	}
	if !errors.Is(err, ErrTaken) {
		return nil, err
	}
	if inside := Enclosing(a.Request, a.Has); inside != nil || a.Request.NoWait {
		return nil, &locks.BusyError{Name: a.Request.Name, Inside: inside}
	}
	return &a, nil
}

// These implement locks.Ticket. Nobody can be evicted.
func (a *Attempt) Queued() bool            { return a.lease == nil }
func (a *Attempt) Replaced() []locks.Entry { return nil }
func (a *Attempt) Evicted() error          { return nil }

// Wait implements locks.Ticket.
func (a *Attempt) Wait(ctx context.Context) (_ locks.Lease, err error) {
	if a.lease == nil {
		if a.lease, err = a.Await(ctx); err != nil {
			return nil, err
		}
	}
	return a.lease, nil
}

// Lease is a lock that open descriptors hold.
type Lease struct {
	grant   locks.Grant
	fds     []int
	release func() error
}

// NewLease makes a lease. release closes the descriptors. It must free the lock also
// if other processes have inherited them.
func NewLease(grant locks.Grant, fds []int, release func() error) *Lease {
	return &Lease{grant: grant, fds: fds, release: sync.OnceValue(release)}
}

// These implement locks.Lease. Nobody can take it back, but for a lease that says otherwise.
func (l *Lease) Grant() locks.Grant            { return l.grant }
func (l *Lease) Files() []int                  { return l.fds }
func (l *Lease) Evicted() error                { return nil }
func (l *Lease) Release(context.Context) error { return l.release() }
