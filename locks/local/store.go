// Package local keeps locks in the kernel of one machine: one file for each name, open
// file description locks on bytes far beyond its end, and a table in it that describes
// who holds and who waits.
//
// The order is strict, no clock decides, and waiters sleep in the kernel, which releases a
// slot however a process ends. A slot stays taken while any process lives that inherited
// the holder's descriptor. The store does not reach beyond one kernel, and it trusts
// everybody who may write the directory.
package local

import (
	"context"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/procfs"
	"golock/locks"
	"golock/locks/kernel"
)

// Store is a directory of lock files. It does nothing until it is used.
type Store struct {
	path  string // "" for the default directory
	roots roots
}

// New names the lock directory: an absolute path, or "" for the default one, which
// depends on the user and on nothing of the environment.
func New(path string) *Store {
	return &Store{path: path, roots: systemRoots()}
}

// URL implements locks.Store.
func (s *Store) URL() string {
	if s.path == "" {
		return "local"
	}
	return "local://" + kernel.EscapePath(s.path)
}

// Traits implements locks.Store.
func (s *Store) Traits() locks.Traits {
	return locks.Traits{MaxUnits: maxUnits}
}

// Close implements locks.Store. Nothing is open but what leases and tickets have.
func (s *Store) Close() error { return nil }

// Join implements locks.Store.
func (s *Store) Join(ctx context.Context, r locks.Request) (locks.Ticket, error) {
	t := &ticket{store: s, request: r}
	if err := t.join(ctx); err != nil {
		return nil, err
	}
	t.queued = t.lease == nil
	return t, nil
}

// newRecord describes a request of this process.
func (s *Store) newRecord(r locks.Request) record {
	return record{
		index: noIndex, id: r.Ref.ID, claim: r.Claim, uid: s.roots.euid,
		pid: os.Getpid(), pidNS: procfs.Namespace("pid"),
		joined: int64(locks.BootTime()), since: time.Now().UnixMicro(), command: r.Command,
		replace: r.Replace, noGolock: r.NoGolock,
	}
}

// lease is a held slot.
type lease struct {
	grant     locks.Grant
	place     *place
	exclusive bool // nobody else can be admitted before the release
	once      sync.Once
	err       error
}

// Grant implements locks.Lease.
func (l *lease) Grant() locks.Grant { return l.grant }

// Files implements locks.Lease: the description with the hold byte, and the
// directory, so that it stays marked as in use.
func (l *lease) Files() []int { return []int{l.place.hold, l.place.dir.fd} }

// Settle implements locks.Settler. It wakes the next waiter, which looks and sleeps again:
// that need not delay the command.
func (l *lease) Settle() { l.place.closeTable() }

// Evicted implements locks.Lease.
func (l *lease) Evicted() error { return l.place.ref.evicted() }

// Release implements locks.Lease. With a hold the record keeps the slot for the rest of
// it.
func (l *lease) Release(context.Context) error {
	l.once.Do(func() { l.err = l.place.close() })
	return l.err
}

// Forget implements locks.QueueStore.
func (s *Store) Forget(_ context.Context, name string) error {
	d, err := s.existingDirectory()
	if d == nil {
		return err
	}
	defer d.close()
	base := fileName(name)
	if err := unix.Unlinkat(d.fd, base, 0); err != nil && err != unix.ENOENT {
		return &locks.PathError{Op: "remove", Path: d.path + "/" + base, Err: err}
	}
	return nil
}
