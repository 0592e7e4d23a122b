// Package files keeps locks in a directory that several machines share, for
// file systems whose kernel locks are missing or not to be trusted. All it needs
// is that making, renaming and removing a name are atomic there, as NFS, SMB and
// every local file system have it.
//
// The state of a name is one file, v1, v2, v3 ..., written whole under another name
// and committed by taking the next number, which only one can. The highest number is
// the truth; whoever does a step reads it, decides (package queue), and commits the
// next one. Who releases grants to the next waiter by that; a waiter looks for new
// versions. Who was held up may make an old number anew after it was removed, so a
// commit counts only if it is the highest one afterwards, and a version that was read
// only if it is still the highest.
//
// Leases are counters: each renewal changes the owner's record, in place. An entry is
// dead when its record has not changed for a whole TTL of the entry's own, on the clock
// of the one that looks; the owner's time begins before and ends earlier, and an owner
// that was too late gives up by itself. One of this machine is dead, too, when its
// process is gone before it knew of a grant. Clocks of two machines are never compared.
//
// It cannot promise more than the file system: one that shows a machine an old
// directory after that machine has opened it anew can let two run. Nothing is
// pushed over a shared file system; who waits looks again and again.
package files

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"

	"golock/locks"
	"golock/locks/lease"
)

// Store is a shared directory. It does nothing until it is used.
type Store struct {
	scheme         string
	dir            string
	make           func(h *handle, temp, name string, text []byte) error
	kept           int64 // versions
	clock          locks.Clock
	clockName      func() string     // of that clock
	self           func() owner      // this process
	listingWatches sync.Map          // by key: the *watch of those who only list
	at             func(step string) // told before each step of the protocol, for tests
}

// Schemes are the primitives that a store can be made of.
func Schemes() []string { return []string{"mkdir", "symlink", "excl"} }

var _ locks.LeaseStore = (*Store)(nil)

// Open understands a URL: mkdir:///DIR, symlink:///DIR or excl:///DIR. It does
// no I/O. Errors name the part of the URL that is wrong.
func Open(address string) (*Store, error) {
	scheme, rest, _ := strings.Cut(address, ":")
	if !slices.Contains(Schemes(), scheme) {
		return nil, fmt.Errorf("scheme %q is not known: want %s", scheme, strings.Join(Schemes(), ", "))
	}
	example := scheme + ":///mnt/shared/locks"
	rest, ok := strings.CutPrefix(rest, "//")
	if !ok {
		return nil, fmt.Errorf("want %s:///DIR, with two slashes and the absolute path", scheme)
	}
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		return nil, fmt.Errorf("options: a store of lease files has none, but there is %q (write %%3F or %%23 if it belongs to the directory's name)", locks.Printable(rest[i:], 40))
	}
	path, err := url.PathUnescape(rest)
	switch {
	case err != nil:
		return nil, fmt.Errorf("path: %w", err)
	case strings.Trim(path, "/") == "":
		return nil, fmt.Errorf("path: a directory must be named, as in %s", example)
	case path[0] != '/':
		return nil, fmt.Errorf("host: a store of lease files has none; the directory begins with a slash, as in %s", example)
	case strings.ContainsRune(path, 0):
		return nil, errors.New("path: contains a zero byte")
	}
	return &Store{
		scheme: scheme, dir: path, make: makeVersion, kept: kept, clock: locks.BootTime,
		clockName: sync.OnceValue(clockName), self: sync.OnceValue(thisProcess), at: func(string) {},
	}, nil
}

// URL implements locks.Store.
func (s *Store) URL() string { return (&url.URL{Scheme: s.scheme, Path: s.dir}).String() }

// Traits implements locks.Store.
func (s *Store) Traits() locks.Traits { return lease.Traits() }

// Close implements locks.Store. There is nothing that stays open.
func (s *Store) Close() error { return nil }

// Warnings implements locks.LeaseStore. There are none.
func (s *Store) Warnings() []string { return nil }

// Join implements locks.Store.
func (s *Store) Join(ctx context.Context, r locks.Request) (locks.Ticket, error) {
	t, err := lease.NewTicket(ctx, s.URL(), r, s.newEntry(r))
	var fault *locks.PathError
	switch {
	case err == nil:
		return t, nil
	case lease.IsFinal(err) && errors.As(err, &fault): // it names the directory
		return nil, fault
	}
	return nil, err
}

// Attach implements locks.LeaseStore.
func (s *Store) Attach(ref locks.Ref) locks.RenewableLease {
	e := s.entryOf(locks.Request{Ref: ref})
	e.watch, e.attached = s.directoryOf(ref.Key).watch(), true
	return lease.Attach(s.URL(), ref, e)
}

// Forget implements locks.QueueStore.
func (s *Store) Forget(ctx context.Context, name string) error {
	_, err := await(ctx, func() (struct{}, error) {
		path := s.keyPath(locks.KeyOf(name))
		err := errors.Join(os.RemoveAll(path), os.RemoveAll(path+usedSuffix))
		names, _ := readNames(s.dir + "/.")
		for _, begun := range names { // by who was killed then
			if strings.HasPrefix(begun, newPrefix+locks.KeyOf(name).String()+".") {
				err = errors.Join(err, os.RemoveAll(s.dir+"/"+begun))
			}
		}
		return struct{}{}, err
	})
	return err
}
