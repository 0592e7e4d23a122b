// Package local keeps locks in the kernel of one machine. Each name has a file, with open file
// description locks on bytes far beyond its end, and a table of its holders and waiters.
//
// The order is strict, no clock decides, and waiters sleep in the kernel. The kernel releases a
// slot however a process ends. A slot stays taken as long as any process lives that inherited the
// holder's descriptor. The store does not reach beyond one kernel, and it trusts everybody who may
// write the directory.
package local

import (
	"context"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/procfs"
	"golock/locks"
	"golock/locks/kernel"
)

// Store is a directory of lock files. New does no I/O.
type Store struct {
	path  string // "" stands for the default directory
	roots roots
}

// New makes a store. path is an absolute path, or "" for the default directory, which depends on
// the user but not on the environment.
func New(path string) *Store {
	return &Store{path: path, roots: systemRoots()}
}

// URL implements locks.Store.
func (s *Store) URL() string {
	if s.path == "" {
		return "local"
	}
	return (&url.URL{Scheme: "local", Path: s.path}).String()
}

// Abilities implements locks.Store.
func (s *Store) Abilities() locks.Abilities {
	return locks.Abilities{Queue: s, MaxUnits: maxUnits, EvictsTogether: true, Unprotected: s.unprotected}
}

// Close implements locks.Store. Only leases and admissions have open files.
func (s *Store) Close() error { return nil }

// Join implements locks.Store.
func (s *Store) Join(ctx context.Context, r locks.Request) (locks.Admission, error) {
	adm := &admission{store: s, request: r}
	if err := adm.join(ctx); err != nil {
		return nil, err
	}
	adm.request.AtOnce = false // Wait may wait, and may have to join anew
	return adm, nil
}

// newRecord describes a request of this process.
func (s *Store) newRecord(r locks.Request, c clock) record {
	var command strings.Builder
	for _, word := range r.Command {
		command.WriteString(word + "\x00")
	}
	self := record{index: noIndex, extra: extraOf(&r), command: command.String(), stored: stored{
		id: r.Ref.ID, uid: uint32(s.roots.euid), pid: uint32(os.Getpid()), pidNS: procfs.Namespace("pid"),
		weight: uint32(r.Claim.Weight), max: uint32(r.Claim.Max), priority: int32(r.Claim.Priority),
		since:   time.Now().UnixMicro(),
		replace: uint8(slices.Index(replacements, r.Replace)),
	}}
	if !r.Keeper.HasGolock() {
		self.noGolock = 1
	}
	c.sign(&self)
	self.written = int64(c.now())
	return self
}

// lease is a held slot. The command inherits the lock file. It also inherits the directory, so that
// the directory stays marked as in use. With a hold, the record keeps the slot after the release.
type lease struct {
	*kernel.Lease
	entry *entry
}

// Evicted implements locks.Lease.
func (l *lease) Evicted() error { return l.entry.evicted() }

// Hold implements locks.Lease.
func (l *lease) Hold(ctx context.Context) error {
	e := l.entry
	if e.request.LaterHold() == 0 {
		return nil
	}
	f := e.file
	if f == nil { // it was released
		return locks.ErrLost
	}
	err := f.lockGate(ctx, unix.F_WRLCK, gateLimit)
	if err == errMoved {
		return &locks.PathError{Path: f.path, Err: err}
	}
	if err != nil {
		return err
	}
	defer f.unlockGate()
	tab, err := f.read()
	if err != nil {
		return &locks.PathError{Path: f.path, Err: err}
	}
	isOfEntry := func(r record) bool { return r.id == e.record.id && r.state == stateHolding }
	at := slices.IndexFunc(tab.records, isOfEntry)
	if at < 0 {
		return locks.ErrLost
	}
	r := &tab.records[at]
	if r.evictor != "" {
		return &locks.EvictedError{By: r.evictor}
	}
	r.beginHold(e.clock.now(), e.request.LaterHold())
	return f.writeAt(r.encode(), recordOffset(r.index))
}

// beginHold begins the hold of a record in memory.
func (r *record) beginHold(from locks.Instant, hold time.Duration) {
	r.holdUntil, r.boot = int64(from.Add(hold)), procfs.BootID()
}

// unlockWaitByte wakes the next waiter, which looks at the holders and sleeps on one of them.
func (l *lease) unlockWaitByte() {
	if f := l.entry.file; f != nil {
		_ = setLock(f.fd, unix.F_UNLCK, waitByte(l.entry.record.ticket))
	}
}

// Forget implements locks.Queue.
func (s *Store) Forget(_ context.Context, name string) error {
	d, err := openDirectory(s.path, s.roots, doNotCreate)
	if err != nil {
		return err
	}
	defer d.close()
	base := fileName(name)
	if err := unix.Unlinkat(d.fd, base, 0); d.exists && err != nil && err != unix.ENOENT {
		return &locks.PathError{Op: "remove", Path: d.path + "/" + base, Err: err}
	}
	return nil
}
