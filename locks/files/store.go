// Package files keeps locks in a directory that several machines share, for
// file systems whose kernel locks are missing or not to be trusted. All it needs
// is that making, renaming and removing a name are atomic there, as NFS, SMB and
// every local file system have it.
//
// An entry is a token in the line of its name, made with the primitive that the
// URL asks for and called after what it is, its place and its owner:
//
//	n.ID         is being made and counts for nothing
//	c.ID         chooses its ticket
//	q.TICKET.ID  waits
//	h.TICKET.ID  holds
//	x.TICKET.ID  is being removed
//
// No token's name is ever used by two entries, so a removal can only hit the
// entry that was judged. Tickets are Lamport's (A new solution of Dijkstra's
// concurrent programming problem, 1974): who comes chooses the highest it sees
// plus one, and is passed by nobody who chose after it. Who is first and fits
// renames its q to h, looks again, and steps back unless the rule still holds:
// of two that do so at once the later one sees the other. A listing may miss a
// name that is being renamed, so nothing that must be seen ever is: a holder's
// token keeps its name, and its sign of life lies beside it.
//
// Leases are counters: each renewal changes the owner's record. An entry is dead
// when its record has not changed for a whole TTL of the entry's own, on the
// clock of the one that looks; the owner's time begins before and ends earlier,
// and an owner that was too late gives up by itself. A waiter of this machine is
// dead, too, when its process is gone. Clocks of two machines are never compared.
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
	make           primitive
	clock          locks.Clock
	clockName      func() string     // of that clock
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
	return &Store{scheme: scheme, dir: path, make: primitives(scheme), clock: locks.BootTime, clockName: clockName, at: func(string) {}}, nil
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
	e.queue = &queue{store: s, key: ref.Key, path: s.keyPath(ref.Key)}
	e.watch = e.queue.watch(lease.DefaultTTL)
	e.attached = true
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
