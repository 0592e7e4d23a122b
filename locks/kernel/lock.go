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

// Lock is the lock of an engine that keeps no queue.
type Lock interface {
	Take(r locks.Request) (*Lease, error)                      // ErrTaken; waits for nothing
	Wait(ctx context.Context, r locks.Request) (*Lease, error) // until it is taken
	IsOpen(pid int, r locks.Request) (bool, error)             // whether a process has it open

	Entries(ctx context.Context, name string) ([]locks.Entry, error) // locks.Store
}

// Join gives a ticket that has a lease, or that has to wait for one.
func Join(ctx context.Context, l Lock, r locks.Request) (locks.Ticket, error) {
	lease, err := l.Take(r)
	switch {
	case err == nil:
		return &ticket{l, r, lease}, nil
	case !errors.Is(err, ErrTaken):
		return nil, err
	}
	if inside := enclosing(ctx, l, r); inside != nil || r.NoWait {
		return nil, &locks.BusyError{Name: r.Name, Inside: inside}
	}
	return &ticket{lock: l, request: r}, nil
}

// ticket has a lease, or waits for it.
type ticket struct {
	lock    Lock
	request locks.Request
	lease   *Lease
}

// These implement locks.Ticket. Nobody can be evicted.
func (t *ticket) Queued() bool            { return t.lease == nil }
func (t *ticket) Replaced() []locks.Entry { return nil }
func (t *ticket) Evicted() error          { return nil }

// Wait implements locks.Ticket.
func (t *ticket) Wait(ctx context.Context) (_ locks.Lease, err error) {
	if t.lease == nil {
		if t.lease, err = t.lock.Wait(ctx, t.request); err != nil {
			return nil, err
		}
	}
	return t.lease, nil
}

// Lease is a lock that open descriptors hold.
type Lease struct {
	locks.Lasting
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
