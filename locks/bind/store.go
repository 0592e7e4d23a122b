// Package bind takes an address of the kernel for a lock: a TCP port, an
// abstract name or a socket file. Only one socket can have it.
//
// It promises that no two have the same address at a time, and that the kernel
// gives it back whatever way a process ends. It needs no file system (but for
// socket files), has no order, and excludes who shares the network namespace
// (socket files: who shares the file). A max of N is N addresses, of which a
// holder has one: everybody must name the same N.
//
// The sockets listen, so that others can see that somebody is there, and nobody
// ever accepts a connection.
package bind

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/kernel"
)

// Store is one address, or the first of several. It does nothing until it is
// used.
type Store struct {
	space space
}

// space is a kind of address. Unit 0 is what the URL names.
type space interface {
	url() string

	// units is how many there can be.
	units() int

	// take binds one unit, if nobody has it: errTaken. With a ctx that has
	// ended it waits for nothing at all.
	take(ctx context.Context, unit int) (*held, error)

	// sockets are the inodes of those that have one of the first n units now,
	// by unit.
	sockets(n int) map[int]string
}

// held is a socket that has a unit.
type held struct {
	fd int

	// drop gives the unit back, also if somebody else still has the socket open,
	// and closes fd.
	drop func(fd int) error
}

var (
	// errTaken says that somebody has the address.
	errTaken = errors.New("is taken")

	// errStuck says that somebody who looks after the address takes very long.
	errStuck = errors.New("is being changed by another process, which may be stopped")
)

// maxUnits bounds how many addresses are tried ten times a second.
const maxUnits = 256

// interval is how often a waiter looks: the kernel wakes nobody for an address.
const interval = 100 * time.Millisecond

// URL implements locks.Store.
func (s *Store) URL() string { return s.space.url() }

// Traits implements locks.Store.
func (s *Store) Traits() locks.Traits {
	return locks.Traits{Inherits: true, MaxUnits: min(maxUnits, s.space.units())}
}

// Lacks implements locks.Plain.
func (s *Store) Lacks() locks.Lacks {
	return locks.Lacks{
		Weight: "without a queue a heavier run could wait for ever behind lighter ones",
		Shared: "an address cannot be shared; a lock for several is --max N",
	}
}

// Close implements locks.Store.
func (s *Store) Close() error { return nil }

// Error is an address that cannot be used.
type Error struct {
	Op      string // the system call, if one failed
	Address string
	Err     error
	Hint    string // what the user can do, if that is known
}

func (e *Error) Error() string {
	text := e.Address + ": " + e.Err.Error()
	if e.Op != "" {
		text = e.Op + " " + text
	}
	if e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// Join implements locks.Store.
func (s *Store) Join(ctx context.Context, r locks.Request) (locks.Ticket, error) {
	t := &ticket{store: s, request: r}
	switch err := t.try(ctx); {
	case err == nil:
		return t, nil
	case !errors.Is(err, errTaken):
		return nil, err
	}
	busy := &locks.BusyError{Name: r.Name}
	if inside := s.enclosing(r); inside != nil {
		return nil, &locks.NestedError{Name: r.Name, Inside: *inside, Busy: busy}
	}
	if r.NoWait {
		return nil, busy
	}
	t.queued = true
	return t, nil
}

// ticket is a request, and the lease once there is one.
type ticket struct {
	store   *Store
	request locks.Request
	queued  bool
	lease   *lease
}

// try takes the first unit that nobody has.
func (t *ticket) try(ctx context.Context) error {
	for unit := range t.request.Claim.Max {
		got, err := t.store.space.take(ctx, unit)
		if errors.Is(err, errTaken) {
			continue
		}
		if err != nil {
			return err
		}
		high, err := kernel.High(got.fd)
		if err != nil {
			return &Error{Op: "fcntl", Address: t.store.URL(), Err: err}
		}
		t.lease = &lease{drop: got.drop, fd: high, grant: locks.Grant{Ref: t.request.Ref, Slots: []int{unit}}}
		return nil
	}
	return errTaken
}

// Queued implements locks.Ticket.
func (t *ticket) Queued() bool { return t.queued }

// Wait implements locks.Ticket.
func (t *ticket) Wait(ctx context.Context) (locks.Lease, error) {
	if t.lease != nil {
		return t.lease, nil
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		switch err := t.try(ctx); {
		case err == nil:
			return t.lease, nil
		case !errors.Is(err, errTaken) && !errors.Is(err, errStuck):
			return nil, err
		}
	}
}

// lease is a unit that is held.
type lease struct {
	grant locks.Grant
	fd    int
	drop  func(fd int) error
	once  sync.Once
	err   error
}

// Grant implements locks.Lease.
func (l *lease) Grant() locks.Grant { return l.grant }

// Files implements locks.Inherited.
func (l *lease) Files() []int { return []int{l.fd} }

// Release implements locks.Lease.
func (l *lease) Release(context.Context) error {
	l.once.Do(func() { l.err = l.drop(l.fd) })
	return l.err
}

// newSocket makes a stream socket.
func newSocket(domain int) (int, error) {
	return unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
}

// backlog is how many connections the kernel accepts in our name, at least one.
const backlog = 1
