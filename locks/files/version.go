package files

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"golock/internal/eintr"
	"golock/locks"
)

// The state of a name is the file of the highest version. A version is made
// complete under a temporary name, then gets its own, which nobody can take a
// second time. The temporary names tell for which version they were made, so that
// they can be removed together.
const (
	versionPrefix = "v"
	tempPrefix    = "t" // then the version, a dot, and anything
	stateFile     = "state"

	// kept is how many old versions stay. More than are made while somebody reads
	// the directory: then every reader finds one that is there all the time.
	kept = 64

	// pruneParts is how often old ones are removed in the time in which so many are made.
	pruneParts = 8
)

func versionName(n int64) string { return versionPrefix + strconv.FormatInt(n, 10) }

// versionOf reads a version's name, or what a temporary name says of its version.
func versionOf(name, prefix string) (int64, bool) {
	text, ok := strings.CutPrefix(name, prefix)
	if prefix == tempPrefix {
		text, _, _ = strings.Cut(text, ".")
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, ok && err == nil && n > 0 && n < 1<<62 && strconv.FormatInt(n, 10) == text
}

// handle is a name's directory, opened for one step: what is read and what is
// made is in the same one, also if somebody puts another one in its place.
type handle struct {
	*directory
	fd   int
	mode uint32
}

func (d *directory) open() (*handle, error) {
	fd, err := openAt(unix.AT_FDCWD, d.path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, d.vanished(&locks.PathError{Op: "open", Path: d.path, Err: err})
	}
	h := &handle{directory: d, fd: fd}
	var st unix.Stat_t
	if err := eintr.Repeat(func() error { return unix.Fstat(fd, &st) }); err != nil {
		h.close()
		return nil, &locks.PathError{Op: "stat", Path: d.path, Err: err}
	}
	h.mode = st.Mode
	return h, nil
}

func (h *handle) close() { unix.Close(h.fd) }

func (h *handle) fault(op, name string, err error) error {
	return &locks.PathError{Op: op, Path: h.path + "/" + name, Err: err}
}

// listing is what lies in a name's directory.
type listing struct {
	names   []string
	highest int64 // version
}

func (h *handle) list() (l listing, err error) {
	h.store.at("list")
	if l.names, err = namesIn(h.fd); err != nil {
		return l, h.fault("read", "", err)
	}
	for _, name := range l.names {
		if n, ok := versionOf(name, versionPrefix); ok {
			l.highest = max(l.highest, n)
		}
	}
	if l.highest == 0 {
		return l, h.vanished(h.fault("", versionPrefix, unix.ENOENT))
	}
	return l, nil
}

// isHighest reports whether a version is still the last one, in a fresh listing.
func (d *directory) isHighest(n int64) (bool, error) {
	h, err := d.open()
	if err != nil {
		return false, err
	}
	defer h.close()
	l, err := h.list()
	return l.highest == n, err
}

// readVersion gives the text of a version, whichever primitive has made it.
// ENOENT says that it was removed meanwhile.
func (h *handle) readVersion(n int64) ([]byte, error) {
	h.store.at("read")
	name := versionName(n)
	text, err := readAt(h.fd, name, maxState)
	switch err {
	case unix.EISDIR:
		dir, err := openAt(h.fd, name, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return nil, err
		}
		defer unix.Close(dir)
		return readAt(dir, stateFile, maxState)
	case unix.ELOOP:
		target, err := h.readLink(name)
		if err != nil {
			return nil, err
		}
		if of, ok := versionOf(target, tempPrefix); !ok || of != n || strings.Contains(target, "/") {
			return nil, errForeign
		}
		return readAt(h.fd, target, maxState)
	}
	return text, err
}

// errTaken says that a version exists already.
var errTaken = errors.New("the version exists")

// commit makes the version after base. Who was held up for long may make a number anew
// that was removed. So it is a success only if the version before it is still there,
// and the same one: old ones are removed first. Otherwise the step may have been done
// or not (unsure), and is tried again.
func (h *handle) commit(base int64, was []byte, next *state) (done, unsure bool, err error) {
	n := base + 1
	temp := fmt.Sprintf("%s%d.%x", tempPrefix, n, rand.Uint64())
	h.store.at("write")
	switch err := h.store.make(h, temp, versionName(n), next.text()); err {
	case nil:
	case errTaken:
		return false, false, nil
	case unix.ENOENT: // a repeated request of NFS, or the temporary name was pruned
		return false, true, nil
	default:
		return false, true, h.fault(h.store.scheme, versionName(n), err)
	}
	l, err := h.list()
	if err != nil {
		return false, true, err
	}
	if !slices.Contains(l.names, versionName(base)) {
		return false, true, nil
	}
	if l.highest != n {
		still, err := h.readVersion(base)
		return err == nil && bytes.Equal(still, was), true, nil
	}
	if n%max(h.store.kept/pruneParts, 1) == 0 {
		h.store.at("prune")
		h.prune(l, len(next.entries) == 0)
	}
	return true, false, nil
}

// prune removes old versions, the oldest first, and what was made for them; of an empty
// queue also what was seen of its entries.
func (h *handle) prune(l listing, empty bool) {
	madeFor := func(name string) int64 {
		n, ok := versionOf(name, versionPrefix)
		if !ok {
			n, _ = versionOf(name, tempPrefix)
		}
		return n
	}
	slices.SortFunc(l.names, func(a, b string) int { return cmp.Compare(madeFor(a), madeFor(b)) })
	for _, name := range l.names {
		switch n := madeFor(name); {
		case n > 0 && n <= l.highest-h.store.kept:
			h.remove(name)
		case n == 0 && empty && strings.HasPrefix(name, seenPrefix):
			_ = unix.Unlinkat(h.fd, name, 0)
		}
	}
}

// remove takes away what any of the primitives has made: stores of all three may
// use one directory. What cannot be removed stays.
func (h *handle) remove(name string) {
	err := eintr.Repeat(func() error { return unix.Unlinkat(h.fd, name, 0) })
	if err != unix.EISDIR && err != unix.EPERM {
		return
	}
	if dir, err := openAt(h.fd, name, unix.O_RDONLY|unix.O_DIRECTORY); err == nil {
		_ = unix.Unlinkat(dir, stateFile, 0)
		unix.Close(dir)
	}
	_ = unix.Unlinkat(h.fd, name, unix.AT_REMOVEDIR)
}

// makeVersion makes a file under a temporary name and gives it its own by the store's
// primitive, which fails if there is one: errTaken. A directory is renamed: that fails if
// one of that name is there and not empty.
func makeVersion(h *handle, temp, name string, text []byte) (err error) {
	scheme, file := h.store.scheme, temp
	if scheme == "mkdir" {
		file = temp + "/" + stateFile
		err = makeDirectoryAt(h.fd, temp, h.mode)
	}
	if err == nil {
		err = createAt(h.fd, file, h.mode, text)
	}
	if err == nil {
		h.store.at("commit")
		err = eintr.Repeat(func() error {
			switch scheme {
			case "mkdir":
				return unix.Renameat(h.fd, temp, h.fd, name)
			case "symlink":
				return unix.Symlinkat(temp, h.fd, name)
			}
			return unix.Linkat(h.fd, temp, h.fd, name, 0)
		})
	}
	if err == unix.EEXIST && h.isMadeOf(name, temp) {
		err = nil // a repeated request of NFS has met its own
	}
	if err != nil || scheme == "excl" {
		h.remove(temp)
	}
	switch err {
	case unix.EEXIST, unix.ENOTEMPTY, unix.ENOTDIR:
		return errTaken
	}
	return err
}

// isMadeOf reports whether a version is a symbolic or another link to a temporary file.
func (h *handle) isMadeOf(name, temp string) bool {
	if target, err := h.readLink(name); err == nil {
		return target == temp
	}
	var st unix.Stat_t
	err := unix.Fstatat(h.fd, temp, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Nlink == 2
}

func (h *handle) readLink(name string) (string, error) {
	target := make([]byte, 128)
	n, err := unix.Readlinkat(h.fd, name, target)
	return string(target[:max(n, 0)]), err
}
