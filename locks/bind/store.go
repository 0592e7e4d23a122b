// Package bind takes an address of the kernel for a lock: a TCP port, an abstract
// name or a socket file. Only one socket can have it.
//
// The kernel frees an address however a process ends. There is no order. A max of N is N
// addresses, of which a holder has one: everybody must name the same N. The sockets listen,
// so that others see them. Nobody accepts a connection.
package bind

import (
	"context"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/fdtable"
	"golock/locks"
	"golock/locks/kernel"
)

// Store is one address, or the first of several. It does nothing until it is used.
type Store struct{ address address }

// address is a kind of address. Unit 0 is the one in the URL.
type address interface {
	url() string
	units() int                                                 // how many there can be
	take(unit int) (fds []int, release func() error, err error) // kernel.ErrTaken: somebody has it
	listeners() map[string]uint64                               // the inodes of all sockets of the kind, by address
	listenerKey(unit int) string                                // an address as in listeners; "" if nobody can have it now
	examine(found *locks.Findings)
}

const (
	maxUnits = 256                    // as many are tried ten times a second
	interval = 100 * time.Millisecond // of the attempts: the kernel wakes nobody for an address
)

// URL implements locks.Store.
func (s *Store) URL() string { return s.address.url() }

// Abilities implements locks.Store.
func (s *Store) Abilities() locks.Abilities {
	name, isSocket := s.address.(socketName)
	return locks.Abilities{
		MaxUnits: min(maxUnits, s.address.units()),
		NoWeight: "without a queue a heavier run could wait for ever behind lighter ones",
		NoShared: "an address cannot be shared; a lock for several is --max N",

		InheritorsKeep: isSocket && !name.isFile(), // an abstract name is free when nobody has it open
	}
}

// Close implements locks.Store.
func (s *Store) Close() error { return nil }

// Join implements locks.Store.
func (s *Store) Join(ctx context.Context, r locks.Request) (locks.Ticket, error) {
	return kernel.Join(ctx, s, r)
}

// Take implements kernel.Lock: it takes the first unit that is free.
func (s *Store) Take(r locks.Request) (*kernel.Lease, error) {
	for unit := range r.Claim.Max {
		fds, release, err := s.address.take(unit)
		if err == nil {
			return kernel.NewLease(locks.Grant{Ref: r.Ref, Slots: []int{unit}}, fds, release), nil
		}
		if err != kernel.ErrTaken {
			return nil, err
		}
	}
	return nil, kernel.ErrTaken
}

// Wait implements kernel.Lock.
func (s *Store) Wait(ctx context.Context, r locks.Request) (*kernel.Lease, error) {
	for tick := time.Tick(interval); ; {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick:
		}
		if l, err := s.Take(r); err != kernel.ErrTaken {
			return l, err
		}
	}
}

// maxAttempts is how often a newcomer tries when another one tries at the same moment.
const maxAttempts = 20

// listen takes an address: kernel.ErrTaken if somebody else has it. SO_REUSEADDR lets a
// port be bound beside what is left of a server's connections (TIME_WAIT) or of a
// released slot, but not beside a socket that listens or lacks the option. Of several
// newcomers that have bound it one listens first. All can fail at once, so they try again.
func listen(domain int, to unix.Sockaddr, name string) (fds []int, release func() error, err error) {
	for range maxAttempts {
		fd, err := newSocket(domain, name)
		if err != nil {
			return nil, nil, err
		}
		op, err := "setsockopt", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
		if err == nil {
			op, err = "bind", unix.Bind(fd, to)
		}
		if err == nil {
			op, err = "listen", unix.Listen(fd, 1)
		}
		if err == nil {
			fd = fdtable.MoveHigh(fd)
			return []int{fd}, func() error {
				_ = unix.Shutdown(fd, unix.SHUT_RDWR) // also for those who inherited the socket
				return unix.Close(fd)
			}, nil
		}
		unix.Close(fd)
		failed := &locks.PathError{Op: op, Path: name, Err: err}
		switch err {
		case unix.EADDRINUSE:
			if op == "listen" {
				time.Sleep(20*time.Microsecond + rand.N(300*time.Microsecond))
				continue
			}
			return nil, nil, kernel.ErrTaken
		case unix.ENOENT:
			failed.Hint = "the directory must be there"
		case unix.EADDRNOTAVAIL:
			failed.Hint = "this machine, or this network namespace, does not have that address"
		case unix.EACCES, unix.EPERM, unix.EROFS:
			failed.Hint = "ports below 1024 need root or CAP_NET_BIND_SERVICE, socket files the right to write the directory"
		}
		return nil, nil, failed
	}
	return nil, nil, kernel.ErrTaken
}

func newSocket(domain int, name string) (int, error) {
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, &locks.PathError{Op: "socket", Path: name, Err: err}
	}
	return fd, nil
}
