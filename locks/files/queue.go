package files

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// format is the number of the layout that this program writes and understands.
const format = 1

// What lies in a name's directory, which is called by the name's key.
const (
	headFile   = "name"   // format and name
	lineDir    = "line"   // the tokens
	recordsDir = "data"   // a directory for each entry
	fencesDir  = "fences" // the numbers that were given; the highest stays
)

// Beside the directories of the names lie, in the store's directory, files with
// the suffix: a name whose directory has gone while its file is there was taken
// away under those who use it. Directories that are not complete yet have the
// prefix, and the name's key.
const (
	usedSuffix = ".used"
	newPrefix  = "new."
	oldPrefix  = "old." // of such that are being removed; as long
)

// queue is one name's directory.
type queue struct {
	store *Store
	key   locks.Key
	path  string
	name  string
}

// head is the content of headFile.
type head struct {
	Format int    `json:"golock"`
	Name   string `json:"name"`
}

func (s *Store) keyPath(key locks.Key) string { return s.dir + "/" + key.String() }

// queue finds the directory of a name, or makes it.
func (s *Store) queue(name string) (*queue, error) {
	q := &queue{store: s, key: locks.KeyOf(name), path: s.keyPath(locks.KeyOf(name)), name: name}
	for range 10 {
		h, err := q.readHead()
		if errors.Is(err, fs.ErrNotExist) {
			if err = q.build(); err == nil || errors.Is(err, fs.ErrNotExist) {
				if err := s.checkDir(); err != nil {
					return nil, err
				}
				continue
			}
		}
		switch {
		case err != nil:
			return nil, err
		case h.Name != name:
			return nil, &locks.PathError{Path: q.path, Err: fmt.Errorf("belongs to the name %q, whose key is the same", locks.Printable(h.Name, 80)), Hint: "choose another name"}
		}
		return q, q.mark()
	}
	return nil, &locks.PathError{Path: q.path, Err: errors.New("vanishes as often as it is made")}
}

// readHead reads what the directory belongs to. An error of its not being there
// is fs.ErrNotExist.
func (q *queue) readHead() (h head, err error) {
	text, err := readFile(q.path + "/" + headFile)
	if err != nil {
		return h, err
	}
	if err := json.Unmarshal(text, &h); err != nil {
		return h, &locks.PathError{Path: q.path + "/" + headFile, Err: fmt.Errorf("damaged: %w", err), Hint: "remove " + q.path + " and " + q.path + usedSuffix + " when no run uses them"}
	}
	if h.Format != format {
		return h, &locks.PathError{Path: q.path, Err: fmt.Errorf("has format %d, this golock knows format %d", h.Format, format)}
	}
	return h, nil
}

// checkDir says why the store's directory cannot be used. It is not made when it
// is missing: on a shared file system that says rather that nothing is mounted,
// or that somebody has removed it under those who hold something.
func (s *Store) checkDir() error {
	var st unix.Stat_t
	err := again(func() error { return unix.Stat(s.dir, &st) })
	switch {
	case err == unix.ENOENT:
		return &locks.PathError{Path: s.dir, Err: errors.New("does not exist"), Hint: "mount what belongs there, or mkdir " + s.dir + "; golock does not make the directory of a shared store"}
	case err != nil:
		return &locks.PathError{Op: "stat", Path: s.dir, Err: err}
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return &locks.PathError{Path: s.dir, Err: unix.ENOTDIR}
	}
	return nil
}

// build makes the directory complete, then gives it its name.
func (q *queue) build() error {
	if err := q.store.checkDir(); err != nil {
		return err
	}
	if here, err := exists(q.path + usedSuffix); err != nil {
		return err
	} else if here {
		// It may have come into being since.
		if again, err := exists(q.path); err != nil || again {
			return err
		}
		return &locks.PathError{Path: q.path, Err: errors.New("was removed while it was in use"), Hint: "when no run holds the name any more, remove " + q.path + usedSuffix + " too"}
	}
	id, err := locks.NewRef(q.name)
	if err != nil {
		return err
	}
	fresh := q.store.dir + "/" + newPrefix + q.key.String() + "." + hex.EncodeToString(id.ID[:])
	text, err := json.Marshal(head{Format: format, Name: q.name})
	if err != nil {
		return err
	}
	q.store.at("build")
	err = mkdirLike(fresh, q.store.dir)
	for _, sub := range []string{lineDir, recordsDir, fencesDir} {
		if err == nil {
			err = mkdirLike(fresh+"/"+sub, q.store.dir)
		}
	}
	if err == nil {
		err = writeFile(fresh+"/"+headFile, append(text, '\n'))
	}
	if err == nil {
		q.store.at("built")
		if err = rename(fresh, q.path); err == nil {
			return nil
		}
		if err == unix.ENOTEMPTY || err == unix.EEXIST { // somebody was faster
			err = nil
		} else {
			err = &locks.PathError{Op: "rename", Path: fresh, Err: err}
		}
	}
	_ = os.RemoveAll(fresh)
	return err
}

// mark notes that the name is in use.
func (q *queue) mark() error {
	if here, err := exists(q.path + usedSuffix); err != nil || here {
		return err
	}
	if err := createFile(q.path + usedSuffix); err != nil && err != unix.EEXIST {
		return &locks.PathError{Op: "create", Path: q.path + usedSuffix, Err: err}
	}
	return nil
}

// mkdirLike makes a directory that is open to the same users as another one.
func mkdirLike(path, like string) error {
	var st unix.Stat_t
	if err := again(func() error { return unix.Stat(like, &st) }); err != nil {
		return &locks.PathError{Op: "stat", Path: like, Err: err}
	}
	if err := again(func() error { return unix.Mkdir(path, 0o700) }); err != nil {
		return &locks.PathError{Op: "mkdir", Path: path, Err: err}
	}
	// Whatever the umask. Some shared file systems have no modes to change.
	_ = unix.Chmod(path, st.Mode&0o2777)
	return nil
}

// list gives the tokens of the line. The directory is opened anew each time: NFS
// asks the server then whether what it remembers is still true (close-to-open
// consistency, nfs(5)).
func (q *queue) list() ([]token, error) {
	names, err := readNames(q.path + "/" + lineDir)
	if err != nil {
		return nil, err
	}
	line := make([]token, 0, len(names))
	for _, name := range names {
		if t, ok := parseToken(name); ok {
			line = append(line, t)
		}
	}
	return line, nil
}

func (q *queue) tokenPath(t token) string { return q.path + "/" + lineDir + "/" + t.String() }

func (q *queue) dataPath(id string) string { return q.path + "/" + recordsDir + "/" + id }

// create makes a token.
func (q *queue) create(t token) error {
	if err := q.store.make(q.tokenPath(t)); err != nil {
		return &locks.PathError{Op: q.store.scheme, Path: q.tokenPath(t), Err: err}
	}
	return nil
}

// renameToken makes an entry's token one of another kind. A token that is not there is
// fs.ErrNotExist.
func (q *queue) renameToken(from, to token) error {
	if err := rename(q.tokenPath(from), q.tokenPath(to)); err != nil {
		return &locks.PathError{Op: "rename", Path: q.tokenPath(from), Err: err}
	}
	return nil
}

// here reports whether a token is there, after a fresh look at the directory.
func (q *queue) here(t token) (bool, error) {
	path := q.path + "/" + lineDir
	fd, err := openFile(path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err == unix.ENOENT {
		return false, nil
	}
	if err != nil {
		return false, &locks.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	err = again(func() error { return unix.Fstatat(fd, t.String(), &st, unix.AT_SYMLINK_NOFOLLOW) })
	if err != nil && err != unix.ENOENT {
		return false, &locks.PathError{Op: "stat", Path: q.tokenPath(t), Err: err}
	}
	return err == nil, nil
}

// remove takes an entry out of the line. It reports whether it was this call
// that did: of several only one can rename the token away.
func (q *queue) remove(t token) (bool, error) {
	gone := t.as(goes)
	if t.kind != goes {
		q.store.at("remove")
		err := q.renameToken(t, gone)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		q.store.at("removed")
	}
	// Somebody who has seen the entry before may just be noting it (noteSeen).
	err := error(unix.ENOTEMPTY)
	for try := 0; try < 10 && errors.Is(err, unix.ENOTEMPTY); try++ {
		err = os.RemoveAll(q.dataPath(t.id))
	}
	if err != nil {
		return true, &locks.PathError{Path: q.dataPath(t.id), Err: errors.Unwrap(err)}
	}
	q.store.at("emptied")
	if err := removeName(q.tokenPath(gone)); err != nil && err != unix.ENOENT {
		return true, &locks.PathError{Op: "remove", Path: q.tokenPath(gone), Err: err}
	}
	return true, nil
}

// find gives the entry of a ref. Of several, left by attempts that were cut
// short, it is the one that got furthest. A name that is changed while a
// directory is read may be in it neither as it was nor as it is (readdir(3)), so
// what is not found is looked for again.
func (q *queue) find(ref locks.Ref) (found []token, err error) {
	for range 3 {
		line, err := q.list()
		if err != nil {
			return nil, err
		}
		for _, t := range line {
			if t.kind != goes && t.of(ref) {
				found = append(found, t)
				if t.kind == holds {
					found[0], found[len(found)-1] = t, found[0]
				}
			}
		}
		if len(found) > 0 {
			break
		}
	}
	return found, nil
}

// nextFence gives a number that is larger than all that were given for the name
// before: the last one plus one, or the clock's microseconds if that is more. The
// name of what is made for it makes it unique.
func (q *queue) nextFence() (int64, error) {
	dir := q.path + "/" + fencesDir
	for range 1000 {
		last, _, err := lastFence(dir)
		if err != nil {
			return 0, err
		}
		fence := max(last+1, time.Now().UnixMicro())
		path := dir + "/" + strconv.FormatInt(fence, 10)
		if err := q.store.make(path); err == unix.EEXIST {
			continue
		} else if err != nil {
			return 0, &locks.PathError{Op: q.store.scheme, Path: path, Err: err}
		}
		last, others, err := lastFence(dir)
		if err != nil {
			return 0, err
		}
		if last > fence {
			continue
		}
		for _, old := range others {
			_ = removeName(dir + "/" + strconv.FormatInt(old, 10))
		}
		return fence, nil
	}
	return 0, &locks.PathError{Path: dir, Err: errors.New("others take every number")}
}

// lastFence gives the highest number and the lower ones.
func lastFence(dir string) (last int64, others []int64, err error) {
	names, err := readNames(dir)
	if err != nil {
		return 0, nil, err
	}
	for _, name := range names {
		n, err := strconv.ParseInt(name, 10, 64)
		if err != nil || n <= 0 || strconv.FormatInt(n, 10) != name {
			continue
		}
		if last > 0 {
			others = append(others, min(n, last))
		}
		last = max(n, last)
	}
	return last, others, nil
}

// openFile opens a file or directory, and nothing else that somebody may have put
// there: no symbolic link is followed, no FIFO waited for.
func openFile(path string, flags int) (fd int, err error) {
	err = again(func() error {
		fd, err = unix.Open(path, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
		return err
	})
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	err = again(func() error { return unix.Fstat(fd, &st) })
	if kind := st.Mode & unix.S_IFMT; err == nil && kind != unix.S_IFREG && kind != unix.S_IFDIR {
		err = errForeign
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// errForeign is for what golock has not made.
var errForeign = errors.New("is neither a file nor a directory")

// maxFile bounds what is read of a file that others have written.
const maxFile = 64 << 10

// readFile reads a file through a descriptor of its own: see list.
func readFile(path string) ([]byte, error) {
	fd, err := openFile(path, unix.O_RDONLY)
	if err != nil {
		return nil, &locks.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil, &locks.PathError{Op: "read", Path: path, Err: errors.Unwrap(err)}
	}
	return text, nil
}

// writeFile makes a new file whose name nobody looks at yet. What is there
// already was left by somebody who was killed, or put there by somebody else: it
// is not written to.
func writeFile(path string, text []byte) error {
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL
	fd, err := openFile(path, flags)
	if err == unix.EEXIST {
		_ = again(func() error { return unix.Unlink(path) })
		fd, err = openFile(path, flags)
	}
	if err != nil {
		return &locks.PathError{Op: "create", Path: path, Err: err}
	}
	var st unix.Stat_t
	if unix.Stat(filepath.Dir(path), &st) == nil {
		_ = unix.Fchmod(fd, st.Mode&0o666) // for those to whom the directory is open
	}
	return finishWrite(fd, path, text)
}

// finishWrite writes at the beginning of a file and closes it. On a networked
// file system it is the closing that tells whether the server has it.
func finishWrite(fd int, path string, text []byte) error {
	n := 0
	err := again(func() (err error) {
		n, err = unix.Pwrite(fd, text, 0)
		return err
	})
	if err == nil && n != len(text) {
		err = unix.ENOSPC
	}
	if closed := unix.Close(fd); err == nil && closed != unix.EINTR {
		err = closed
	}
	if err != nil {
		return &locks.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

// replaceFile puts a file, complete, in the place of the one that may be there.
func replaceFile(path string, text []byte) error {
	if err := writeFile(path+".new", text); err != nil {
		return err
	}
	if err := rename(path+".new", path); err != nil {
		return &locks.PathError{Op: "rename", Path: path, Err: err}
	}
	return nil
}

func exists(path string) (bool, error) {
	var st unix.Stat_t
	err := again(func() error { return unix.Lstat(path, &st) })
	if err != nil && err != unix.ENOENT {
		return false, &locks.PathError{Op: "stat", Path: path, Err: err}
	}
	return err == nil, nil
}

// readNames lists a directory, in no order.
func readNames(path string) ([]string, error) {
	fd, err := openFile(path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, &locks.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, &locks.PathError{Op: "read", Path: path, Err: errors.Unwrap(err)}
	}
	return names, nil
}
