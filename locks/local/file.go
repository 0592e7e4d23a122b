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

// lockFile is an open file description of a name's lock file. Its locks exclude every other
// description, also one of the same process.
type lockFile struct {
	fd     int
	dir    *directory
	base   string       // the name of the file in the directory
	path   string       // its whole path
	users  atomic.Int32 // counts the opener, the goroutines that sleep on a lock of the file, and its victims
	stat   unix.Stat_t  // what readStat has read last
	last   table        // the table that the last read found; the next read reuses its memory
	moment *moment      // when the table was read; nil if it was not yet needed
	buffer []byte       // the memory for read
}

// fileName returns the name of a lock's file. It begins with readable characters for people who
// look into the directory. It ends with a hash, which alone distinguishes names.
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

// isLockFile reports whether a directory entry has the form of a lock file's name.
func isLockFile(entry string) bool {
	base, ok := strings.CutSuffix(entry, ".lock")
	if !ok || len(base) < 33 || base[len(base)-33] != '.' {
		return false
	}
	_, err := hex.DecodeString(base[len(base)-32:])
	return err == nil
}

// openFile opens the lock file of a name for use. It makes the file if there is none.
func (d *directory) openFile(name string) (*lockFile, error) {
	f, err := d.open(fileName(name), unix.O_RDWR)
	if f == nil && err == nil {
		f, err = d.open(fileName(name), unix.O_RDWR|unix.O_CREAT|unix.O_EXCL)
	}
	return f, err
}

// umaskMutex guards the umask, of which a process has only one.
var umaskMutex sync.Mutex

// open opens a file of d, or returns nil if the file does not exist. It follows no symbolic link
// and never waits on a FIFO. Callers give O_CREAT only together with O_EXCL: in a sticky directory
// fs.protected_regular forbids O_CREAT for files of other users (proc(5)). A new file gets its mode
// from the directory: whoever may make a file there may use all files there.
func (d *directory) open(base string, flags int) (*lockFile, error) {
	creates := flags&unix.O_CREAT != 0
	if creates {
		umaskMutex.Lock()
		defer umaskMutex.Unlock()
		previousMask := unix.Umask(0)
		defer unix.Umask(previousMask)
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
		return nil, errMoved // the directory was removed, or another process has just made the file
	case err == unix.ELOOP:
		return nil, &locks.PathError{Path: f.path, Err: errors.New("is a symbolic link, which golock does not follow"), Hint: "remove it"}
	case err == unix.EACCES || err == unix.EPERM:
		return nil, &locks.PathError{Op: "open", Path: f.path, Err: err, Hint: "it belongs to another user: chmod or remove it, or take a directory of your own"}
	case err != nil:
		return nil, f.failed("open", err)
	}
	err = f.readStat()
	if err == nil && f.stat.Mode&unix.S_IFMT != unix.S_IFREG {
		err = &locks.PathError{Path: f.path, Err: errors.New("is not a regular file"), Hint: "remove it"}
	}
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *lockFile) readStat() error { return f.failed("fstat", unix.Fstat(f.fd, &f.stat)) }

// failed adds the system call and the file to an error. It returns nil for nil.
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

// close closes the file for one of its users. The last one closes the descriptor. If it were closed
// while a goroutine sleeps, its number could belong to another file when the goroutine wakes.
func (f *lockFile) close() {
	if f.users.Add(-1) == 0 {
		unix.Close(f.fd)
	}
}

// checkPath returns errMoved if the path no longer leads to this file. It uses the whole path,
// because the directory may have been replaced too.
func (f *lockFile) checkPath() error {
	var st unix.Stat_t
	err := unix.Lstat(f.path, &st)
	if err == unix.ENOENT || err == unix.ENOTDIR || err == nil && !kernel.SameFile(&st, &f.stat) {
		return errMoved
	}
	return f.failed("stat", err)
}

// table is the content of a lock file.
type table struct {
	header           // header.size is the size of the file
	records []record // the records in use, in the order of the file
}

// hasMagic reports whether the file begins with golock's magic bytes.
func (f *lockFile) hasMagic() bool {
	var start [len(magic)]byte
	n, _ := f.readAt(start[:], 0)
	return string(start[:n]) == magic
}

// momentOfRead returns the time at which the table was read. Later calls return the same.
func (f *lockFile) momentOfRead() *moment {
	if f.moment == nil {
		f.moment = readMoment()
	}
	return f.moment
}

// readSize is the number of bytes of a table that one read(2) gets.
const readSize = 32 << 10

// read reads the table. It returns errCorrupt if golock cannot have written it. The caller has locked
// the gate. The next read reuses the memory of the table: in a long queue, allocating would cost more
// than reading.
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
	t.header, err = decodeHeader(f.buffer[:n])
	if err != nil {
		if err != errCorrupt {
			err = &locks.PathError{Path: f.path, Err: err, Hint: "another version of golock uses this directory"}
		}
		return nil, err
	}
	inFile := int(max(f.stat.Size-pageSize, 0) / recordSize)
	if inFile < int(t.size) {
		return nil, errCorrupt
	}
	t.size = uint32(inFile)
	if err := f.readRecords(t); err != nil {
		return nil, err
	}
	return t, nil
}

// readRecords reads the records of a table with t.size records.
func (f *lockFile) readRecords(t *table) error {
	const perRead = readSize / recordSize
	size := int(t.size)
	var taken slotSet
	for first := 0; first < size; first += perRead {
		piece := f.buffer[:min(size-first, perRead)*recordSize]
		n, err := f.readAt(piece, recordOffset(first))
		if err != nil {
			return err
		}
		if n < len(piece) {
			return errCorrupt // another process has cut the file meanwhile
		}
		for i := range n / recordSize {
			text := piece[i*recordSize : (i+1)*recordSize]
			if text[recordState] == stateFree {
				continue
			}
			t.records = append(t.records, record{index: first + i})
			r := &t.records[len(t.records)-1]
			if r.decode(text) != nil || r.ticket >= t.next { // the header is older than the record
				return errCorrupt
			}
			if size > manyRecords {
				r.cutCommand()
			}
			for _, slot := range r.slots {
				if !taken.add(slot) {
					return errCorrupt // a process frees the records of dead holders before it takes their slots
				}
			}
		}
	}
	return nil
}

// firstFree returns the index of the first record that is not in use, or the index after the last
// record if all are in use.
func (t *table) firstFree() (index int) {
	for i := range t.records { // in the order of their indexes
		r := &t.records[i]
		if r.state != stateFree && r.index == index {
			index++
		}
	}
	return index
}

// write writes the header and then the record. A record without an index gets the first free one. A
// process that is killed between the two writes has only wasted its ticket. In the other order the
// next process would get the same ticket.
func (f *lockFile) write(t *table, r *record) error {
	if r.index == noIndex {
		r.index = t.firstFree()
		if r.index >= maxRecords {
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

// clear frees a stale record.
func (f *lockFile) clear(r *record) error {
	r.state = stateFree
	return f.writeAt(make([]byte, 8), recordOffset(r.index))
}

func recordOffset(index int) int64 { return pageSize + int64(index)*recordSize }

// reset makes the file a new, empty table. It writes all bytes, so that later runs need no space on
// a full disk. It writes the header last, so that the next process repeats a reset that was
// interrupted.
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
