package local

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"golock/internal/fdtable"
	"golock/internal/userns"
	"golock/locks"
)

// directory is an open lock directory.
type directory struct {
	fd     int
	path   string // as the kernel knows it, symbolic links resolved
	stat   unix.Stat_t
	exists bool // false: it was asked for to look only, and fd is -1
	isMade bool // it was missing
}

// roots are the parents of the default directory. Tests replace them.
type roots struct {
	run, lock, tmp string
	euid           int    // who runs golock
	user           int    // whose directory it is: the same, or who that is outside of a user namespace
	root           uint32 // owner of root's directories
	mountOf        func(path string) (locks.Mount, error)
	isPrivate      func(path string) bool // see isPrivate
}

func systemRoots() roots {
	root, _ := userns.Root()
	return roots{
		run: "/run", lock: "/run/lock", tmp: "/tmp", mountOf: locks.MountOf, isPrivate: isPrivate,
		euid: os.Geteuid(), user: userns.RealUser(os.Geteuid()), root: root,
	}
}

// parent is a directory that can contain default directories, each named PREFIX and UID.
type parent struct{ path, prefix string }

// parents are in the order of preference.
func (r roots) parents() [3]parent {
	return [3]parent{{r.run + "/golock", ""}, {r.lock, "golock-"}, {r.tmp, "golock-"}}
}

// pick chooses the default directory by the user alone, so that cron, systemd and a login
// shell meet: the first that exists and belongs to the user, else the first whose parent
// is safe.
func (r roots) pick() (string, error) {
	uid := strconv.Itoa(r.user)
	for _, p := range r.parents() {
		path := p.path + "/" + p.prefix + uid
		var st unix.Stat_t
		if !r.isSafe(p) || unix.Lstat(path, &st) != nil || st.Uid != uint32(r.euid) {
			continue
		}
		if p.path != r.tmp { // the usual case: nobody else makes it there, nor does golock where that is private
			return path, nil
		}
		return path, cmp.Or(r.checkTmp(p), r.checkPrivate(p))
	}
	prepared := r.parents()[0].path
	if r.user == 0 && r.isPrivate(prepared) {
		return "", r.refusePrivate(prepared)
	}
	if r.user == 0 && unix.Mkdir(prepared, 0o755) == nil { // root needs no package to have prepared it
		_ = unix.Chmod(prepared, 0o755) // whatever the umask
	}
	for _, p := range r.parents() {
		if r.isSafe(p) {
			return p.path + "/" + p.prefix + uid, cmp.Or(r.checkTmp(p), r.checkPrivate(p))
		}
	}
	return "", &locks.PathError{
		Path: r.lock, Hint: "name a directory with --store local:///DIR",
		Err: fmt.Errorf("no place for lock files: neither it nor %s nor %s is root's and open to all "+
			"with the sticky bit", prepared, r.tmp),
	}
}

// isSafe reports whether a parent belongs to root and lets nobody remove what others made
// in it. /run/golock may also be open to root alone: then only root uses it.
func (r roots) isSafe(p parent) bool {
	var st unix.Stat_t
	if unix.Lstat(p.path, &st) != nil || st.Uid != r.root || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false
	}
	return st.Mode&(unix.S_ISVTX|0o002) == unix.S_ISVTX|0o002 || p.prefix == "" && r.user == 0 && st.Mode&0o022 == 0
}

// checkTmp refuses the private /tmp of a service (PrivateTmp= of systemd): locks there
// would exclude nobody else.
func (r roots) checkTmp(p parent) error {
	if p.path != r.tmp {
		return nil
	}
	m, err := r.mountOf(r.tmp)
	if err != nil || m.Point != r.tmp || !strings.Contains(m.Root, "private") {
		return nil
	}
	return &locks.PathError{
		Path: r.tmp, Err: errors.New("is private to this service, so locks there exclude nobody else"),
		Hint: "have " + r.run + "/golock made at boot (tmpfiles.d: d /run/golock 1777 root root), " +
			"or name a shared directory with --store local:///DIR",
	}
}

// checkPrivate refuses a parent, or one that is preferred to it, that is another directory elsewhere on
// this machine. It looks only where no run has made the default directory yet, as that takes time.
func (r roots) checkPrivate(chosen parent) error {
	for _, p := range r.parents() {
		if r.isPrivate(p.path) {
			return r.refusePrivate(p.path)
		}
		if p == chosen {
			break
		}
	}
	return nil
}

func (r roots) refusePrivate(path string) error {
	return &locks.PathError{
		Path: path, Err: errors.New("is private to this process, process 1 sees another directory there: locks here exclude nobody else"),
		Hint: "in a systemd unit with TemporaryFileSystem=, BindPaths=" + r.parents()[0].path + "; or name a shared directory with --store local:///DIR",
	}
}

// isPrivate reports whether a path leads to another directory for process 1, although both have the
// same root: so it is in the sandbox of a systemd unit, or after unshare -m. A container has another
// root, or a process 1 of its own. What cannot be seen, in a chroot or where /proc hides process 1, is
// not private.
func isPrivate(path string) bool {
	own, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false
	}
	others, err := os.ReadFile("/proc/1/mountinfo")
	if err != nil || bytes.Equal(own, others) {
		return false
	}
	ours, theirs := locks.ParseMounts(string(own)), locks.ParseMounts(string(others))
	root, here, there := ours.Where("/"), ours.Where(path), theirs.Where(path)
	return root != "" && root == theirs.Where("/") && here != "" && there != "" && here != there
}

// openForUse opens the lock directory for an entry, makes it if it is missing, and marks
// it as in use: systemd-tmpfiles leaves a directory alone that is flock'ed
// (tmpfiles.d(5)). If the cleaner is at work just now, a lock file that vanishes is
// noticed.
func (s *Store) openForUse() (*directory, error) {
	d, err := openDirectory(s.path, s.roots, true)
	if err != nil {
		return nil, err
	}
	d.fd = fdtable.MoveHigh(d.fd)
	_ = unix.Flock(d.fd, unix.LOCK_SH|unix.LOCK_NB)
	return d, nil
}

// DefaultDirectory is where New("") keeps its lock files: a directory that only this
// user may enter, the same in every context of the user's. The sockets of holders are
// there too. With create a missing one is made.
func DefaultDirectory(create bool) (string, error) {
	r := systemRoots()
	r.isPrivate = func(string) bool { return false } // who asks a socket is in the same sandbox
	d, err := openDirectory("", r, create)
	if err != nil {
		return "", err
	}
	d.close()
	return d.path, nil
}

// Directories are the default directories of all users that exist, as long as each
// belongs to the user in its name.
func Directories() (paths []string) {
	for _, p := range systemRoots().parents() {
		entries, _ := os.ReadDir(p.path)
		for _, e := range entries {
			digits, ok := strings.CutPrefix(e.Name(), p.prefix)
			uid, err := strconv.ParseUint(digits, 10, 32)
			path := p.path + "/" + e.Name()
			var st unix.Stat_t
			if ok && err == nil && unix.Lstat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && uint64(st.Uid) == uid {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// openDirectory opens the lock directory: the default one if path is empty. With create
// a missing one is made (the last part of the path only).
func openDirectory(path string, r roots, create bool) (*directory, error) {
	flags := unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	isDefault := path == ""
	if isDefault {
		var err error
		if path, err = r.pick(); err != nil {
			return nil, err
		}
		flags |= unix.O_NOFOLLOW
	}
	isMade := false
	fd, err := unix.Open(path, flags, 0)
	if err == unix.ENOENT {
		if !create {
			return &directory{fd: -1, path: path}, nil
		}
		switch err := unix.Mkdir(path, 0o700); {
		case err == nil:
			isMade = true
			_ = unix.Chmod(path, 0o700) // whatever the umask
		case err != unix.EEXIST:
			return nil, &locks.PathError{Op: "mkdir", Path: path, Err: err, Hint: hintReadOnly(err, filepath.Dir(path))}
		}
		fd, err = unix.Open(path, flags, 0)
	}
	if err != nil && isDefault {
		if err := r.checkPlace(path); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, &locks.PathError{Op: "open directory", Path: path, Err: err}
	}
	d := &directory{fd: fd, path: path, exists: true, isMade: isMade}
	if err := d.check(isDefault, r); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// hintReadOnly is the remedy where a lock directory, or its parent, is read-only: most often a
// systemd unit with ProtectSystem=strict.
func hintReadOnly(err error, directory string) string {
	if err != unix.EROFS {
		return ""
	}
	if prepared := systemRoots().parents()[0].path; filepath.Dir(directory) == prepared {
		directory = prepared
	}
	return "in a systemd unit: ReadWritePaths=" + directory
}

// checkPlace says why a default directory that cannot be opened is none, if that is to be seen.
func (r roots) checkPlace(path string) error {
	var st unix.Stat_t
	switch err := unix.Lstat(path, &st); {
	case err != nil:
		return nil
	case st.Uid != uint32(r.euid):
		return r.refuseOwner(path, st.Uid)
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return &locks.PathError{Path: path, Err: errors.New("is not a directory"), Hint: "remove it"}
	}
	return nil
}

// refuseOwner refuses a default directory of another user. No other place is taken instead: runs
// that start when it has been removed would not find the locks there.
func (r roots) refuseOwner(path string, owner uint32) error {
	return &locks.PathError{
		Path: path, Err: fmt.Errorf("belongs to user %d, not to %d", owner, r.euid),
		Hint: "somebody took the place: as root, rm -r " + path + "; or name a directory with --store local:///DIR",
	}
}

// check looks at what was opened, not at the path, which others may change.
func (d *directory) check(isDefault bool, r roots) error {
	st := &d.stat
	if err := unix.Fstat(d.fd, st); err != nil {
		return &locks.PathError{Op: "fstat", Path: d.path, Err: err}
	}
	refuse := func(err error, hint string) error {
		return &locks.PathError{Path: d.path, Err: err, Hint: hint}
	}
	network, err := networkFS(d.fd, d.path)
	switch {
	case isDefault && st.Uid != uint32(r.euid):
		return r.refuseOwner(d.path, st.Uid)
	case isDefault && st.Mode&0o022 != 0:
		return refuse(fmt.Errorf("can be written by others (mode %04o)", st.Mode&0o7777), "chmod 700 "+d.path)
	case err != nil:
		return &locks.PathError{Op: "statfs", Path: d.path, Err: err}
	case network != "":
		return refuse(fmt.Errorf("is on %s, whose locks can be lost or are seen by one host only", network),
			"take a directory on a local disk, or a networked store")
	}
	if resolved, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(d.fd)); err == nil && resolved[0] == '/' {
		d.path = resolved
	}
	return nil
}

func (d *directory) close() {
	if d.exists {
		unix.Close(d.fd)
	}
}
