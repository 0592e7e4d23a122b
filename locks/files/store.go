// Package files keeps locks in a directory that several hosts share, for file systems
// whose kernel locks are missing or not trusted. It needs only that making, renaming and
// removing a name is atomic there, as on NFS, SMB and every local file system.
//
// The state of a name is one file, v1, v2, v3 ..., written whole under another name and
// committed by taking the next number, which only one process can. The highest number is
// the truth: a step reads it, decides (package queue), and commits the next one. Whoever
// releases grants to the next waiter in the same version; a waiter polls for new
// versions. A process that was held up may make an old number anew after it was removed.
// Old versions are removed when many have followed. So a commit, or a version that was read,
// counts only if few have been made since.
//
// Each renewal rewrites a counter in the owner's record. An entry is dead when its record
// has not changed for the entry's TTL, on the clock of the process that looks; the
// owner's time begins before and ends earlier, and an owner that was too late gives up by
// itself. An entry of this host is dead, too, when its process ended before it knew of a
// grant. Clocks of two hosts are never compared.
//
// It cannot promise more than the file system: one that shows a host an old directory
// after that host has opened it anew can let two run.
package files

import (
	"context"
	"errors"
	"net/url"
	"os"
	"sync"

	"golock/locks"
	"golock/locks/lease"
)

// Store is a shared directory. It does nothing until it is used.
type Store struct {
	lease.Engine
	scheme    string
	dir       string
	make      func(h *handle, n int64, s *state) error
	kept      int64 // versions
	clock     locks.Clock
	clockName func() string     // of that clock
	self      func() process    // this process
	observed  sync.Map          // by key: the *observations of a directory
	at        func(step string) // called before the steps of the protocol, for tests
}

var _ locks.Store = (*Store)(nil)

// New names the primitive, mkdir, symlink or excl, and the directory: an absolute path.
func New(scheme, dir string) *Store {
	s := &Store{
		scheme: scheme, dir: dir, make: makeVersion, kept: kept, clock: locks.BootTime,
		self: sync.OnceValue(thisProcess), at: func(string) {},
	}
	s.clockName = sync.OnceValue(func() string { return s.self().clockName() })
	s.Engine = lease.NewEngine((&url.URL{Scheme: scheme, Path: dir}).String(), s.newEntry, s.attachedEntry)
	return s
}

// Abilities implements locks.Store.
func (s *Store) Abilities() locks.Abilities { return lease.Abilities(s) }

// Close implements locks.Store. Nothing stays open.
func (s *Store) Close() error { return nil }

// Warnings implements locks.Leases. There are none.
func (s *Store) Warnings(bool) []string { return nil }

// Forget implements locks.Queue.
func (s *Store) Forget(ctx context.Context, name string) error {
	_, err := lease.Await(ctx, func() (struct{}, error) {
		path := s.directoryOf(locks.KeyOf(name)).path
		return struct{}{}, errors.Join(os.RemoveAll(path), os.RemoveAll(path+usedSuffix))
	})
	return err
}
