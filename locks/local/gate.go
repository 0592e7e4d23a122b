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

// gateWait limits the wait for the gate if a stopped process is inside, gateLimit if a slow process
// is inside. Entries of the queue wait without a limit.
const (
	gateWait  = time.Second
	gateLimit = 10 * time.Second
	forever   = time.Duration(0)
	notAtAll  = time.Duration(-1)
)

// gate locks the table; with F_RDLCK only to read it. A process is inside for microseconds. With a
// limit, gate fails if a process is stopped inside, and names it if it can be found. With a limit of
// notAtAll, gate returns ErrWouldBlock if a process is inside.
func (f *lockFile) gate(ctx context.Context, kind int16, limit time.Duration) error {
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
	got, gone := make(chan error), make(chan struct{})
	defer close(gone)
	f.lockLater(kind, gateByte, func(err error) {
		select {
		case got <- err:
		case <-gone:
			if err == nil {
				f.openGate()
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
		// If other processes get through the gate, it is only crowded.
		counters := f.counters()
		if counters != lastCounters {
			stuck, lastCounters = 0, counters
			continue
		}
		stuck += gateWait
		who, stopped := f.gateHolder()
		if stopped {
			return &locks.PathError{Path: f.path, Err: fmt.Errorf("process %s is stopped while it changes this file; continue or end it", who)}
		}
		if stuck >= limit {
			return &locks.PathError{Path: f.path, Err: fmt.Errorf("still being changed by %s after %v", who, stuck)}
		}
	}
}

func (f *lockFile) openGate() { _ = setLock(f.fd, unix.F_UNLCK, gateByte) }

// counters returns the header fields that change whenever an entry joins or leaves the queue.
func (f *lockFile) counters() (text [headerCounters]byte) {
	_, _ = f.readAt(text[:], 0)
	return text
}

// gateHolder searches for the process that is inside the gate. The search is long, so only one of
// the waiting processes does it at a time.
func (f *lockFile) gateHolder() (who string, stopped bool) {
	const unknown = "another process"
	if err := setLock(f.fd, unix.F_WRLCK, searchByte); err == unix.EAGAIN || err == unix.EACCES {
		return unknown, false // a lock for writing fails on a descriptor that is open only for reading
	}
	defer func() { _ = setLock(f.fd, unix.F_UNLCK, searchByte) }()
	inode, gate := ":"+strconv.FormatUint(f.stat.Ino, 10), strconv.FormatInt(gateByte, 10)
	for _, pid := range procfs.PIDs() {
		has, _ := hasLock(pid, func(l procfs.Lock) bool { return l.Start == gate && strings.HasSuffix(l.File, inode) })
		if has {
			s, _ := procfs.ReadStat(pid)
			return strconv.Itoa(pid), s.Stopped()
		}
	}
	return unknown, false
}

// hasLock reports whether a process has a description open that has this lock. The kernel shows no
// owner of an open file description lock, but lists the lock with each descriptor. An error says
// that the descriptors cannot be read.
func hasLock(pid int, is func(procfs.Lock) bool) (bool, error) {
	fds, err := procfs.FDs(pid)
	for _, fd := range fds {
		for _, l := range procfs.FDLocks(pid, fd) {
			if l.Kind == "OFDLCK" && !l.Waiting && is(l) {
				return true, nil
			}
		}
	}
	return false, err
}
