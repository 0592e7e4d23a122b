package files

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"golock/internal/eintr"
)

// The state of a name is the file of the highest version. A version is written under a temporary name,
// then gets its final name, which only one process can make.
const (
	versionPrefix = "v"
	tempPrefix    = "t" // followed by the number of the version, a dot, and a random number
	stateFile     = "state"

	// kept is the number of old versions that stay. Fewer are made while a process lists the directory,
	// so each listing contains a version that existed all the time. All programs that use a directory
	// must agree on this number.
	kept = 64

	// pruneParts is how often old versions are removed while kept new ones are made.
	pruneParts = 8
)

func versionName(n int64) string { return versionPrefix + strconv.FormatInt(n, 10) }

func tempName(n int64) string { return fmt.Sprintf("%s%d.%x", tempPrefix, n, rand.Uint64()) }

// versionOf reads a version's name, or the version that a temporary name contains.
func versionOf(name, prefix string) (int64, bool) {
	text, ok := strings.CutPrefix(name, prefix)
	if prefix == tempPrefix {
		text, _, _ = strings.Cut(text, ".")
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, ok && err == nil && n > 0 && n < 1<<62 && strconv.FormatInt(n, 10) == text
}

// handle is a name's directory, opened for one attempt: reads and writes go to the same
// directory, even if somebody puts another one in its place.
type handle struct {
	*directory
	fd int
}

func (d *directory) open() (*handle, error) {
	fd, err := openAt(unix.AT_FDCWD, d.path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, d.vanished(pathError("open", d.path, err))
	}
	return &handle{d, fd}, nil
}

func (h *handle) close() { unix.Close(h.fd) }

func (h *handle) fault(op, name string, err error) error { return pathError(op, h.path+"/"+name, err) }

// listing is the content of a name's directory.
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

// madeSince counts the versions after n, in a fresh listing.
func (d *directory) madeSince(n int64) (int64, error) {
	h, err := d.open()
	if err != nil {
		return 0, err
	}
	defer h.close()
	l, err := h.list()
	return l.highest - n, err
}

// readVersion returns the text of a version, made by any of the primitives. It returns ENOENT if the
// version has been removed.
func (h *handle) readVersion(n int64) ([]byte, error) {
	h.store.at("read")
	name := versionName(n)
	text, err := readAt(h.fd, name, maxState)
	switch err {
	case unix.EISDIR:
		return readAt(h.fd, name+"/"+stateFile, maxState)
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

// current reads the highest version. There is no state if it was removed meanwhile.
func (h *handle) current() (s *state, l listing, err error) {
	l, err = h.list()
	if err != nil {
		return nil, l, err
	}
	name := versionName(l.highest)
	text, err := h.readVersion(l.highest)
	switch err {
	case nil:
		s, err = parseState(text)
	case unix.ENOENT: // a later version has replaced it, or the listing names what cannot be read
		latest, failed := h.list()
		if failed != nil || latest.highest > l.highest {
			return nil, l, failed
		}
	case errForeign:
	default:
		return nil, l, h.fault("read", name, err)
	}
	if err != nil {
		return nil, l, h.damaged(name, err)
	}
	return s, l, nil
}

// errTaken says that a version exists already.
var errTaken = errors.New("the version exists")

// commit makes the version after base. A writer that was stopped for long could make a version whose
// number was removed already, and base could be such a version too. So a commit counts only if there
// are so few later versions that neither number can have been removed. Otherwise the step may or may not
// have been done, and is repeated. After errTaken it was not done.
func (h *handle) commit(base int64, next *state) (done bool, err error) {
	n := base + 1
	h.store.at("write")
	switch err := h.store.make(h, n, next); err {
	case nil:
	case unix.ENOENT: // NFS repeated a request, or the temporary name was removed
		return false, nil
	case errTaken:
		return false, err
	default:
		return false, h.fault(h.store.scheme, versionName(n), err)
	}
	l, err := h.list()
	if err != nil || l.highest-base >= h.store.kept {
		return false, err
	}
	if l.highest == n && n%max(h.store.kept/pruneParts, 1) == 0 {
		h.store.at("prune")
		h.prune(l, len(next.entries) == 0)
	}
	return true, nil
}

// prune removes old versions, the oldest first, with their temporary files. If the queue is empty, it
// removes the notes about entries too.
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
		n := madeFor(name)
		switch {
		case n > 0 && n <= l.highest-h.store.kept:
			h.remove(name)
		case n == 0 && empty && strings.HasPrefix(name, seenPrefix):
			_ = unlinkAt(h.fd, name)
		}
	}
}

// remove removes a version that any of the primitives has made, because stores with different primitives
// may use one directory. It ignores errors.
func (h *handle) remove(name string) {
	if err := unlinkAt(h.fd, name); err != unix.EISDIR && err != unix.EPERM {
		return
	}
	if dir, err := openAt(h.fd, name, unix.O_RDONLY|unix.O_DIRECTORY); err == nil { // follows no link
		_ = unlinkAt(dir, stateFile)
		unix.Close(dir)
	}
	_ = unix.Unlinkat(h.fd, name, unix.AT_REMOVEDIR)
}

// makeVersion makes version n under a temporary name and gives it its own by the store's
// primitive. That fails with errTaken if the name exists. Renaming a directory fails if
// the target is a directory that is not empty.
func makeVersion(h *handle, n int64, s *state) error {
	scheme, temp, name := h.store.scheme, tempName(n), versionName(n)
	file := temp
	st, err := stat(h.fd, "", unix.AT_EMPTY_PATH)
	if err == nil && scheme == "mkdir" {
		file = temp + "/" + stateFile
		err = makeDirectory(h.fd, temp, st.Mode)
	}
	if err == nil {
		err = createAt(h.fd, file, st.Mode, s.text())
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
		err = nil // NFS repeated the request, and met its own link
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

// isMadeOf reports whether a version is a symbolic or a hard link to a temporary file.
func (h *handle) isMadeOf(name, temp string) bool {
	if target, err := h.readLink(name); err == nil {
		return target == temp
	}
	st, err := stat(h.fd, temp, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Nlink == 2
}

func (h *handle) readLink(name string) (string, error) {
	target := make([]byte, 128)
	n, err := unix.Readlinkat(h.fd, name, target)
	return string(target[:max(n, 0)]), err
}
