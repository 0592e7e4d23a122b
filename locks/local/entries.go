package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/procfs"
	"golock/locks"
)

// A slot with a hold outlasts its holder: the record keeps it although nobody has locked its
// byte, on CLOCK_BOOTTIME and for this boot only (clock.go). An eviction ends the hold.

// isAlive reports whether the process that wrote the record lives. A later process of the
// same number started after that. Where /proc hides the processes of others (hidepid=), or the time
// namespace is not known, any process of that number counts.
func (r *record) isAlive() bool {
	s, err := procfs.ReadStat(int(r.pid))
	if err != nil || r.pid == 0 {
		return r.pid != 0 && unix.Kill(int(r.pid), 0) != unix.ESRCH
	}
	c := readClock()
	return s.Alive() && (!c.reads(r) || c.started(s) <= locks.Instant(r.written))
}

// started is the instant at which a process started.
func (c clock) started(s procfs.Stat) locks.Instant {
	return locks.Instant(s.Start * int64(procfs.Tick)).Add(-c.ahead)
}

// isUnprotected reports whether the record is that of a golock that became a command, which has closed
// the lock file and lives. Only what is certain counts, unlike in isAlive.
func (f *lockFile) isUnprotected(r *record) bool {
	if r.state != stateHolding || r.noGolock == 0 || r.pidNS == 0 || r.pidNS != procfs.Namespace("pid") || f.isLive(r) {
		return false
	}
	s, err := procfs.ReadStat(int(r.pid))
	c := readClock()
	return err == nil && s.Alive() && c.reads(r) && c.started(s) <= locks.Instant(r.written)
}

// isOrphan reports whether the record's golock is gone for certain.
func (r *record) isOrphan() bool {
	return r.pidNS != 0 && r.pidNS == procfs.Namespace("pid") && !r.isAlive()
}

// Entries implements locks.Store. It changes nothing, not even a missing directory.
func (s *Store) Entries(ctx context.Context, name string) ([]locks.Entry, error) {
	return s.list(ctx, ofName(name), (*lockFile).isLive)
}

// unprotected is locks.Abilities.Unprotected: the record stays when its byte is unlocked, until
// somebody else takes a place in the queue.
func (s *Store) unprotected(ctx context.Context, name string) ([]locks.Entry, error) {
	return s.list(ctx, ofName(name), (*lockFile).isUnprotected)
}

// Find implements locks.Queue. A slot whose golock is gone counts as held as long
// as somebody keeps it.
func (s *Store) Find(ctx context.Context, ref locks.Ref) (locks.Entry, error) {
	return ref.In(s.list(ctx, ofKey(ref.Key), (*lockFile).isLive))
}

// maxListed is how many entries a listing has. Others may fill any number of files.
const maxListed = 2 * maxRecords

// list gives the entries of lock files whose records are wanted.
func (s *Store) list(
	ctx context.Context, which func(base string) bool, wanted func(*lockFile, *record) bool,
) (entries []locks.Entry, err error) {
	failed := s.eachTable(ctx, which, unix.O_RDONLY, func(f *lockFile, tab *table) error {
		for i := range tab.records {
			r := &tab.records[i]
			if !wanted(f, r) {
				continue
			}
			if len(entries) == maxListed {
				return &locks.PathError{
					Path: f.path, Err: fmt.Errorf("has more entries: only %d of the directory are listed", maxListed),
					Hint: "name the lock, or golock clean",
				}
			}
			entries = append(entries, f.newEntry(tab.name, r))
		}
		return nil
	})
	locks.Arrange(entries)
	return entries, locks.JoinSome(failed)
}

// ofName picks the lock file of a name, or those of all names ("").
func ofName(name string) func(base string) bool {
	file := fileName(name)
	return func(base string) bool { return name == "" || base == file }
}

// ofKey picks the lock files of a key. It has one; but whoever may write the directory can
// make others.
func ofKey(key locks.Key) func(base string) bool {
	return func(base string) bool { return strings.HasSuffix(base, key.String()+".lock") }
}

// eachTable calls f inside the gate of lock files. Whoever may read a file can keep its gate
// shut, so the failures share one time limit; after it the other files are tried without waiting.
func (s *Store) eachTable(
	ctx context.Context, which func(base string) bool, access int, f func(*lockFile, *table) error,
) (failed []error) {
	d, err := openDirectory(s.path, s.roots, false)
	if err != nil {
		return []error{err}
	}
	defer d.close()
	if !d.exists {
		return nil
	}
	files, err := d.files()
	if err != nil {
		return []error{err}
	}
	limit, begun := gateLimit, time.Now()
	for _, file := range files {
		if time.Since(begun) > readLimit || ctx.Err() != nil {
			return append(failed, &locks.PathError{
				Path: d.path, Err: fmt.Errorf("not all of its files were read in %v", time.Since(begun).Round(time.Second)),
				Hint: "name the lock, or golock clean",
			})
		}
		base := file.Name()
		// Who wants to change them is not given what is no file.
		if !isLockFile(base) || !which(base) || access != unix.O_RDONLY && !file.Type().IsRegular() {
			continue
		}
		began := time.Now()
		if err := d.withTable(ctx, base, access, limit, f); err != nil {
			failed = append(failed, err)
			if limit -= time.Since(began); limit <= 0 {
				limit = notAtAll
			}
		}
	}
	return failed
}

// Bounds for the files of a directory: others may have made any number of them, of any size.
const (
	maxFiles  = 1 << 18
	readLimit = 30 * time.Second // to read them
)

// files lists the directory by name.
func (d *directory) files() ([]os.DirEntry, error) {
	dir, err := os.Open(d.path)
	if err != nil {
		return nil, &locks.PathError{Op: "read directory", Path: d.path, Err: err.(*os.PathError).Err}
	}
	defer dir.Close()
	files, err := dir.ReadDir(maxFiles + 1)
	switch {
	case err != nil && err != io.EOF:
		return nil, &locks.PathError{Op: "read directory", Path: d.path, Err: err}
	case len(files) > maxFiles:
		return nil, &locks.PathError{
			Path: d.path, Err: fmt.Errorf("has more than %d files: golock reads no larger directory", maxFiles),
			Hint: "remove what does not belong there",
		}
	}
	slices.SortFunc(files, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return files, nil
}

// withTable calls f with an empty table if that of the file is another name's, or cannot be read
// and nobody uses it.
func (d *directory) withTable(
	ctx context.Context, base string, access int, limit time.Duration, f func(*lockFile, *table) error,
) error {
	file, err := d.open(base, access)
	if err != nil || file == nil {
		return err
	}
	defer file.close()
	kind := int16(unix.F_WRLCK)
	if access == unix.O_RDONLY {
		kind = unix.F_RDLCK
	}
	err = file.gate(ctx, kind, limit)
	if err == locks.ErrWouldBlock { // the time was spent on others
		err = &locks.PathError{Path: file.path, Err: errors.New("is being changed by somebody else, as others were for long")}
	}
	if err != nil {
		return err
	}
	defer file.openGate()
	tab, err := file.read()
	// Whoever may write the directory can make files of any name, with anything in them.
	foreign := err == nil && (locks.CheckName(tab.name) != nil || fileName(tab.name) != base)
	switch {
	case (err == errCorrupt || err == nil && tab.name == "") && file.isUsed():
		return &locks.PathError{Path: file.path, Err: errDamaged}
	case err == errCorrupt && !file.hasMagic():
		return nil // it is no lock file
	case err == errCorrupt || foreign:
		tab = &table{}
	case err != nil:
		return err
	}
	return f(file, tab)
}

// newEntry describes one live record.
func (f *lockFile) newEntry(name string, r *record) locks.Entry {
	host, _ := os.Hostname()
	e := locks.Entry{
		Name: name, Ref: locks.Ref{Key: locks.KeyOf(name), ID: r.id}, State: locks.Waiting, Claim: r.claim(),
		Host: host, PID: int(r.pid), UID: int(r.uid), Since: time.UnixMicro(r.since), Evicted: r.evictor,
	}
	if age, known := f.momentOfRead().age(r); known {
		e.SetAge(age)
	}
	if r.command != "" {
		e.Command = strings.Split(strings.TrimSuffix(r.command, "\x00"), "\x00") // without a zero the last word was cut
	}
	if r.state == stateHolding {
		e.State, e.Slots, e.Fence = locks.Holding, r.slots, r.fence
		e.Ended, e.Orphaned = r.onlyHold, !r.onlyHold && r.isOrphan()
		if r.holdLeft > 0 {
			e.HeldTill = time.Now().Add(r.holdLeft)
		}
	}
	return e
}

// busy tells who is in the way.
func (p *place) busy(tab *table) *locks.BusyError {
	busy := &locks.BusyError{Name: tab.name}
	for i := range p.view.holders {
		h := &p.view.holders[i]
		busy.Holders = append(busy.Holders, p.file.newEntry(tab.name, h))
	}
	for i := range tab.records {
		r := &tab.records[i]
		if r.state == stateWaiting && r.evictor == "" && p.file.isLive(r) {
			busy.Waiters++
		}
	}
	if p.view.removed {
		busy.Reason = whyRemoved
	}
	return busy
}

var (
	_ locks.Store = (*Store)(nil)
	_ locks.Queue = (*Store)(nil)
)
