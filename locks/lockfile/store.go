// Package lockfile locks a plain file as other tools do: with flock(2), as flock(1), setlock(8) and
// systemd-tmpfiles(8) do, or with record locks of fcntl(2), as s6-setlock and runlock do. The two
// families do not exclude each other.
//
// The lock excludes all processes that lock the file in the same family. The kernel releases it
// however a process ends, and decides the order. There is one lock, exclusive or shared. golock
// neither writes nor removes the file. It notices if somebody removes or replaces the file while it
// waits, but not while it holds the lock.
package lockfile

import (
	"context"
	"net/url"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"golock/internal/fdtable"
	"golock/locks"
	"golock/locks/kernel"
)

// Family is a kind of lock that the kernel can put on a file.
type Family string

// These are the two families, named after the schemes of their URLs.
const (
	Flock Family = "flock" // flock(2)
	Fcntl Family = "fcntl" // open file description locks, which exclude record locks too (fcntl(2))
)

// Store is a lock file. New does no I/O.
type Store struct {
	family Family
	path   string

	// These functions call the kernel. A test replaces them to behave like NFS.
	openFile func(path string, flags int) (fd int, err error)
	setLock  func(fd int, kind int16, wait bool) error

	waiting atomic.Int32 // the number of setLock calls under way, which /proc/locks may show as waiters
}

// New makes a store. path is an absolute path, which is used unchanged.
func New(family Family, path string) *Store {
	return &Store{family: family, path: path, openFile: openFile, setLock: family.setLock}
}

// URL implements locks.Store.
func (s *Store) URL() string { return (&url.URL{Scheme: string(s.family), Path: s.path}).String() }

// Abilities implements locks.Store.
func (s *Store) Abilities() locks.Abilities {
	return locks.Abilities{
		MaxUnits: 1,
		NoMax:    "one lock file lets one in, or with --shared any number",
		NoWeight: "one lock file has one unit",
	}
}

// Close implements locks.Store.
func (s *Store) Close() error { return nil }

// Join implements locks.Store. A request with a max takes the lock exclusively, a request without a
// max takes a shared lock.
func (s *Store) Join(ctx context.Context, r locks.Request) (locks.Admission, error) {
	return kernel.Join(ctx, s, r)
}

// Take implements kernel.Lock.
func (s *Store) Take(r locks.Request) (*kernel.Lease, error) { return s.take(r, doNotWait) }

// These are the values of the parameter wait.
const (
	doNotWait = false // fail if another process has the lock
	doWait    = true  // sleep until the lock is free
)

// take locks the file. A holder of a shared lock gets no slot number, because the kernel does not
// number the holders.
func (s *Store) take(r locks.Request, wait bool) (*kernel.Lease, error) {
	grant := locks.Grant{Ref: r.Ref}
	kind := int16(unix.F_RDLCK)
	if r.Claim.Max != 0 {
		grant.Slots = []int{0}
		kind = unix.F_WRLCK
	}
	fd, err := s.lock(kind, wait)
	if err != nil {
		return nil, err
	}
	fd = fdtable.MoveHigh(fd)
	return kernel.NewLease(grant, []int{fd}, func() (err error) {
		unlockErr := s.family.setLock(fd, unix.F_UNLCK, doNotWait)
		if unlockErr != nil {
			err = &locks.PathError{Op: "unlock", Path: s.path, Err: unlockErr}
		}
		unix.Close(fd)
		return err
	}), nil
}

// Wait implements kernel.Lock. A goroutine sleeps in the kernel, and only the lock ends that sleep. When
// ctx has ended, the goroutine sleeps on. As soon as it gets the lock, it releases it.
func (s *Store) Wait(ctx context.Context, r locks.Request) (*kernel.Lease, error) {
	var lease *kernel.Lease
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer locks.Recover(&err)
		lease, err = s.take(r, doWait)
	}()
	select {
	case <-done:
		return lease, err
	case <-ctx.Done():
		go func() {
			<-done
			if lease != nil {
				_ = lease.Release(context.Background())
			}
		}()
		return nil, ctx.Err()
	}
}
