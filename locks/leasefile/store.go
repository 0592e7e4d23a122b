// Package leasefile keeps locks in a directory that several machines share, for
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
package leasefile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golock/locks"
)

// maxUnits is the largest weight: every unit has a slot number.
const maxUnits = 1 << 16

// defaultTTL is for requests that name none, and for entries that do not tell
// theirs.
const defaultTTL = 30 * time.Second

// Store is a shared directory. It does nothing until it is used.
type Store struct {
	scheme    string
	dir       string
	make      primitive
	clock     locks.Clock
	clockName func() string     // of that clock
	glances   sync.Map          // by key: the *watch of those who only look
	at        func(step string) // told before each step of the protocol, for tests
}

// Schemes are the primitives that a store can be made of.
func Schemes() []string { return []string{"mkdir", "symlink", "excl"} }

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
func (s *Store) Traits() locks.Traits {
	return locks.Traits{Leased: true, MaxUnits: maxUnits, Queue: true, Hold: true}
}

// Close implements locks.Store. There is nothing that stays open.
func (s *Store) Close() error { return nil }

// Bounds of what a request that cannot be queued waits for others that are only
// passing through: they choose a ticket, do not wait either, or have been told
// to go.
const (
	passing      = 2 * time.Millisecond // until it looks again
	passingLimit = time.Second          // a run that does not wait
	passingBrief = 100 * time.Millisecond
)

// Join implements locks.Store.
func (s *Store) Join(ctx context.Context, r locks.Request) (locks.Ticket, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s: not asked yet: %w", s.URL(), err)
	}
	for {
		t, err := await(ctx, func() (*ticket, error) { return s.join(ctx, r) }, func(t *ticket, err error) {
			if err == nil {
				t.entry.leave()
			}
		})
		var fault *Error
		var panicked *locks.PanicError
		switch {
		case err == nil:
			return t, nil
		case ctx.Err() != nil && !errors.As(err, &panicked):
			return nil, &locks.OutageError{Store: s.URL(), Err: err}
		case !errors.As(err, &fault) || !mayPass(err):
			return nil, err
		}
		pause(ctx, retryPause)
	}
}

// join makes an entry and looks at the line until it is known what becomes of
// it.
func (s *Store) join(ctx context.Context, r locks.Request) (*ticket, error) {
	q, err := s.queue(r.Name)
	if err != nil {
		return nil, err
	}
	e := s.newEntry(q, r)
	inside := e.enclosing()
	noWait := r.NoWait || inside != nil
	e.record.NoWait = noWait || (r.MaxQueue != nil && *r.MaxQueue <= 0) // others need not count with it
	if err := e.enter(); err != nil {
		e.leave()
		return nil, err
	}
	limit := passingBrief
	if noWait || r.MaxQueue != nil {
		limit = passingLimit
	}
	if end, ok := ctx.Deadline(); ok { // it knows by then what became of it, and does not take the store for out of reach
		limit = min(limit, time.Until(end)/2)
	}
	began := s.clock()
	for {
		v, err := e.look()
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			e.leave()
			return nil, err
		}
		t := &ticket{entry: e, queued: !v.granted, view: v}
		t.place.Store(int64(v.place))
		switch {
		case v.granted:
			t.lease = newLease(e)
			return t, nil
		case v.passing && s.clock().Sub(began) < limit:
			pause(ctx, passing)
			continue
		case !noWait && !v.full(r):
			e.settle(v.picked)
			for _, p := range v.picked {
				t.replaced = append(t.replaced, p.entry(r.Name))
			}
			return t, nil
		}
		busy := v.busy(r.Name)
		busy.Full = !noWait
		e.leave()
		if inside != nil {
			return nil, &locks.NestedError{Name: r.Name, Inside: *inside, Busy: busy}
		}
		return nil, busy
	}
}

// full reports whether a request would be one too many in the line. Those that
// it puts out of its way do not count.
func (v view) full(r locks.Request) bool {
	if r.MaxQueue == nil {
		return false
	}
	staying := v.waiters // without those that do not wait
	for _, p := range v.rivals {
		if p.kind == waits && p.evicted != "" && !p.record.NoWait {
			staying--
		}
	}
	for _, p := range v.picked {
		if p.kind == waits && !p.record.NoWait {
			staying--
		}
	}
	return staying >= *r.MaxQueue
}

// enclosing is the innermost of the runs around this one that holds the name.
func (e *entry) enclosing() *locks.Ref {
	if len(e.request.Within) == 0 {
		return nil
	}
	line, err := e.queue.list()
	if err != nil {
		return nil // the look that follows tells
	}
	for _, w := range slices.Backward(e.request.Within) {
		if w.Key != e.request.Ref.Key {
			continue
		}
		for _, t := range line {
			if t.kind != holds || !t.of(w) {
				continue
			}
			if _, rec, err := e.queue.readRecord(t.id); err != nil || !rec.Left { // nobody is inside what has ended
				return &w
			}
		}
	}
	return nil
}

// busy says who is in the way.
func (v view) busy(name string) *locks.BusyError {
	busy := &locks.BusyError{Name: name, Waiters: v.waiters}
	for _, h := range v.holders {
		busy.Holders = append(busy.Holders, h.entry(name))
	}
	slices.SortFunc(busy.Holders, func(a, b locks.Entry) int { return cmp.Compare(a.Fence, b.Fence) })
	if v.passing && len(busy.Holders) == 0 && busy.Waiters == 0 {
		busy.Reason = "somebody else is joining just now and does not go on"
	}
	return busy
}
