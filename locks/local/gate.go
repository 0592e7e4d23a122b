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

// gateWait bounds the wait for the gate behind a process that is stopped inside,
// gateLimit behind one that is only slow. Those in the queue wait without a limit.
const (
	gateWait  = time.Second
	gateLimit = 10 * time.Second
	forever   = time.Duration(0)
	notAtAll  = time.Duration(-1)
)

// gate locks the table, with F_RDLCK to look only. A process is inside for
// microseconds. If one has been stopped there, the error names it. A limit of notAtAll
// gives ErrWouldBlock if somebody is inside.
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
	for before := f.counters(); ; {
		select {
		case err := <-got:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-tick:
		}
		// While others come through the gate, it is only crowded.
		if now := f.counters(); now != before {
			stuck, before = 0, now
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

// counters change with everybody who comes into the queue or out of it.
func (f *lockFile) counters() (text [headerCounters]byte) {
	_, _ = f.readAt(text[:], 0)
	return text
}

// gateHolder looks for the process that is inside the gate. Of all who wait only one does
// that at a time: it is a long search.
func (f *lockFile) gateHolder() (who string, stopped bool) {
	const unknown = "another process"
	if err := setLock(f.fd, unix.F_WRLCK, searchByte); err == unix.EAGAIN || err == unix.EACCES {
		return unknown, false // others fail on a descriptor for reading
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

// hasLock reports whether a process has a description open with such a lock. The kernel
// names no owner of an open file description lock, but lists it with each descriptor. An
// error says that the descriptors cannot be seen.
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
