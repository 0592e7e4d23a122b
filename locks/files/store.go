// Package files keeps locks in a directory that several hosts share, for file systems
// whose kernel locks are missing or not trusted. It needs only that making, renaming and
// removing a name is atomic there, as on NFS, SMB and every local file system.
//
// The state of a name is one file, its version: v1, v2, v3 ... A process writes it under another
// name, and commits it by giving it the next number, which only one process can do. The highest
// number counts. A step reads that version, decides (package queue), and commits the next one. The
// step of a release grants the slot to the next waiter; a waiter polls for new versions.
//
// Old versions are removed when many have followed. A process that was stopped for long may then make
// an old number anew. So a commit, or a version that was read, counts only if few versions have been
// made since.
//
// Each renewal rewrites a counter in the owner's record. An entry is dead when its record has not
// changed for the entry's TTL, on the clock of the process that reads it. The owner counts its TTL
// from before it writes the record, so its time ends earlier, and an owner that was too late gives up.
// An entry of this host is also dead when its process has ended before it noticed a grant. Clocks of
// two hosts are never compared.
//
// The store cannot promise more than the file system: if that shows a host an old directory after the
// host has opened it anew, two may run.
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
	make      func(h *handle, n int64, s *state) error // the function makeVersion; tests use another one
	kept      int64                                    // the constant kept; tests use another number
	clock     locks.Clock                              // the clock of all instants
	clockName func() string                            // the name of clock
	self      func() process                           // this process
	observed  sync.Map                                 // the *observations of a directory, by the lock's key
	hook      func(step string)                        // tests use it; it is called before each part of a step
}

var _ locks.Store = (*Store)(nil)

// New makes a store. scheme names the primitive: mkdir, symlink or excl. dir is an absolute path.
func New(scheme, dir string) *Store {
	s := &Store{
		scheme: scheme, dir: dir, make: makeVersion, kept: kept, clock: locks.BootTime,
		self: sync.OnceValue(thisProcess), hook: func(string) {},
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
