package local

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/procfs"
	"golock/locks"
)

// The gate is a lock that a process has while it reads or changes the table, for microseconds.
// gateWait limits the wait for a stopped process that has the gate locked, gateLimit that for a slow
// one.
const (
	gateWait  = time.Second
	gateLimit = 10 * time.Second

	// These limits have a special meaning. A waiter waits forever.
	forever  = time.Duration(0)
	notAtAll = time.Duration(-1)
)

// lockGate locks the gate; with F_RDLCK only to read the table. Unless limit is forever, it fails if
// the process that has the gate locked is stopped, or if the table does not change until limit is over. The
// error names that process if it can be found. It returns errMoved if the file was removed: then others leave
// the file without a change, and nobody needs its gate. With notAtAll it returns ErrWouldBlock instead
// of waiting.
func (f *lockFile) lockGate(ctx context.Context, kind int16, limit time.Duration) error {
	err := setLock(f.fd, kind, gateByte)
	switch {
	case err == nil:
		return nil
	case err != unix.EAGAIN && err != unix.EACCES:
		return f.failed("lock", err)
	case ctx.Err() != nil:
		return ctx.Err()
	case limit == notAtAll:
		return locks.ErrWouldBlock
	}
	return f.awaitGate(ctx, kind, limit)
}

// awaitGate does what lockGate says while another process has the gate locked.
func (f *lockFile) awaitGate(ctx context.Context, kind int16, limit time.Duration) error {
	got, hasReturned := make(chan error), make(chan struct{})
	defer close(hasReturned)
	f.lockLater(kind, gateByte, func(err error) {
		select {
		case got <- err:
		case <-hasReturned:
			if err == nil {
				f.unlockGate()
			}
		}
	})
	var tick <-chan time.Time
	if limit != forever {
		tick = time.Tick(gateWait)
	}
	stuck := time.Duration(0)
	lastCounters := f.counters()
	for {
		select {
		case err := <-got:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-tick:
		}
		if err := f.checkPath(); err != nil {
			return err
		}
		counters := f.counters()
		if counters != lastCounters { // other processes change the table, so none is stuck
			stuck, lastCounters = 0, counters
			continue
		}
		stuck += gateWait
		who, isStopped := f.gateHolder()
		if isStopped {
			return &locks.PathError{Path: f.path, Err: fmt.Errorf("process %s is stopped while it changes this file; continue or end it", who)}
		}
		if stuck >= limit {
			return &locks.PathError{Path: f.path, Err: fmt.Errorf("still being changed by %s after %v", who, stuck)}
		}
	}
}

func (f *lockFile) unlockGate() { _ = setLock(f.fd, unix.F_UNLCK, gateByte) }

// counters returns the header fields that change whenever an entry joins or leaves the queue.
func (f *lockFile) counters() (text [headerCounters]byte) {
	_, _ = f.readAt(text[:], 0)
	return text
}

// gateHolder searches for the process that has the gate locked, and reports whether it is stopped.
// The search is long, so only one of the waiting processes does it at a time.
func (f *lockFile) gateHolder() (who string, isStopped bool) {
	const unknown = "another process"
	err := setLock(f.fd, unix.F_WRLCK, searchByte)
	isOtherSearching := err == unix.EAGAIN || err == unix.EACCES
	if isOtherSearching {
		return unknown, false
	}
	// Any other error, as of a file that is open only for reading, does not stop the search.
	defer func() { _ = setLock(f.fd, unix.F_UNLCK, searchByte) }()
	inode, gate := ":"+strconv.FormatUint(f.stat.Ino, 10), strconv.FormatInt(gateByte, 10)
	for _, pid := range procfs.PIDs() {
		isInside, _ := hasLock(pid, func(l procfs.Lock) bool { return l.Start == gate && strings.HasSuffix(l.File, inode) })
		if isInside {
			s, _ := procfs.ReadStat(pid)
			return strconv.Itoa(pid), s.Stopped()
		}
	}
	return unknown, false
}

// hasLock reports whether a process has a description open with a lock that isWanted accepts. The
// kernel shows no owner of an open file description lock, but lists the lock with each descriptor.
// An error says that the descriptors cannot be read.
func hasLock(pid int, isWanted func(procfs.Lock) bool) (bool, error) {
	fds, err := procfs.FDs(pid)
	for _, fd := range fds {
		for _, l := range procfs.FDLocks(pid, fd) {
			if l.Kind == "OFDLCK" && !l.Waiting && isWanted(l) {
				return true, nil
			}
		}
	}
	return false, err
}
