package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/pidfd"
	"golock/internal/procfs"
	"golock/locks"
)

// An eviction is a mark in the record. The golock of the entry gets SIGTERM, reads the mark, and
// ends its command. If that golock is gone, the processes that keep the slot are ended.

// evicted returns an *EvictedError if the record of the entry is marked. It needs no lock, because
// the evictor writes the mark before it sends the signal, and the mark stays. The entry may be closed.
func (e *entry) evicted() error {
	fd, err := unix.Open(e.path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	var text [recordSize]byte
	for range 100 { // another process may be writing the record
		var r record
		n, _ := (&lockFile{fd: fd}).readAt(text[:], recordOffset(e.record.index))
		if n < recordSize || text[recordState] == stateFree || r.decode(text[:]) != nil {
			continue
		}
		if r.id == e.record.id && r.evictor != "" {
			return &locks.EvictedError{By: r.evictor}
		}
		return nil
	}
	return nil
}

// makeRoom evicts the entries that a newcomer replaces. If the queue would still be full without
// them, it evicts none and returns a *BusyError. The victims get their signals when the gate is
// unlocked. The caller has locked the gate and called tryTake, which frees records of dead holders.
func (e *entry) makeRoom(adm *admission, tab *table) error {
	r := e.request
	if r.MaxQueue == nil && r.Replace == locks.ReplaceNone {
		return nil
	}
	rivals := make([]locks.Rival, len(tab.records))
	waiting := 0
	for i := range tab.records {
		o := &tab.records[i]
		waits := o.state == stateWaiting && o.evictor == "" && e.file.isLive(o)
		if waits {
			waiting++
		}
		holds := o.state == stateHolding && o.evictor == ""
		rivals[i] = locks.Rival{Claim: o.claim(), IsWaiter: waits, Replace: replacements[o.replace], Leaving: !waits && !holds}
	}
	picked := locks.Replaced(rivals, e.record.claim(), r.Replace)
	for _, i := range picked {
		if rivals[i].IsWaiter {
			waiting--
		}
	}
	if r.MaxQueue != nil && waiting >= *r.MaxQueue {
		busy := e.busy(tab)
		busy.Full = true
		return busy
	}
	by := locks.ReplacedBy(*r)
	for _, i := range picked {
		o := &tab.records[i]
		adm.replaced = append(adm.replaced, e.file.describe(tab.name, o))
		v, err := e.file.evict(o, by)
		if err != nil {
			return err
		}
		e.victims = append(e.victims, v)
	}
	return nil
}

// evict marks a live entry, unless an earlier eviction has marked it. A slot that only a hold keeps
// is free at once. The caller has locked the gate, and ends the victim after it has unlocked it.
func (f *lockFile) evict(r *record, by string) (*victim, error) {
	if r.onlyHold {
		if err := f.clear(r); err != nil {
			return nil, err
		}
		return &victim{}, nil
	}
	wasMarked := r.evictor != ""
	if !wasMarked {
		by = strings.ToValidUTF8(by[:min(len(by), maxEvictor)], "") // the cut may have split a character
		if by == "" {
			by = "somebody"
		}
		r.evictor, r.evictedAt = by, int64(readClock().now())
		if err := f.writeAt(r.encode(), recordOffset(r.index)); err != nil {
			return nil, err
		}
	}
	f.users.Add(1)
	return &victim{record: *r, wasMarked: wasMarked, file: f, kernelName: f.kernelName()}, nil
}

// Evict implements locks.Queue. It reads the table once, because a file may have thousands of
// entries.
func (s *Store) Evict(ctx context.Context, refs []locks.Ref, by string) []error {
	if len(refs) == 0 {
		return nil
	}
	results := make([]error, len(refs))
	victims := make([]*victim, len(refs))
	indexOf := map[locks.ID]int{}
	for i, ref := range refs {
		indexOf[ref.ID] = i
	}
	failed := s.eachTable(ctx, ofKey(refs[0].Key), unix.O_RDWR, func(f *lockFile, tab *table) error {
		for n := range tab.records {
			r := &tab.records[n]
			i, isVictim := indexOf[r.id]
			if !isVictim || victims[i] != nil || !f.isLive(r) {
				continue
			}
			v, err := f.evict(r, by)
			if err != nil {
				return err
			}
			victims[i] = v
		}
		return nil
	})
	notFound := errors.Join(failed...)
	if notFound == nil {
		notFound = locks.ErrLost
	}
	for i, v := range victims {
		if v == nil {
			results[i] = notFound
		} else {
			results[i] = v.end()
		}
	}
	return results
}

// victim is an entry that was evicted and must end.
type victim struct {
	record               // its index is no longer valid
	wasMarked  bool      // an earlier eviction had marked it
	file       *lockFile // nil if only a hold kept the slot
	kernelName string    // the name of the file in the kernel's lists
}

// execGrace is the time between TERM and KILL for a golock that has become its command.
const execGrace = 10 * time.Second

// end makes the victim end. The gate must be unlocked. An error says that the victim may go on.
//
// A golock ends its command itself. The command of a golock that is gone gets KILL. A golock that has
// become its command gets TERM at the first eviction, and KILL at one that comes after execGrace.
func (v *victim) end() error {
	if v.file == nil {
		return nil
	}
	defer v.file.close()
	isCommand := v.noGolock != 0
	switch {
	case v.state != stateHolding, !isCommand && !v.isOrphan():
		return v.endGolock()
	case isCommand && !v.wasMarked:
		return v.endOwners(unix.SIGTERM)
	case isCommand && readClock().now().Sub(locks.Instant(v.evictedAt)) < execGrace:
		return nil
	}
	return v.endOwners(unix.SIGKILL)
}

// owns reports whether a process has the byte of the victim locked.
func (v *victim) owns(pid int) (bool, error) {
	at := strconv.FormatInt(v.lockByte(), 10)
	return hasLock(pid, func(l procfs.Lock) bool { return !l.Shared && l.File == v.kernelName && l.Start == at })
}

func (v *victim) isLocked() bool { return v.file.isLocked(v.lockByte(), 1) }

// signal sends a signal to a process if that process has the byte of the victim locked, and
// continues the process if it is stopped. It reports whether the process has the byte locked. The
// signal never reaches a later process with the same PID. The PID in the record proves nothing:
// anybody who shares the directory can write one.
func (v *victim) signal(pid int, sig unix.Signal) (owns bool, err error) {
	process, err := pidfd.Open(pid)
	if err != nil {
		return false, err
	}
	defer process.Close()
	owns, err = v.owns(pid)
	if !owns {
		return false, err
	}
	err = process.Signal(sig)
	if err != nil || sig == unix.SIGKILL {
		return true, err
	}
	if s, _ := procfs.ReadStat(pid); s.Stopped() {
		err = process.Signal(unix.SIGCONT)
	}
	return true, err
}

// endGolock sends TERM to the golock of the entry.
func (v *victim) endGolock() error {
	namespace := procfs.Namespace("pid")
	if namespace == 0 {
		return fmt.Errorf("pid %d cannot be signalled: /proc, which tells whether it is the process of that lock, is not mounted here", v.pid)
	}
	if v.pidNS != namespace {
		return fmt.Errorf("pid %d cannot be signalled: it runs in another container (pid namespace)", v.pid)
	}
	owns, err := v.signal(int(v.pid), unix.SIGTERM)
	switch {
	case err == nil && owns, errors.Is(err, unix.ESRCH), !owns && !v.isLocked():
		return nil
	case os.IsPermission(err):
		return fmt.Errorf("pid %d cannot be signalled: it belongs to another user", v.pid)
	case err != nil:
		return fmt.Errorf("signalling pid %d: %w", v.pid, err)
	}
	return fmt.Errorf("pid %d is not signalled: %s names it, but it does not have the lock", v.pid, v.file.path)
}

// endOwners signals every process that has the open file description of the holder. With KILL it
// repeats the search until it finds no other one: a process may start one just before it is killed.
func (v *victim) endOwners(sig unix.Signal) error {
	signalled := map[int]bool{}
	for range 100 {
		before := len(signalled)
		for _, pid := range procfs.PIDs() {
			if signalled[pid] {
				continue
			}
			owns, err := v.signal(pid, sig)
			if owns && err == unix.EPERM {
				return fmt.Errorf("what keeps the slot cannot be ended: it belongs to another user (%s)", v.file.path)
			}
			if owns {
				signalled[pid] = true
			}
		}
		if len(signalled) == before || sig != unix.SIGKILL {
			break
		}
	}
	if len(signalled) == 0 && v.isLocked() {
		return fmt.Errorf("what keeps the slot cannot be seen from here: it belongs to another user or container (%s)", v.file.path)
	}
	return nil
}
