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

// isAlive reports whether the process that wrote the record lives. A process with the same PID that
// started after the record was written is another one. If /proc hides the processes of others
// (hidepid=), or the time namespace is not known, any process with that PID counts.
func (r *record) isAlive() bool {
	s, err := procfs.ReadStat(int(r.pid))
	if err != nil || r.pid == 0 {
		return r.pid != 0 && unix.Kill(int(r.pid), 0) != unix.ESRCH
	}
	c := readClock()
	hasStartedLater := c.canCompare(r) && c.started(s) > locks.Instant(r.written)
	return s.Alive() && !hasStartedLater
}

// started returns the time at which a process started.
func (c clock) started(s procfs.Stat) locks.Instant {
	return locks.Instant(s.Start * int64(procfs.Tick)).Add(-c.ahead)
}

// isUnprotected reports whether the golock of a record has become its command, and that command
// lives but has closed the lock file. In doubt it reports false.
func (f *lockFile) isUnprotected(r *record) bool {
	isCommand := r.state == stateHolding && r.noGolock != 0
	if !isCommand || !r.isOfThisPIDNamespace() || f.isLive(r) {
		return false
	}
	s, err := procfs.ReadStat(int(r.pid))
	if err != nil || !s.Alive() {
		return false
	}
	c := readClock()
	return c.canCompare(r) && c.started(s) <= locks.Instant(r.written)
}

// isOrphan reports whether the golock of a record is gone. In doubt it reports false.
func (r *record) isOrphan() bool { return r.isOfThisPIDNamespace() && !r.isAlive() }

// isOfThisPIDNamespace reports whether the PID in a record means the same process here. It reports
// false if the writer or this process does not know its pid namespace.
func (r *record) isOfThisPIDNamespace() bool {
	return r.pidNS != 0 && r.pidNS == procfs.Namespace("pid")
}

// Entries implements locks.Store. It changes nothing and does not make a missing directory.
func (s *Store) Entries(ctx context.Context, name string) ([]locks.Entry, error) {
	return s.list(ctx, ofName(name), (*lockFile).isLive)
}

// unprotected is locks.Abilities.Unprotected. The record of an entry whose byte was unlocked stays until another
// entry overwrites it. So unprotected finds the commands that have closed the lock file by their records.
func (s *Store) unprotected(ctx context.Context, name string) ([]locks.Entry, error) {
	return s.list(ctx, ofName(name), (*lockFile).isUnprotected)
}

// Find implements locks.Queue. A slot whose golock is gone counts as held as long as any process
// keeps it.
func (s *Store) Find(ctx context.Context, ref locks.Ref) (locks.Entry, error) {
	return ref.In(s.list(ctx, ofKey(ref.Key), (*lockFile).isLive))
}

// maxListed limits the entries of a listing. Other users may fill any number of files.
const maxListed = 2 * maxRecords

// list returns the entries of the selected lock files whose records isWanted accepts.
func (s *Store) list(
	ctx context.Context, isSelected func(base string) bool, isWanted func(*lockFile, *record) bool,
) (entries []locks.Entry, err error) {
	failed := s.eachTable(ctx, isSelected, unix.O_RDONLY, func(f *lockFile, tab *table) error {
		for i := range tab.records {
			r := &tab.records[i]
			if !isWanted(f, r) {
				continue
			}
			if len(entries) == maxListed {
				return &locks.PathError{
					Path: f.path, Err: fmt.Errorf("has more entries: only %d of the directory are listed", maxListed),
					Hint: "name the lock, or golock clean",
				}
			}
			entries = append(entries, f.describe(tab.name, r))
		}
		return nil
	})
	locks.Arrange(entries)
	return entries, locks.JoinSome(failed)
}

// ofName selects the lock file of a name, or all lock files if the name is "".
func ofName(name string) func(base string) bool {
	file := fileName(name)
	return func(base string) bool { return name == "" || base == file }
}

// ofKey selects the lock files of a key. A key has one file, but any process that may write the
// directory can make others.
func ofKey(key locks.Key) func(base string) bool {
	return func(base string) bool { return strings.HasSuffix(base, key.String()+".lock") }
}

// eachTable locks the gate of each selected lock file and calls f with its table. Any process that
// may read a file can keep its gate locked. So all waits share one time limit, gateLimit. After that
// eachTable tries the remaining files without waiting.
func (s *Store) eachTable(
	ctx context.Context, isSelected func(base string) bool, access int, f func(*lockFile, *table) error,
) (failed []error) {
	d, err := openDirectory(s.path, s.roots, doNotCreate)
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
	remaining := gateLimit
	begin := time.Now()
	for _, file := range files {
		if time.Since(begin) > readLimit || ctx.Err() != nil {
			return append(failed, &locks.PathError{
				Path: d.path, Err: fmt.Errorf("not all of its files were read in %v", time.Since(begin).Round(time.Second)),
				Hint: "name the lock, or golock clean",
			})
		}
		base := file.Name()
		if !isLockFile(base) || !isSelected(base) {
			continue
		}
		// A caller that changes tables gets only regular files. A caller that only reads gets an error for
		// any other file.
		isForChange := access != unix.O_RDONLY
		if isForChange && !file.Type().IsRegular() {
			continue
		}
		if err := d.withTable(ctx, base, access, &remaining, f); err != nil {
			failed = append(failed, err)
		}
	}
	return failed
}

// These constants limit what golock reads in a directory: others may have made any number of files, of
// any size.
const (
	maxFiles  = 1 << 18
	readLimit = 30 * time.Second // limits the time to read all files
)

// files lists the directory, sorted by name.
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

// withTable locks the gate of a lock file and calls f with its table. It does nothing if the file is
// missing, is removed meanwhile, or is not a lock file. f gets an empty table if the name in the table
// does not belong to a file of this name, or if the table cannot be read and no entry uses it. remaining is that
// of lockGateWithin.
func (d *directory) withTable(
	ctx context.Context, base string, access int, remaining *time.Duration, f func(*lockFile, *table) error,
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
	err = file.lockGateWithin(ctx, kind, remaining)
	if err == errMoved {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.unlockGate()
	tab, err := file.read()
	isCorrupt := err == errCorrupt
	isNew := err == nil && tab.name == ""
	// A process that may write the directory can make files of any name with any content.
	isForeign := err == nil && (locks.CheckName(tab.name) != nil || fileName(tab.name) != base)
	switch {
	case (isCorrupt || isNew) && file.isUsed():
		return &locks.PathError{Path: file.path, Err: errDamaged}
	case isCorrupt && !file.hasMagic():
		return nil // the file is not a lock file
	case isCorrupt || isForeign:
		tab = &table{}
	case err != nil:
		return err
	}
	return f(file, tab)
}

// lockGateWithin locks the gate. It waits for at most remaining, and subtracts the time of the wait from it. If no
// time remains, remaining becomes notAtAll.
func (f *lockFile) lockGateWithin(ctx context.Context, kind int16, remaining *time.Duration) error {
	begin := time.Now()
	err := f.lockGate(ctx, kind, *remaining)
	*remaining -= time.Since(begin)
	if *remaining <= 0 {
		*remaining = notAtAll
	}
	if err == locks.ErrWouldBlock {
		return &locks.PathError{
			Path: f.path,
			Err:  errors.New("is being changed by another process, and the time limit was used up on other lock files"),
		}
	}
	return err
}

// describe makes the public entry of a live record.
func (f *lockFile) describe(name string, r *record) locks.Entry {
	host, _ := os.Hostname()
	e := locks.Entry{
		Name: name, Ref: locks.Ref{Key: locks.KeyOf(name), ID: r.id}, State: locks.Waiting, Claim: r.claim(),
		Host: host, PID: int(r.pid), UID: int(r.uid), Since: time.UnixMicro(r.since), Evicted: r.evictor, Note: r.word(noteWord), Next: r.word(nextWord),
	}
	if age, known := f.momentOfRead().age(r); known {
		e.SetAge(age)
	}
	if r.command != "" {
		e.Command = strings.Split(strings.TrimSuffix(r.command, "\x00"), "\x00")
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

// busy makes the error that names the holders and counts the waiters. tryTake has found the holders.
func (e *entry) busy(tab *table) *locks.BusyError {
	busy := &locks.BusyError{Name: tab.name, Reason: e.obstacles.reason()}
	for i := range e.obstacles.holders {
		h := &e.obstacles.holders[i]
		busy.Holders = append(busy.Holders, e.file.describe(tab.name, h))
	}
	for i := range tab.records {
		r := &tab.records[i]
		if r.state == stateWaiting && r.evictor == "" && e.file.isLive(r) {
			busy.Waiters++
		}
	}
	return busy
}

var (
	_ locks.Store = (*Store)(nil)
	_ locks.Queue = (*Store)(nil)
)
