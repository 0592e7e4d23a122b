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

	// kept is the number of old versions that golock does not remove. While a process lists the directory,
	// others make fewer new versions than that. So each listing contains a version that existed all the time.
	// All programs that use a directory must agree on this number.
	kept = 64

	// pruneParts says how often golock removes old versions: after each kept/pruneParts new ones.
	pruneParts = 8
)

func versionName(n int64) string { return versionPrefix + strconv.FormatInt(n, 10) }

func tempName(n int64) string { return fmt.Sprintf("%s%d.%x", tempPrefix, n, rand.Uint64()) }

// versionOf reads the number in the name of a version, or in a temporary name. prefix says which of the
// two it expects.
func versionOf(name, prefix string) (n int64, isOne bool) {
	text, hasPrefix := strings.CutPrefix(name, prefix)
	if prefix == tempPrefix {
		text, _, _ = strings.Cut(text, ".")
	}
	n, err := strconv.ParseInt(text, 10, 64)
	isNumber := err == nil && n > 0 && n < 1<<62 && strconv.FormatInt(n, 10) == text // no sign, no leading zeros
	return n, hasPrefix && isNumber
}

// handle is the directory of a name, opened for one attempt. So all reads and writes of the attempt go to
// the same directory, even if somebody puts another one in its place.
type handle struct {
	*directory
	fd int
}

func (d *directory) open() (*handle, error) {
	fd, err := openAt(unix.AT_FDCWD, d.path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, d.explainMissing(pathError("open", d.path, err))
	}
	return &handle{d, fd}, nil
}

func (h *handle) close() { unix.Close(h.fd) }

func (h *handle) fileError(op, name string, err error) error {
	return pathError(op, h.path+"/"+name, err)
}

// listing is the content of a name's directory.
type listing struct {
	names   []string
	highest int64 // the number of the highest version
}

// list lists the directory. Without a version in it, it returns the error of a missing directory.
func (h *handle) list() (l listing, err error) {
	h.store.hook("list")
	l.names, err = namesIn(h.fd)
	if err != nil {
		return l, h.fileError("read", "", err)
	}
	for _, name := range l.names {
		if n, ok := versionOf(name, versionPrefix); ok {
			l.highest = max(l.highest, n)
		}
	}
	if l.highest == 0 {
		return l, h.explainMissing(h.fileError("", versionPrefix, unix.ENOENT))
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

// readVersion returns the text of a version, whichever primitive has made it: mkdir makes a directory,
// symlink a symbolic link. It returns ENOENT if the version has been removed.
func (h *handle) readVersion(n int64) ([]byte, error) {
	h.store.hook("read")
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
		number, isTemp := versionOf(target, tempPrefix)
		if !isTemp || number != n || strings.Contains(target, "/") {
			return nil, errForeign
		}
		return readAt(h.fd, target, maxState)
	}
	return text, err
}

// current reads the highest version. The state is nil if that version was removed meanwhile.
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
	case unix.ENOENT: // a later version has replaced it, or the listing shows a file that does not exist
		latest, listErr := h.list()
		if listErr != nil || latest.highest > l.highest {
			return nil, l, listErr
		}
	case errForeign: // reported as damaged below
	default:
		return nil, l, h.fileError("read", name, err)
	}
	if err != nil {
		return nil, l, h.damaged(name, err)
	}
	return s, l, nil
}

// errTaken says that a version exists already.
var errTaken = errors.New("the version exists")

// commit makes the version after base. A process that was stopped for long could make a version whose
// number was removed already, and base could be such a version too. So a commit counts only if there
// are so few later versions that neither number can have been removed. Otherwise done is false: the step
// may have been done, and is repeated. After errTaken it was not done.
func (h *handle) commit(base int64, next *state) (done bool, err error) {
	n := base + 1
	h.store.hook("write")
	switch err := h.store.make(h, n, next); err {
	case nil:
	case unix.ENOENT: // an NFS client repeated a rename, or the temporary file was removed
		return false, nil
	case errTaken:
		return false, err
	default:
		return false, h.fileError(h.store.scheme, versionName(n), err)
	}
	l, err := h.list()
	if err != nil || l.highest-base >= h.store.kept {
		return false, err
	}
	if l.highest == n && n%max(h.store.kept/pruneParts, 1) == 0 {
		h.store.hook("prune")
		h.prune(l, len(next.entries) == 0)
	}
	return true, nil
}

// prune removes old versions, the oldest first, and the temporary files of these versions. If the queue
// is empty, it removes the notes about entries too.
func (h *handle) prune(l listing, isEmpty bool) {
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
		case n == 0 && isEmpty && strings.HasPrefix(name, seenPrefix):
			_ = unlinkAt(h.fd, name)
		}
	}
}

// remove removes a version, whichever primitive has made it: stores with different primitives may use one
// directory. It ignores errors.
func (h *handle) remove(name string) {
	err := unlinkAt(h.fd, name)
	isDirectory := err == unix.EISDIR || err == unix.EPERM
	if !isDirectory {
		return
	}
	dir, err := openAt(h.fd, name, unix.O_RDONLY|unix.O_DIRECTORY) // follows no link
	if err == nil {
		_ = unlinkAt(dir, stateFile)
		unix.Close(dir)
	}
	_ = unix.Unlinkat(h.fd, name, unix.AT_REMOVEDIR)
}

// makeVersion makes version n under a temporary name, and gives it its final name by the store's
// primitive. It fails with errTaken if the final name exists: rename(2) of a directory fails if the target
// is a directory with files.
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
		h.store.hook("commit")
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
	if err == unix.EEXIST && h.isLinkTo(name, temp) {
		err = nil // an NFS client repeated the request, and the first one had made the link
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

// isLinkTo reports whether a version is a symbolic or a hard link to a temporary file.
func (h *handle) isLinkTo(name, temp string) bool {
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
