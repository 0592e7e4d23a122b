package local

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// lockFile is one open description of a name's lock file. Locks on it are
// seen by every other description, also of the same process.
type lockFile struct {
	fd    int
	users atomic.Int32 // its owner, and each goroutine that sleeps in the kernel on a lock of it
	stat  unix.Stat_t  // as of the last gate
	path  string       // for messages
	last  table        // what the last read found; its memory serves the next
	text  []byte       // room to read
}

// umask is the process's own, and there is only one.
var umask sync.Mutex

// fileName is the name of a lock's file: a readable beginning for the people
// who look into the directory, and a hash, which alone decides.
func fileName(name string) string {
	const keep = 60
	readable := make([]byte, 0, keep+1)
	for i := 0; i < len(name) && len(readable) < keep; i++ {
		c := name[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-':
		case c == '.' && len(readable) > 0:
		default:
			c = '_'
		}
		readable = append(readable, c)
	}
	return string(readable) + "." + locks.KeyOf(name).String() + ".lock"
}

// belongs reports whether a table is that of the lock that the file's name
// stands for. Whoever may write the directory can make files of any name, with
// anything in them.
func (t *table) belongs(base string) bool {
	return locks.CheckName(t.name) == nil && fileName(t.name) == base
}

// isLockFile reports whether a directory entry is named like a lock file.
func isLockFile(entry string) bool {
	base, ok := strings.CutSuffix(entry, ".lock")
	if !ok || len(base) < 33 || base[len(base)-33] != '.' {
		return false
	}
	_, err := hex.DecodeString(base[len(base)-32:])
	return err == nil
}

// openFile opens the lock file of a name for use, and makes it if there is
// none. In a directory that has been removed none can be made: errMoved.
func (d *directory) openFile(name string) (*lockFile, error) {
	base := fileName(name)
	for range 100 {
		f, err := d.open(base, unix.O_RDWR)
		if f != nil || err != nil {
			return f, err
		}
		// The mode follows the directory's, whatever the umask: who may make a
		// lock file there may use everyone's.
		umask.Lock()
		old := unix.Umask(0)
		f, err = d.open(base, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL)
		unix.Umask(old)
		umask.Unlock()
		if errors.Is(err, unix.ENOENT) {
			return nil, errMoved
		}
		if !errors.Is(err, unix.EEXIST) {
			return f, err
		}
	}
	return nil, &Error{Op: "open", Path: d.path + "/" + base, Err: errors.New("something makes and removes it all the time")}
}

// open opens a file of d, or gives nil if there is none. It never follows a
// symbolic link and never waits on a FIFO; O_CREAT comes only with O_EXCL,
// because fs.protected_regular forbids it for the files of other users in a
// sticky directory (proc(5)).
func (d *directory) open(base string, flags int) (*lockFile, error) {
	f := &lockFile{path: d.path + "/" + base}
	f.users.Store(1)
	var err error
	for {
		f.fd, err = unix.Openat(d.fd, base, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, d.mode&0o666)
		if err != unix.EINTR {
			break
		}
	}
	switch {
	case err == unix.ENOENT && flags&unix.O_CREAT == 0:
		return nil, nil
	case err == unix.ELOOP:
		return nil, &Error{Path: f.path, Err: errors.New("is a symbolic link, which golock does not follow"), Hint: "remove it"}
	case err == unix.EACCES || err == unix.EPERM:
		return nil, &Error{Op: "open", Path: f.path, Err: err, Hint: "it belongs to another user: chmod or remove it, or take a directory of your own"}
	case err != nil:
		return nil, &Error{Op: "open", Path: f.path, Err: err}
	}
	if err := unix.Fstat(f.fd, &f.stat); err != nil {
		f.close()
		return nil, &Error{Op: "fstat", Path: f.path, Err: err}
	}
	if f.stat.Mode&unix.S_IFMT != unix.S_IFREG {
		f.close()
		return nil, &Error{Path: f.path, Err: errors.New("is not a regular file"), Hint: "remove it"}
	}
	return f, nil
}

// same reports whether st is of this file.
func (f *lockFile) same(st *unix.Stat_t) bool {
	return st.Ino == f.stat.Ino && st.Dev == f.stat.Dev
}

// share keeps f open for one more user, who closes it too. The number of a
// descriptor that was closed under a sleeping goroutine could be another
// file's when it wakes.
func (f *lockFile) share() { f.users.Add(1) }

func (f *lockFile) close() {
	if f.users.Add(-1) == 0 {
		unix.Close(f.fd)
	}
}

// gateWait bounds the wait for the gate behind a process that is stopped
// inside; gateLimit behind one that is only slow. Who is in the queue already
// waits for ever: being late is no reason to be turned away.
const (
	gateWait  = time.Second
	gateLimit = 10 * time.Second
	forever   = time.Duration(0)
)

// gate takes the gate, for which kind is F_WRLCK, or F_RDLCK to look only. A
// process is inside for microseconds; if one has been stopped there, the error
// names it.
func (f *lockFile) gate(ctx context.Context, kind int16, limit time.Duration) error {
	err := setLock(f.fd, kind, gateByte, 1, false)
	if err == nil {
		return nil
	}
	if err != unix.EAGAIN && err != unix.EACCES {
		return f.lockError(err)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// The goroutine sleeps in the kernel and ends when the gate opens; if
	// nobody waits for it any more, it closes it again.
	got, gone := make(chan error), make(chan struct{})
	defer close(gone)
	f.share()
	go func() {
		defer f.close()
		err := setLock(f.fd, kind, gateByte, 1, true)
		select {
		case got <- err:
		case <-gone:
			if err == nil {
				f.openGate()
			}
		}
	}()
	var tick <-chan time.Time
	if limit != forever {
		ticker := time.NewTicker(gateWait)
		defer ticker.Stop()
		tick = ticker.C
	}
	stuck := time.Duration(0)
	for before := f.progress(); ; {
		select {
		case err := <-got:
			if err != nil {
				return f.lockError(err)
			}
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-tick:
		}
		now := f.progress()
		if now != before { // the gate opens for others: it is a crowd that is in the way
			stuck, before = 0, now
			continue
		}
		stuck += gateWait
		who, stopped := f.gateHolder()
		if stopped {
			return &Error{Path: f.path, Err: fmt.Errorf("process %s is stopped while it changes this file; continue or end it", who)}
		}
		if stuck >= limit {
			return &Error{Path: f.path, Err: fmt.Errorf("still being changed by %s after %v", who, limit)}
		}
	}
}

// progress changes with everybody who comes into the queue or out of it.
func (f *lockFile) progress() (counters [headerCounters]byte) {
	_, _ = preadFull(f.fd, counters[:], 0)
	return counters
}

func (f *lockFile) openGate() { _ = setLock(f.fd, unix.F_UNLCK, gateByte, 1, false) }

func (f *lockFile) lockError(err error) error {
	e := &Error{Op: "lock", Path: f.path, Err: err}
	if err == unix.EINVAL || err == unix.ENOTSUP || err == unix.ENOLCK || err == unix.ENOSYS {
		e.Hint = "this file system has no open file description locks"
	}
	return e
}

// gateHolder looks for the process that is inside the gate. The kernel gives
// no owner for such a lock, but lists it with each descriptor in /proc. That is
// a long search, and many may be waiting: one at a time does it.
func (f *lockFile) gateHolder() (who string, stopped bool) {
	const unknown = "another process"
	if err := setLock(f.fd, unix.F_WRLCK, searchByte, 1, false); err == unix.EAGAIN || err == unix.EACCES {
		return unknown, false
	}
	defer func() { _ = setLock(f.fd, unix.F_UNLCK, searchByte, 1, false) }()
	at := " " + strconv.FormatInt(gateByte, 10) + " "
	inode := ":" + strconv.FormatUint(f.stat.Ino, 10) + " "
	procs, _ := os.ReadDir("/proc")
	for _, p := range procs {
		if p.Name()[0] < '0' || p.Name()[0] > '9' {
			continue
		}
		infos, err := os.ReadDir("/proc/" + p.Name() + "/fdinfo")
		if err != nil {
			continue
		}
		for _, info := range infos {
			text, _ := os.ReadFile("/proc/" + p.Name() + "/fdinfo/" + info.Name())
			for line := range strings.Lines(string(text)) {
				if strings.HasPrefix(line, "lock:") && strings.Contains(line, at) && strings.Contains(line, inode) {
					state, _ := processState(p.Name())
					return p.Name(), state == 'T' || state == 't'
				}
			}
		}
	}
	return unknown, false
}

// removed reports whether the path no longer leads to this file. It goes by
// the whole path: the directory can be replaced too.
func (f *lockFile) removed() (bool, error) {
	var st unix.Stat_t
	err := unix.Lstat(f.path, &st)
	if err == unix.ENOENT || err == unix.ENOTDIR {
		return true, nil
	}
	if err != nil {
		return false, &Error{Op: "stat", Path: f.path, Err: err}
	}
	return !f.same(&st), nil
}

// read reads the whole table but the commands, which only people want to know
// (readCommand). The caller is inside the gate. What it gives is good until the
// next read: who waits looks again and again, and in a long queue the memory
// costs more than the reading.
func (f *lockFile) read() (*table, error) {
	if err := unix.Fstat(f.fd, &f.stat); err != nil {
		return nil, &Error{Op: "fstat", Path: f.path, Err: err}
	}
	t := &f.last
	*t = table{records: t.records[:0]}
	if f.stat.Size == 0 {
		return t, nil
	}
	if f.stat.Size > pageSize+maxRecords*recordSize {
		return nil, errCorrupt
	}
	if f.text == nil {
		f.text = make([]byte, readSize)
	}
	n, err := f.readAt(f.text[:pageSize], 0)
	if err != nil {
		return nil, err
	}
	if t.header, err = decodeHeader(f.text[:n]); err != nil {
		var other *formatError
		if errors.As(err, &other) {
			err = &Error{Path: f.path, Err: err, Hint: "another version of golock uses this directory"}
		}
		return nil, err
	}
	full := int(max(f.stat.Size-pageSize, 0) / recordSize)
	if full < t.size {
		return nil, errCorrupt
	}
	t.size = full
	for first := 0; first < full; first += readSize / recordSize {
		some := min(full-first, readSize/recordSize)
		n, err := f.readAt(f.text[:some*recordSize], recordOffset(first))
		if err != nil {
			return nil, err
		}
		if n < some*recordSize {
			return nil, errCorrupt // somebody cuts it meanwhile
		}
		for i := range some {
			if err := t.add(first+i, f.text[i*recordSize:(i+1)*recordSize]); err != nil {
				return nil, err
			}
		}
	}
	return t, nil
}

// readSize is how much of a table is read at once.
const readSize = 32 << 10

// readCommand reads the command of a record that is in use, again inside the
// gate.
func (f *lockFile) readCommand(r *record) ([]string, error) {
	var text [recordSize]byte
	n, err := f.readAt(text[:], recordOffset(r.index))
	if err != nil {
		return nil, err
	}
	var again record
	if n < recordSize || again.decode(text[:]) != nil {
		return nil, errCorrupt
	}
	return unpackCommand(again.command), nil
}

func (f *lockFile) readAt(b []byte, at int64) (int, error) {
	n, err := preadFull(f.fd, b, at)
	if err != nil {
		return 0, &Error{Op: "read", Path: f.path, Err: err}
	}
	return n, nil
}

// table is what read found.
type table struct {
	header           // its size is that of the file
	records []record // those in use, in the order of the file
	hasFree bool
	free    int // index of the first free one
}

// add takes in the text of a record.
func (t *table) add(index int, text []byte) error {
	if text[recordState] == stateFree {
		t.vacant(index)
		return nil
	}
	t.records = append(t.records, record{index: index})
	r := &t.records[len(t.records)-1]
	if err := r.decode(text); err != nil {
		return err
	}
	r.command = nil // its memory is used again
	if r.claim.Ticket >= t.next {
		return errCorrupt // the header is from another time
	}
	return nil
}

// vacant notes that a record is free.
func (t *table) vacant(index int) {
	if !t.hasFree || index < t.free {
		t.hasFree, t.free = true, index
	}
}

// place is the index for a new record.
func (t *table) place() (int, error) {
	if t.hasFree {
		return t.free, nil
	}
	if t.size >= maxRecords {
		return 0, fmt.Errorf("the table is full: %d entries", maxRecords)
	}
	return t.size, nil
}

// put writes the header and then a record: a ticket number must be on record
// as given before anything bears it, or a process killed in between would make
// the next one use it again.
func (f *lockFile) put(t *table, r *record) error {
	if r.index == noIndex {
		var err error
		if r.index, err = t.place(); err != nil {
			return &Error{Path: f.path, Err: err}
		}
	}
	if r.index >= t.size {
		if err := unix.Ftruncate(f.fd, recordOffset(r.index+1)); err != nil {
			return &Error{Op: "truncate", Path: f.path, Err: err}
		}
		t.size = r.index + 1
	}
	if err := f.write(t.encode(), 0); err != nil {
		return err
	}
	return f.write(r.encode(), recordOffset(r.index))
}

// vacate frees a record that is left over.
func (f *lockFile) vacate(t *table, r *record) error {
	r.state = stateFree
	t.vacant(r.index)
	return f.write(make([]byte, 8), recordOffset(r.index))
}

func recordOffset(index int) int64 { return pageSize + int64(index)*recordSize }

// reset makes the file a new, empty table. Writing it whole means that a later
// run finds its space on the disk even if that is full by then. The header goes
// last: a reset that did not get so far is begun again by the next user.
func (f *lockFile) reset(name string) (*table, error) {
	if f.stat.Size > firstSize {
		if err := unix.Ftruncate(f.fd, firstSize); err != nil {
			return nil, &Error{Op: "truncate", Path: f.path, Err: err}
		}
	}
	if err := f.write(make([]byte, firstSize), 0); err != nil {
		return nil, err
	}
	tab := &table{header: header{name: name, size: (firstSize - pageSize) / recordSize}, hasFree: true}
	return tab, f.write(tab.encode(), 0)
}

func (f *lockFile) write(b []byte, at int64) error {
	for len(b) > 0 {
		n, err := unix.Pwrite(f.fd, b, at)
		if err == unix.EINTR {
			continue
		}
		if err == nil && n == 0 {
			err = io.ErrShortWrite
		}
		if err != nil {
			return &Error{Op: "write", Path: f.path, Err: err}
		}
		b, at = b[n:], at+int64(n)
	}
	return nil
}

func preadFull(fd int, b []byte, at int64) (int, error) {
	read := 0
	for read < len(b) {
		n, err := unix.Pread(fd, b[read:], at+int64(read))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return read, err
		}
		if n == 0 {
			break
		}
		read += n
	}
	return read, nil
}
