// Package local keeps locks in the kernel of one machine: one file for each
// name, open file description locks on bytes far beyond its end, and a table
// in it that describes who holds and who waits.
//
// It promises strict order, exclusion without any clock, release by the kernel
// whatever way a process ends, and sleep without polling. A slot stays taken
// while any process lives that inherited the holder's descriptor. It does not
// reach beyond one kernel, and it trusts everybody who may write the directory.
package local

import (
	"context"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// Store is a directory of lock files. It does nothing until it is used.
type Store struct {
	path  string // "" for the default directory
	roots roots
	pid   int

	mu  sync.Mutex // guards dir
	dir *directory
}

// New names the lock directory: an absolute path, or "" for the default one,
// which depends on the user and on nothing of the environment.
func New(path string) *Store {
	return &Store{path: path, roots: systemRoots(), pid: os.Getpid()}
}

// URL implements locks.Store.
func (s *Store) URL() string {
	if s.path == "" {
		return "local"
	}
	return "local://" + escapePath(s.path)
}

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
func (s *Store) Traits() locks.Traits {
	return locks.Traits{Inherits: true, MaxUnits: maxUnits, Queue: true, Hold: true}
}

// Close implements locks.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir != nil {
		s.dir.close()
		s.dir = nil
	}
	return nil
}

// directory opens the lock directory and marks it as in use. It stays open for
// the next call, unless another one has taken its place. The caller closes it.
func (s *Store) directory() (*directory, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir != nil {
		if s.dir.inPlace() {
			s.dir.users.Add(1)
			return s.dir, nil
		}
		s.dir.close()
		s.dir = nil
	}
	d, err := openDirectory(s.path, s.roots, true)
	if err != nil {
		return nil, err
	}
	if d.fd, err = highCopy(d.fd); err != nil {
		return nil, &Error{Op: "fcntl", Path: d.path, Err: err}
	}
	d.keep()
	d.users.Store(2)
	s.dir = d
	return d, nil
}

// Join implements locks.Store.
func (s *Store) Join(ctx context.Context, r locks.Request) (locks.Ticket, error) {
	t := &ticket{store: s, request: r}
	var err error
	if t.place, t.lease, err = t.join(ctx); err != nil {
		return nil, err
	}
	t.queued = t.lease == nil
	return t, nil
}

// newRecord describes a request of this process.
func (s *Store) newRecord(r locks.Request) record {
	return record{
		index: noIndex, id: r.Ref.ID, claim: r.Claim, uid: s.roots.euid, pid: s.pid, pidNS: pidNamespace(),
		joined: int64(locks.BootTime()), since: time.Now().UnixMicro(), command: packCommand(r.Command),
		replace: r.Replace, bare: r.NoGolock,
	}
}

// lease is a held slot.
type lease struct {
	grant locks.Grant
	place *place
	own   *whereabouts
	alone bool // nobody else can be admitted before the release
	once  sync.Once
	err   error
}

// Grant implements locks.Lease.
func (l *lease) Grant() locks.Grant { return l.grant }

// Files implements locks.Inherited: the description with the hold byte, and the
// directory, so that it stays marked as in use.
func (l *lease) Files() []int { return []int{l.place.hold, l.place.dir.fd} }

// Settle implements locks.Settler: it wakes the next in line, which looks for
// its turn then and goes to sleep again. When it cannot be admitted anyway, that
// is better done beside the command than beside its start.
func (l *lease) Settle() {
	if l.place.table != nil {
		l.place.leaveQueue()
		l.place.closeTable()
	}
}

// Evicted implements locks.Marked.
func (l *lease) Evicted() error { return l.own.evicted() }

// Release implements locks.Lease. With a hold the record keeps the slot for the
// rest of it. Release unlocks before it closes: a process that
// the command left behind and that inherited the descriptor does not keep the
// slot.
func (l *lease) Release(context.Context) error {
	l.once.Do(func() {
		l.err = setLock(l.place.hold, unix.F_UNLCK, 0, 0, false)
		l.Settle()
		l.place.close()
	})
	return l.err
}
