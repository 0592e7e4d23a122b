// Package kernel has what the engines on kernel locks share: local, lockfile and bind.
package kernel

import (
	"context"
	"errors"
	"sync"

	"golock/locks"
)

// ErrTaken says that another process holds the lock.
var ErrTaken = errors.New("is taken")

// Lock is the lock of an engine without a queue.
type Lock interface {
	// Take takes the lock. It fails with ErrTaken instead of waiting.
	Take(r locks.Request) (*Lease, error)

	// Wait takes the lock as soon as it is free.
	Wait(ctx context.Context, r locks.Request) (*Lease, error)

	// IsOpen reports whether a process has a descriptor of the lock open. An error says that not all
	// descriptors of the process could be examined.
	IsOpen(pid int, r locks.Request) (bool, error)

	// Entries is that of locks.Store.
	Entries(ctx context.Context, name string) ([]locks.Entry, error)
}

// Join takes the lock, or returns a ticket whose Wait takes it later.
func Join(ctx context.Context, l Lock, r locks.Request) (locks.Ticket, error) {
	lease, err := l.Take(r)
	switch {
	case err == nil:
		return &ticket{lock: l, request: r, lease: lease}, nil
	case !errors.Is(err, ErrTaken):
		return nil, err
	}
	inside := enclosing(ctx, l, r)
	if inside != nil || r.NoWait {
		return nil, &locks.BusyError{Name: r.Name, Inside: inside}
	}
	return &ticket{lock: l, request: r}, nil
}

// ticket implements locks.Ticket.
type ticket struct {
	lock    Lock
	request locks.Request
	lease   *Lease // nil until the lock is taken
}

// These methods implement locks.Ticket. A plain lock knows no eviction.
func (t *ticket) Queued() bool            { return t.lease == nil }
func (t *ticket) Replaced() []locks.Entry { return nil }
func (t *ticket) Evicted() error          { return nil }

// Wait implements locks.Ticket.
func (t *ticket) Wait(ctx context.Context) (_ locks.Lease, err error) {
	if t.lease == nil {
		t.lease, err = t.lock.Wait(ctx, t.request)
		if err != nil {
			return nil, err
		}
	}
	return t.lease, nil
}

// Lease is a lock that is held as long as its descriptors are open.
type Lease struct {
	locks.Lasting
	grant   locks.Grant
	fds     []int
	release func() error
}

// NewLease makes a lease. release closes the descriptors. It must free the lock even if other
// processes have inherited the descriptors.
func NewLease(grant locks.Grant, fds []int, release func() error) *Lease {
	return &Lease{grant: grant, fds: fds, release: sync.OnceValue(release)}
}

// These methods implement locks.Lease. An engine with evictions replaces Evicted.
func (l *Lease) Grant() locks.Grant            { return l.grant }
func (l *Lease) Files() []int                  { return l.fds }
func (l *Lease) Evicted() error                { return nil }
func (l *Lease) Release(context.Context) error { return l.release() }
