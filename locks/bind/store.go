// Package bind uses an address of the kernel as a lock: a TCP port, an abstract name or a socket
// file. Only one socket can have an address.
//
// The kernel frees an address however a process ends. There is no order. A max of N is N addresses,
// and a holder has one of them, so all runs must name the same N. The sockets listen, so that other
// processes can see them. Nobody accepts a connection.
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

// Store is an address, or the first of several. The constructors do no I/O.
type Store struct{ address address }

// address is a kind of address. Unit 0 is the address in the URL.
type address interface {
	url() string
	units() int                                                 // how many units there can be
	take(unit int) (fds []int, release func() error, err error) // fails with kernel.ErrTaken if another process has the unit
	listeners() map[string]uint64                               // the inodes of all listening sockets of this kind, by address
	listenerKey(unit int) string                                // the address of a unit as listeners has it; "" if the unit is certainly free
	examine(found *locks.Findings)                              // adds findings about the address
}

const (
	maxUnits = 256                    // a waiter tries all units ten times a second
	interval = 100 * time.Millisecond // time between two attempts: the kernel wakes nobody when an address becomes free
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

		InheritorsKeep: isSocket && !name.isFile(), // an abstract name is free when no process has the socket open
	}
}

// Close implements locks.Store.
func (s *Store) Close() error { return nil }

// Join implements locks.Store.
func (s *Store) Join(ctx context.Context, r locks.Request) (locks.Admission, error) {
	return kernel.Join(ctx, s, r)
}

// Take implements kernel.Lock. It takes the first free unit.
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
	tick := time.Tick(interval)
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick:
		}
		lease, err := s.Take(r)
		if err != kernel.ErrTaken {
			return lease, err
		}
	}
}

// maxAttempts limits how often a newcomer tries while others try at the same moment.
const maxAttempts = 20

// listen takes an address. It fails with kernel.ErrTaken if another process has it.
//
// With SO_REUSEADDR a socket can be bound to a port that old connections (TIME_WAIT) or the socket of a released
// slot still use, but not to one at which a socket listens, or that a socket without the option uses. Several
// newcomers can bind the same port, and the first that calls listen(2) gets it. All of them can fail at the same
// time, so a newcomer that fails in listen(2) tries again.
func listen(domain int, to unix.Sockaddr, name string) (fds []int, release func() error, err error) {
	for range maxAttempts {
		fd, err := newSocket(domain, name)
		if err != nil {
			return nil, nil, err
		}
		call, err := bindAndListen(fd, to)
		if err == nil {
			fd = fdtable.MoveHigh(fd)
			return []int{fd}, func() error {
				_ = unix.Shutdown(fd, unix.SHUT_RDWR) // frees the address also if other processes have inherited the socket
				return unix.Close(fd)
			}, nil
		}
		unix.Close(fd)
		isRace := call == "listen" && err == unix.EADDRINUSE
		if !isRace {
			return nil, nil, listenError(call, name, err)
		}
		time.Sleep(20*time.Microsecond + rand.N(300*time.Microsecond))
	}
	return nil, nil, kernel.ErrTaken
}

// listenError returns the error of a call that failed with err for an address.
func listenError(call, name string, err error) error {
	failed := &locks.PathError{Op: call, Path: name, Err: err}
	switch err {
	case unix.EADDRINUSE:
		return kernel.ErrTaken
	case unix.ENOENT:
		failed.Hint = "the directory must be there"
	case unix.EADDRNOTAVAIL:
		failed.Hint = "this machine, or this network namespace, does not have that address"
	case unix.EACCES, unix.EPERM, unix.EROFS:
		failed.Hint = "ports below 1024 need root or CAP_NET_BIND_SERVICE, socket files the right to write the directory"
	}
	return failed
}

// bindAndListen binds a socket and makes it listen. After an error it returns the name of the call that
// failed.
func bindAndListen(fd int, to unix.Sockaddr) (call string, err error) {
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err != nil {
		return "setsockopt", err
	}
	err = unix.Bind(fd, to)
	if err != nil {
		return "bind", err
	}
	return "listen", unix.Listen(fd, 1)
}

func newSocket(domain int, name string) (int, error) {
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, &locks.PathError{Op: "socket", Path: name, Err: err}
	}
	return fd, nil
}
