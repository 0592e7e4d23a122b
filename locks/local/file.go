package local

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"golock/internal/eintr"
	"golock/locks"
	"golock/locks/kernel"
)

// lockFile is one open description of a name's lock file. Locks on it are seen by every
// other description, also of the same process.
type lockFile struct {
	fd     int
	dir    *directory
	base   string       // its name there
	path   string       // its whole path
	users  atomic.Int32 // its owner, each goroutine that sleeps on a lock of it, each victim
	stat   unix.Stat_t  // as of the last read
	last   table        // what the last read found; its memory serves the next
	moment *moment      // of the last read; nil: nobody has asked for it
	buffer []byte       // of read
}

// fileName is the name of a lock's file: a readable beginning for the people who look
// into the directory, and a hash, which alone decides.
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

// isLockFile reports whether a directory entry is named like a lock file.
func isLockFile(entry string) bool {
	base, ok := strings.CutSuffix(entry, ".lock")
	if !ok || len(base) < 33 || base[len(base)-33] != '.' {
		return false
	}
	_, err := hex.DecodeString(base[len(base)-32:])
	return err == nil
}

// openFile opens the lock file of a name for use, and makes it if there is none.
func (d *directory) openFile(name string) (*lockFile, error) {
	f, err := d.open(fileName(name), unix.O_RDWR)
	if f == nil && err == nil {
		f, err = d.open(fileName(name), unix.O_RDWR|unix.O_CREAT|unix.O_EXCL)
	}
	return f, err
}

// umask is the process's own, and there is only one.
var umask sync.Mutex

// open opens a file of d, or gives nil if there is none. It follows no symbolic link
// and never waits on a FIFO. O_CREAT comes only with O_EXCL: fs.protected_regular
// forbids it for other users' files in a sticky directory (proc(5)). The mode of a new
// file follows the directory's: who may make one there may use everyone's.
func (d *directory) open(base string, flags int) (*lockFile, error) {
	creates := flags&unix.O_CREAT != 0
	if creates {
		umask.Lock()
		defer umask.Unlock()
		defer unix.Umask(unix.Umask(0))
	}
	f := &lockFile{dir: d, base: base, path: d.path + "/" + base}
	f.users.Store(1)
	var err error
	f.fd, err = eintr.Get(func() (int, error) {
		return unix.Openat(d.fd, base, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, d.stat.Mode&0o666)
	})
	switch {
	case err == unix.ENOENT && !creates:
		return nil, nil
	case creates && (err == unix.ENOENT || err == unix.EEXIST):
		return nil, errMoved // the directory was removed, or somebody else has just made the file
	case err == unix.ELOOP:
		return nil, &locks.PathError{Path: f.path, Err: errors.New("is a symbolic link, which golock does not follow"), Hint: "remove it"}
	case err == unix.EACCES || err == unix.EPERM:
		return nil, &locks.PathError{Op: "open", Path: f.path, Err: err, Hint: "it belongs to another user: chmod or remove it, or take a directory of your own"}
	case err != nil:
		return nil, f.failed("open", err)
	}
	if err = f.readStat(); err == nil && f.stat.Mode&unix.S_IFMT != unix.S_IFREG {
		err = &locks.PathError{Path: f.path, Err: errors.New("is not a regular file"), Hint: "remove it"}
	}
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *lockFile) readStat() error { return f.failed("fstat", unix.Fstat(f.fd, &f.stat)) }

// failed names the system call and the file of an error; nil stays nil.
func (f *lockFile) failed(op string, err error) error {
	if err == nil {
		return nil
	}
	e := &locks.PathError{Op: op, Path: f.path, Err: err, Hint: hintReadOnly(err, filepath.Dir(f.path))}
	if op == "lock" && (err == unix.EINVAL || err == unix.ENOTSUP || err == unix.ENOLCK || err == unix.ENOSYS) {
		e.Hint = "this file system has no open file description locks"
	}
	if err == unix.EFBIG {
		e.Hint = fmt.Sprintf("a lock file needs %d bytes and 1 KiB for each entry beyond: raise the limit of file sizes, ulimit -f", firstSize)
	}
	return e
}

// close closes the file for one of its users. The number of a descriptor that was closed
// under a sleeping goroutine could be another file's when it wakes.
func (f *lockFile) close() {
	if f.users.Add(-1) == 0 {
		unix.Close(f.fd)
	}
}

// checkPath gives errMoved if the path no longer leads to this file. It uses the whole path,
// as the directory may have been replaced too.
func (f *lockFile) checkPath() error {
	var st unix.Stat_t
	err := unix.Lstat(f.path, &st)
	if err == unix.ENOENT || err == unix.ENOTDIR || err == nil && !kernel.SameFile(&st, &f.stat) {
		return errMoved
	}
	return f.failed("stat", err)
}

// table is what read found.
type table struct {
	header           // its size is that of the file
	records []record // those in use, in the order of the file
}

// hasMagic reports whether the file begins as golock writes it.
func (f *lockFile) hasMagic() bool {
	var start [len(magic)]byte
	n, _ := f.readAt(start[:], 0)
	return string(start[:n]) == magic
}

// momentOfRead is when the table was read, or is first judged since.
func (f *lockFile) momentOfRead() *moment {
	if f.moment == nil {
		f.moment = readMoment()
	}
	return f.moment
}

// readSize is how much of a table is read at once.
const readSize = 32 << 10

// read reads the table. The caller is inside the gate. The next read
// uses the memory again: in a long queue new memory would cost more than the reading.
func (f *lockFile) read() (*table, error) {
	if err := f.readStat(); err != nil {
		return nil, err
	}
	f.moment = nil
	t := &f.last
	*t = table{records: t.records[:0]}
	if f.stat.Size > pageSize+maxRecords*recordSize {
		return nil, errCorrupt
	}
	if f.buffer == nil {
		f.buffer = make([]byte, readSize)
	}
	n, err := f.readAt(f.buffer[:pageSize], 0)
	if err != nil {
		return nil, err
	}
	if t.header, err = decodeHeader(f.buffer[:n]); err != nil {
		if err != errCorrupt {
			err = &locks.PathError{Path: f.path, Err: err, Hint: "another version of golock uses this directory"}
		}
		return nil, err
	}
	full := int(max(f.stat.Size-pageSize, 0) / recordSize)
	if full < int(t.size) {
		return nil, errCorrupt
	}
	t.size = uint32(full)
	var taken slotSet
	for first := 0; first < full; first += readSize / recordSize {
		some := f.buffer[:min(full-first, readSize/recordSize)*recordSize]
		n, err := f.readAt(some, recordOffset(first))
		if err != nil {
			return nil, err
		}
		if n < len(some) {
			return nil, errCorrupt // somebody cuts it meanwhile
		}
		for i := range n / recordSize {
			text := some[i*recordSize : (i+1)*recordSize]
			if text[recordState] == stateFree {
				continue
			}
			t.records = append(t.records, record{index: first + i})
			r := &t.records[len(t.records)-1]
			if r.decode(text) != nil || r.ticket >= t.next { // the header is from another time
				return nil, errCorrupt
			}
			if full > manyRecords {
				r.cutCommand()
			}
			for _, slot := range r.slots {
				if !taken.add(slot) {
					return nil, errCorrupt // whoever takes slots frees the records of the dead first
				}
			}
		}
	}
	return t, nil
}

// firstFree is the index of the first record that is not in use, or the next one.
func (t *table) firstFree() (index int) {
	for i := range t.records {
		if r := &t.records[i]; r.state != stateFree && r.index == index {
			index++
		}
	}
	return index
}

// write writes the header before the record: a process that is killed in between has used up
// its ticket. In the other order the next one would get the same ticket.
func (f *lockFile) write(t *table, r *record) error {
	if r.index == noIndex {
		if r.index = t.firstFree(); r.index >= maxRecords {
			return &locks.PathError{Path: f.path, Err: fmt.Errorf("the table is full: %d entries", maxRecords)}
		}
	}
	if r.index >= int(t.size) {
		if err := unix.Ftruncate(f.fd, recordOffset(r.index+1)); err != nil {
			return f.failed("truncate", err)
		}
		t.size = uint32(r.index + 1)
	}
	if err := f.writeAt(t.encode(), 0); err != nil {
		return err
	}
	return f.writeAt(r.encode(), recordOffset(r.index))
}

// clear frees a record that is left over.
func (f *lockFile) clear(r *record) error {
	r.state = stateFree
	return f.writeAt(make([]byte, 8), recordOffset(r.index))
}

func recordOffset(index int) int64 { return pageSize + int64(index)*recordSize }

// reset makes the file a new, empty table. It writes all of it, so that later runs need no
// space on a full disk. The header goes last: the next user repeats a reset that was cut off.
func (f *lockFile) reset(name string) (*table, error) {
	if f.stat.Size > firstSize {
		if err := unix.Ftruncate(f.fd, firstSize); err != nil {
			return nil, f.failed("truncate", err)
		}
	}
	if err := f.writeAt(make([]byte, firstSize), 0); err != nil {
		return nil, err
	}
	tab := &table{header: header{name: name, size: (firstSize - pageSize) / recordSize}}
	return tab, f.writeAt(tab.encode(), 0)
}

func (f *lockFile) writeAt(b []byte, at int64) error {
	for len(b) > 0 {
		n, err := eintr.Get(func() (int, error) { return unix.Pwrite(f.fd, b, at) })
		if err == nil && n == 0 {
			err = io.ErrShortWrite
		}
		if err != nil {
			return f.failed("write", err)
		}
		b, at = b[n:], at+int64(n)
	}
	return nil
}

// readAt reads until b is full or the file ends.
func (f *lockFile) readAt(b []byte, at int64) (read int, err error) {
	for read < len(b) {
		n, err := eintr.Get(func() (int, error) { return unix.Pread(f.fd, b[read:], at+int64(read)) })
		if err != nil {
			return read, f.failed("read", err)
		}
		if n == 0 {
			break
		}
		read += n
	}
	return read, nil
}
