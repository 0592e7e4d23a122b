// Package lockfile holds the whole of one plain lock file, the way other tools
// do: the family of flock(2) (flock(1), setlock(8), systemd-tmpfiles(8)), or
// that of record locks, fcntl(2) (s6-setlock, runlock). The two families do not
// see each other.
//
// It promises that nobody who locks the file in the same family is inside at the
// same time, and that the kernel gives the lock back whatever way a process
// ends. There is one lock, exclusive or shared; the kernel decides the order.
// Nothing is written into the file and nobody ever removes it. A file that was
// removed or replaced while it was waited for is noticed; that it was removed
// under its holder is not.
package lockfile

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"golock/locks"
	"golock/locks/kernel"
)

// Family is a kind of lock that the kernel can put on a file.
type Family string

// The two families, by the schemes of their URLs.
const (
	Flock Family = "flock" // flock(2)
	Fcntl Family = "fcntl" // open file description locks, which meet record locks (fcntl(2))
)

// Store is one lock file. It does nothing until it is used.
type Store struct {
	family Family
	path   string
	sys    system

	sleepers atomic.Int32 // goroutines of ours that the kernel's list shows as waiting
}

// New names the file: an absolute path, which is used as it is.
func New(family Family, path string) *Store {
	return &Store{family: family, path: path, sys: kernelCalls(family)}
}

// URL implements locks.Store.
func (s *Store) URL() string { return string(s.family) + "://" + escapePath(s.path) }

// escapePath writes a path so that it can stand in a URL.
func escapePath(path string) string {
	const hex = "0123456789ABCDEF"
	b := make([]byte, 0, len(path))
	for i := 0; i < len(path); i++ {
		switch c := path[i]; {
		case c <= ' ' || c >= 0x7f || c == '%' || c == '?' || c == '#':
			b = append(b, '%', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return string(b)
}

// Traits implements locks.Store.
func (s *Store) Traits() locks.Traits { return locks.Traits{Inherits: true, MaxUnits: 1} }

// Lacks implements locks.Plain.
func (s *Store) Lacks() locks.Lacks {
	return locks.Lacks{
		Max:    "one lock file lets one in, or with --shared any number",
		Weight: "one lock file has one unit",
	}
}

// Close implements locks.Store.
func (s *Store) Close() error { return nil }

// Error is a lock file that cannot be used.
type Error struct {
	Op   string // the system call, if one failed
	Path string
	Err  error
	Hint string // what the user can do, if that is known
}

func (e *Error) Error() string {
	text := e.Path + ": " + e.Err.Error()
	if e.Op != "" {
		text = e.Op + " " + text
	}
	if e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// Join implements locks.Store. A request with a max is exclusive, one without
// is shared.
func (s *Store) Join(_ context.Context, r locks.Request) (locks.Ticket, error) {
	t := &ticket{store: s, request: r}
	fd, err := s.lock(t.shared(), nil)
	switch {
	case err == nil:
		if t.lease, err = s.grant(r, t.shared(), fd); err != nil {
			return nil, err
		}
		return t, nil
	case !errors.Is(err, errLocked):
		return nil, err
	}
	if inside := s.enclosing(r); inside != nil {
		return nil, &locks.NestedError{Name: r.Name, Inside: *inside, Busy: s.busy(r.Name)}
	}
	if r.NoWait {
		return nil, s.busy(r.Name)
	}
	return t, nil
}

// grant makes a held descriptor a lease.
func (s *Store) grant(r locks.Request, shared bool, fd int) (*lease, error) {
	fd, err := kernel.High(fd)
	if err != nil {
		return nil, &Error{Op: "fcntl", Path: s.path, Err: err}
	}
	l := &lease{store: s, fd: fd, grant: locks.Grant{Ref: r.Ref}}
	if !shared {
		l.grant.Slots = []int{0}
	}
	return l, nil
}

// ticket is a lease already, or one that has still to wait.
type ticket struct {
	store   *Store
	request locks.Request
	lease   *lease
}

func (t *ticket) shared() bool { return t.request.Claim.Max == 0 }

// Queued implements locks.Ticket.
func (t *ticket) Queued() bool { return t.lease == nil }

// Wait implements locks.Ticket. The kernel cannot be told to let a sleeper go:
// a goroutine that nobody waits for any more sleeps on, and gives back at once
// what it gets.
func (t *ticket) Wait(ctx context.Context) (locks.Lease, error) {
	if t.lease != nil {
		return t.lease, nil
	}
	type result struct {
		lease *lease
		err   error
	}
	got, gone := make(chan result), make(chan struct{})
	go func() {
		var r result
		defer func() {
			if v := recover(); v != nil {
				r = result{err: locks.NewPanicError(v)}
			}
			select {
			case got <- r:
			case <-gone:
				if r.lease != nil {
					_ = r.lease.Release(context.Background())
				}
			}
		}()
		var fd int
		if fd, r.err = t.store.lock(t.shared(), gone); r.err == nil {
			r.lease, r.err = t.store.grant(t.request, t.shared(), fd)
		}
	}()
	select {
	case r := <-got:
		if r.err != nil {
			return nil, r.err
		}
		return r.lease, nil
	case <-ctx.Done():
		close(gone)
		return nil, ctx.Err()
	}
}

// lease is a lock that is held.
type lease struct {
	store *Store
	fd    int
	grant locks.Grant
	once  sync.Once
	err   error
}

// Grant implements locks.Lease. Those who share a lock have no numbers: the
// kernel does not know how many they are.
func (l *lease) Grant() locks.Grant { return l.grant }

// Files implements locks.Inherited.
func (l *lease) Files() []int { return []int{l.fd} }

// Release implements locks.Lease. It unlocks before it closes: a process that
// the command left behind and that inherited the descriptor does not keep the
// lock.
func (l *lease) Release(context.Context) error {
	l.once.Do(func() {
		if err := l.store.sys.unlock(l.fd); err != nil {
			l.err = &Error{Op: "unlock", Path: l.store.path, Err: err}
		}
		l.store.sys.close(l.fd)
	})
	return l.err
}
