package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/procfs"
	"golock/locks"
)

// An eviction is a mark in the record. The golock of the entry gets SIGTERM, reads the mark
// and ends its command. Where there is no golock, the processes that keep the slot are ended.

// openToLook opens a lock file by its path, outside the gate.
func openToLook(path string) (*lockFile, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	return &lockFile{fd: fd, path: path}, err
}

// evicted looks for the mark in p's record. It needs no lock: the mark is written before
// the signal is sent, and stays.
func (p *place) evicted() error {
	f, err := openToLook(p.path)
	if err != nil {
		return nil
	}
	defer unix.Close(f.fd)
	found, ok := f.readRecord(p.self.index)
	for tries := 1; !ok && tries < 100; tries++ { // while it is being written
		found, ok = f.readRecord(p.self.index)
	}
	if found.id != p.self.id || found.evictor == "" {
		return nil
	}
	return &locks.EvictedError{By: found.evictor}
}

// makeRoom evicts those whom a newcomer replaces, unless the queue is full without them too:
// that is a *BusyError. They are told later. The caller is inside the gate and has looked.
func (p *place) makeRoom(t *ticket, tab *table) error {
	r := p.request
	if r.MaxQueue == nil && r.Replace == locks.ReplaceNone {
		return nil
	}
	var rivals []locks.Rival
	var records []*record
	waiting := 0
	for i := range tab.records {
		o := &tab.records[i]
		rival := locks.Rival{Claim: o.claim(), Replace: replacements[o.replace], Leaving: o.evictor != ""}
		if o.state == stateWaiting && !rival.Leaving && p.file.isLive(o) {
			rival.Waits = true
			waiting++
		} else if o.state != stateHolding { // look has freed those of the dead
			continue
		}
		rivals, records = append(rivals, rival), append(records, o)
	}
	picked := locks.Replaced(rivals, p.self.claim(), r.Replace)
	for _, i := range picked {
		if rivals[i].Waits {
			waiting--
		}
	}
	if r.MaxQueue != nil && waiting >= *r.MaxQueue {
		busy := p.busy(tab)
		busy.Full = true
		return busy
	}
	by := locks.ReplacedBy(*r)
	for _, i := range picked {
		o := records[i]
		p.file.readCommand(o)
		t.replaced = append(t.replaced, newEntry(tab.name, o))
		v, err := p.file.evict(o, by)
		if err != nil {
			return err
		}
		p.victims = append(p.victims, v)
	}
	return nil
}

// evict marks one live entry, once; what only a hold keeps is free at once. The caller is
// inside the gate, and ends the victim when that is open.
func (f *lockFile) evict(r *record, by string) (*victim, error) {
	if r.onlyHold {
		if err := f.clear(r); err != nil {
			return nil, err
		}
		return &victim{}, nil
	}
	again := r.evictor != ""
	if !again {
		by = strings.ToValidUTF8(by[:min(len(by), maxEvictor)], "") // a letter may have been cut
		r.evictor, r.evictedAt = cmp.Or(by, "somebody"), int64(locks.BootTime())
		f.readCommand(r)
		if err := f.writeAt(r.encode(), recordOffset(r.index)); err != nil {
			return nil, err
		}
	}
	return &victim{record: *r, again: again, file: f.kernelName(), path: f.path}, nil
}

// Evict implements locks.QueueStore.
func (s *Store) Evict(ctx context.Context, ref locks.Ref, by string) error {
	var v *victim
	failed := s.eachTable(ctx, ofKey(ref.Key), unix.O_RDWR, func(f *lockFile, tab *table) (err error) {
		for i := range tab.records {
			if r := &tab.records[i]; r.id == ref.ID && f.isLive(r) {
				v, err = f.evict(r, by)
				return err
			}
		}
		return nil
	})
	if v == nil {
		return cmp.Or(errors.Join(failed...), locks.ErrLost)
	}
	return v.end()
}

// victim is an entry that was evicted and has to end.
type victim struct {
	record record // its index is of no use any more
	again  bool   // it had been evicted before
	file   string // the kernel's name of the lock file
	path   string
}

// Times of those who are ended because no golock is there to do it.
const (
	endWait      = 5 * time.Second       // until those who were killed are gone
	lookInterval = 10 * time.Millisecond // at them
	execGrace    = 10 * time.Second      // from TERM to KILL for a command that a golock has become
)

// end makes the victim end. An error says that it may not.
func (v *victim) end() error {
	r := &v.record
	switch {
	case r.state == stateFree: // it was only a hold
		return nil
	case r.state != stateHolding || r.noGolock == 0 && !r.isOrphan():
		return v.endGolock()
	case r.noGolock != 0 && !v.again:
		return v.endOwners(unix.SIGTERM, 0)
	case r.noGolock != 0 && locks.BootTime().Sub(locks.Instant(r.evictedAt)) < execGrace:
		return nil
	}
	return v.endOwners(unix.SIGKILL, endWait)
}

// owns reports whether a process has the victim's byte locked.
func (v *victim) owns(pid int) (bool, error) {
	at := strconv.FormatInt(v.record.lockByte(), 10)
	return hasLock(pid, func(l procfs.Lock) bool { return !l.Shared && l.File == v.file && l.Start == at })
}

// isLocked reports whether somebody still has the victim's byte.
func (v *victim) isLocked() bool {
	f, err := openToLook(v.path)
	if err != nil {
		return false
	}
	defer unix.Close(f.fd)
	return f.isLocked(v.record.lockByte(), 1)
}

// signal sends a signal to a process if it owns the victim's byte, and continues it if it
// is stopped. It never reaches a later process of the same number. The number in the record
// proves nothing: anybody who shares the directory can write one.
func (v *victim) signal(pid int, sig unix.Signal) (owns bool, err error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	if owns, err = v.owns(pid); !owns {
		return false, err
	}
	if err = unix.PidfdSendSignal(fd, sig, nil, 0); err == nil && sig != unix.SIGKILL {
		if s, _ := procfs.ReadStat(pid); s.Stopped() {
			err = unix.PidfdSendSignal(fd, unix.SIGCONT, nil, 0)
		}
	}
	return true, err
}

// endGolock tells the entry's golock.
func (v *victim) endGolock() error {
	r := &v.record
	if r.pidNS == 0 || r.pidNS != procfs.Namespace("pid") {
		return fmt.Errorf("pid %d cannot be signalled: it runs in another container (pid namespace)", r.pid)
	}
	owns, err := v.signal(int(r.pid), unix.SIGTERM)
	switch {
	case err == nil && owns, errors.Is(err, unix.ESRCH), !owns && !v.isLocked():
		return nil
	case os.IsPermission(err):
		return fmt.Errorf("pid %d cannot be signalled: it belongs to another user", r.pid)
	case err != nil:
		return fmt.Errorf("signalling pid %d: %w", r.pid, err)
	}
	return fmt.Errorf("pid %d is not signalled: %s names it, but it does not have the lock", r.pid, v.path)
}

// endOwners signals every process that has the holder's description open, again and again
// until there is none or wait is over. (Of a killed process the files disappear from /proc
// a little before they are closed.)
func (v *victim) endOwners(sig unix.Signal, wait time.Duration) error {
	seen := false
	for end := time.Now().Add(wait); ; time.Sleep(lookInterval) {
		found := 0
		for _, pid := range procfs.PIDs() {
			owns, err := v.signal(pid, sig)
			if owns && err == unix.EPERM {
				return fmt.Errorf("what keeps the slot cannot be ended: it belongs to another user (%s)", v.path)
			}
			if owns {
				found++
			}
		}
		seen = seen || found > 0
		switch {
		case found > 0 && wait == 0, found == 0 && !v.isLocked():
			return nil
		case found == 0 && (!seen || time.Now().After(end)):
			return fmt.Errorf("what keeps the slot cannot be seen from here: it belongs to another user or container (%s)", v.path)
		case time.Now().After(end):
			return fmt.Errorf("what keeps the slot does not die of KILL (%s)", v.path)
		}
	}
}
