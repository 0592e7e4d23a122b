package local

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// An eviction is a mark in the record. Its golock is told by SIGTERM, looks
// whether it has been marked, and ends what it does. Where no golock is there
// to be told, those who keep the slot are ended instead.

// whereabouts is where an entry has its record.
type whereabouts struct {
	path  string
	index int
	id    [16]byte
}

// evicted reads the mark. It takes no lock: what it looks for is there before
// anybody is told to look, and does not go away.
func (w *whereabouts) evicted() error {
	fd, err := unix.Open(w.path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	b := make([]byte, recordSize)
	for range 100 { // a record that is being written cannot be read
		var r record
		n, err := preadFull(fd, b, recordOffset(w.index))
		switch {
		case err != nil || n < recordSize || b[recordState] == stateFree:
			return nil
		case r.decode(b) != nil:
			continue
		case r.id == w.id && r.evictor != "":
			return &locks.EvictedError{By: r.evictor}
		}
		return nil
	}
	return nil
}

// markIn is who has told r to go, by the table; "" if nobody has.
func (r *record) markIn(tab *table) string {
	for i := range tab.records {
		if o := &tab.records[i]; o.index == r.index && o.id == r.id {
			return o.evictor
		}
	}
	return ""
}

// mark writes who tells an entry to go, the first time. The caller is inside
// the gate.
func (f *lockFile) mark(r *record, by string) error {
	if r.evictor != "" {
		return nil
	}
	b := make([]byte, recordSize)
	if _, err := f.readAt(b, recordOffset(r.index)); err != nil {
		return err
	}
	whole := record{index: r.index}
	if whole.decode(b) != nil {
		return errCorrupt
	}
	r.evictor, r.evicted = cut(by, maxEvictor), int64(locks.BootTime())
	if r.evictor == "" {
		r.evictor = "somebody"
	}
	whole.evictor, whole.evicted = r.evictor, r.evicted
	return f.write(whole.encode(), recordOffset(r.index))
}

// cut shortens a text to so many bytes.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}

// makeRoom evicts those whom a newcomer replaces, who are told later, unless
// the queue is full also without them. The caller is inside the gate and has
// looked.
func (p *place) makeRoom(t *ticket, tab *table) (full bool, err error) {
	r := t.request
	if r.MaxQueue == nil && r.Replace == locks.ReplaceNone {
		return false, nil
	}
	var rivals []locks.Rival
	var records []*record
	waiting := 0
	for i := range tab.records {
		o := &tab.records[i]
		rival := locks.Rival{Claim: o.claim, State: locks.Holding, Replace: o.replace, Leaving: o.evictor != ""}
		switch o.state {
		case stateHolding: // the dead are none any more
		case stateWaiting:
			live, err := writeLocked(p.table.fd, waitByte(o.claim.Ticket), 1)
			if err != nil {
				return false, p.table.lockError(err)
			}
			if !live || rival.Leaving {
				continue
			}
			rival.State = locks.Waiting
			waiting++
		default:
			continue
		}
		rivals, records = append(rivals, rival), append(records, o)
	}
	picked := locks.Replaced(rivals, p.self.claim, r.Replace)
	for _, i := range picked {
		if rivals[i].State == locks.Waiting {
			waiting--
		}
	}
	if r.MaxQueue != nil && waiting >= *r.MaxQueue {
		return true, nil
	}
	by := locks.ReplacedBy(r)
	for _, i := range picked {
		o := records[i]
		if o.words, err = p.table.readCommand(o); err != nil {
			return false, err
		}
		t.replaced = append(t.replaced, t.store.entry(tab.name, o))
		v, err := p.table.evict(tab, o, by)
		if err != nil {
			return false, err
		}
		p.victims = append(p.victims, v)
	}
	return false, nil
}

// evict marks one live entry; what no process holds is free at once. The
// caller is inside the gate, and tells the victim when that is open.
func (f *lockFile) evict(tab *table, r *record, by string) (victim, error) {
	if r.ended {
		return victim{}, f.vacate(tab, r)
	}
	again := r.evictor != ""
	if err := f.mark(r, by); err != nil {
		return victim{}, err
	}
	return victim{
		record: *r, again: again, alone: r.state == stateHolding && (r.bare || r.isOrphan()), file: f.kernelName(), path: f.path,
	}, nil
}

// isOrphan reports whether the record's golock is gone for certain.
func (r *record) isOrphan() bool { return r.pidNS != 0 && r.pidNS == pidNamespace() && !r.alive() }

// Evict implements locks.Evicter.
func (s *Store) Evict(ctx context.Context, ref locks.Ref, by string) error {
	v, err := s.evict(ctx, ref, by)
	if err != nil {
		return err
	}
	return v.tell()
}

func (s *Store) evict(ctx context.Context, ref locks.Ref, by string) (victim, error) {
	d, err := openDirectory(s.path, s.roots, false)
	if err != nil || d.readOnly {
		return victim{}, orLost(err)
	}
	defer unix.Close(d.fd)
	files, err := d.ofKey(ref.Key)
	if err != nil {
		return victim{}, err
	}
	var failed error
	for _, base := range files {
		v, err := d.evict(ctx, base, ref, by)
		if err == nil {
			return v, nil
		}
		if err != locks.ErrLost {
			failed = err
		}
	}
	return victim{}, orLost(failed)
}

func (d *directory) evict(ctx context.Context, base string, ref locks.Ref, by string) (victim, error) {
	f, err := d.open(base, unix.O_RDWR)
	if err != nil || f == nil {
		return victim{}, orLost(err)
	}
	defer f.close()
	if err := f.gate(ctx, unix.F_WRLCK, gateLimit); err != nil {
		return victim{}, err
	}
	defer f.openGate()
	tab, err := f.read()
	if err == errCorrupt {
		err = &Error{Path: f.path, Err: errDamaged}
	}
	if err != nil {
		return victim{}, err
	}
	if !tab.belongs(base) {
		return victim{}, locks.ErrLost
	}
	for i := range tab.records {
		r := &tab.records[i]
		if r.id != ref.ID {
			continue
		}
		live, err := writeLocked(f.fd, r.lockByte(), 1)
		if err != nil {
			return victim{}, f.lockError(err)
		}
		if r.ended = !live && r.stays(); live || r.ended {
			return f.evict(tab, r, by)
		}
	}
	return victim{}, locks.ErrLost
}

func orLost(err error) error {
	if err != nil {
		return err
	}
	return locks.ErrLost
}

// ofKey are the files that are named like the lock file of the name with that
// hash. There is one; but whoever may write the directory can make others.
func (d *directory) ofKey(key locks.Key) (bases []string, err error) {
	files, err := os.ReadDir(d.path)
	if err != nil {
		return nil, &Error{Op: "read directory", Path: d.path, Err: err.(*os.PathError).Err}
	}
	for _, f := range files {
		if isLockFile(f.Name()) && strings.HasSuffix(f.Name(), "."+key.String()+".lock") {
			bases = append(bases, f.Name())
		}
	}
	return bases, nil
}

// victim is an entry that was evicted and has to be told.
type victim struct {
	record record // its index is of no use any more
	again  bool   // it had been evicted before
	alone  bool   // no golock is there to be told
	file   string // the kernel's name of the lock file
	path   string
}

// at is the byte that the victim has locked, as the kernel's lists have it.
func (v victim) at() string { return strconv.FormatInt(v.record.lockByte(), 10) }

// Times of those who are ended because no golock is there to do it.
const (
	endPatience = 2 * time.Second  // until those who were killed are gone
	bareGrace   = 10 * time.Second // from TERM to KILL for a command that a golock has become
)

// tell sees to it that the victim ends. An error says that it may not.
func (v victim) tell() error {
	r := &v.record
	switch {
	case r.state == stateFree || r.ended:
		return nil
	case !v.alone:
		return v.signal(unix.SIGTERM)
	case r.bare && !v.again:
		return v.endKeepers(unix.SIGTERM, 0)
	case r.bare && locks.BootTime().Sub(locks.Instant(r.evicted)) < bareGrace:
		return nil
	}
	return v.endKeepers(unix.SIGKILL, endPatience)
}

// signal sends the entry's golock a signal, and lets it go on if it is stopped.
// It never reaches a later process of the same number, nor one that is no
// golock of this lock: what a record says is anybody's to write who shares the
// directory, so the kernel is asked whether that process has locked the byte.
func (v victim) signal(sig unix.Signal) error {
	r := &v.record
	if r.pidNS == 0 || r.pidNS != pidNamespace() {
		return fmt.Errorf("pid %d cannot be told to go: it runs in another container (pid namespace)", r.pid)
	}
	pid := strconv.Itoa(r.pid)
	fd, err := unix.PidfdOpen(r.pid, 0)
	if err == unix.ESRCH || (err == nil && !r.alive()) {
		if err == nil {
			unix.Close(fd)
		}
		return nil // it has just ended, and what it had with it
	}
	if err != nil {
		return fmt.Errorf("pidfd_open of pid %d: %w", r.pid, err)
	}
	defer unix.Close(fd)
	switch has, err := keeps(r.pid, v.file, v.at()); {
	case has:
	case !v.isLocked():
		return nil // it has just let go
	case err != nil:
		return fmt.Errorf("pid %d cannot be told to go: it belongs to another user", r.pid)
	default:
		return fmt.Errorf("pid %d is not told to go: %s names it, but it does not have the lock", r.pid, v.path)
	}
	if err = unix.PidfdSendSignal(fd, sig, nil, 0); err == nil {
		if state, _ := processState(pid); state == 'T' {
			err = unix.PidfdSendSignal(fd, unix.SIGCONT, nil, 0)
		}
	}
	if err == unix.EPERM {
		return fmt.Errorf("pid %d cannot be told to go: it belongs to another user", r.pid)
	}
	if err != nil && err != unix.ESRCH {
		return fmt.Errorf("telling pid %d to go: %w", r.pid, err)
	}
	return nil
}

// endKeepers sends a signal to every process that has the holder's description
// open. With a patience it does so until there is none.
func (v victim) endKeepers(sig unix.Signal, patience time.Duration) error {
	at := v.at()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		found, refused := 0, 0
		for _, pid := range keepers(v.file, at) {
			found++
			if err := signalKeeper(pid, v.file, at, sig); err == unix.EPERM {
				refused++
			}
		}
		switch {
		case refused > 0:
			return fmt.Errorf("what keeps the slot cannot be ended: it belongs to another user (%s)", v.path)
		case found == 0 && v.isLocked():
			return fmt.Errorf("what keeps the slot cannot be seen from here: it belongs to another user or container (%s)", v.path)
		case found == 0 || patience == 0:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("what keeps the slot does not die of KILL (%s)", v.path)
		}
	}
}

// isLocked reports whether somebody still has the victim's byte.
func (v victim) isLocked() bool {
	fd, err := unix.Open(v.path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	locked, err := writeLocked(fd, v.record.lockByte(), 1)
	return locked && err == nil
}

// keepers are the processes that have a description open on which that byte of
// the file is write-locked. The kernel lists the locks of a description with
// each descriptor (proc(5), /proc/PID/fdinfo).
func keepers(file, at string) []int {
	var pids []int
	procs, _ := os.ReadDir("/proc")
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		if has, _ := keeps(pid, file, at); has {
			pids = append(pids, pid)
		}
	}
	return pids
}

// keeps reports whether a process has such a description open; an error means
// that it cannot be seen.
func keeps(pid int, file, at string) (bool, error) {
	dir := "/proc/" + strconv.Itoa(pid) + "/fdinfo/"
	infos, err := os.ReadDir(dir)
	for _, info := range infos {
		text, _ := os.ReadFile(dir + info.Name())
		for line := range strings.Lines(string(text)) {
			line, ok := strings.CutPrefix(line, "lock:\t")
			if !ok || !strings.Contains(line, " WRITE ") {
				continue
			}
			if inode, start := lockLine(line); inode == file && start == at {
				return true, nil
			}
		}
	}
	return false, err
}

// signalKeeper signals that very process, if it still keeps the slot.
func signalKeeper(pid int, file, at string, sig unix.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if has, _ := keeps(pid, file, at); !has {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil || sig == unix.SIGKILL {
		return err
	}
	return unix.PidfdSendSignal(fd, unix.SIGCONT, nil, 0)
}

// A Store can be asked to evict.
var _ locks.Evicter = (*Store)(nil)
