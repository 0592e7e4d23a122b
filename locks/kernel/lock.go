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

	// Entries does what locks.Store says.
	Entries(ctx context.Context, name string) ([]locks.Entry, error)
}

// Join takes the lock, or returns an admission whose Wait takes it later.
func Join(ctx context.Context, l Lock, r locks.Request) (locks.Admission, error) {
	lease, err := l.Take(r)
	switch {
	case err == nil:
		return &admission{lock: l, request: r, lease: lease}, nil
	case !errors.Is(err, ErrTaken):
		return nil, err
	}
	inside := enclosing(ctx, l, r)
	if inside != nil || r.NoWait {
		return nil, &locks.BusyError{Name: r.Name, Inside: inside}
	}
	return &admission{lock: l, request: r}, nil
}

// admission implements locks.Admission.
type admission struct {
	lock    Lock
	request locks.Request
	lease   *Lease // nil until the lock is taken
}

// These methods implement locks.Admission. A plain lock knows no eviction.
func (a *admission) Queued() bool            { return a.lease == nil }
func (a *admission) Replaced() []locks.Entry { return nil }
func (a *admission) Evicted() error          { return nil }

// Wait implements locks.Admission.
func (a *admission) Wait(ctx context.Context) (_ locks.Lease, err error) {
	if a.lease == nil {
		a.lease, err = a.lock.Wait(ctx, a.request)
		if err != nil {
			return nil, err
		}
	}
	return a.lease, nil
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
