package local

import (
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
	path   string // the path that the kernel shows, without symbolic links
	stat   unix.Stat_t
	exists bool // false if the directory does not exist and was opened only to look; fd is -1 then
	isMade bool // golock has made the directory because it was missing
}

// roots are the parents of the default directory. Tests use other ones.
type roots struct {
	run, lock, tmp string
	euid           int    // who runs golock
	user           int    // the user whose directory it is: the ID of euid outside of the user namespace, or userns.Unknown
	root           uint32 // owner of root's directories
	mountOf        func(path string) (locks.Mount, error)
	isPrivate      func(path string) bool // the function isPrivate
	isForSockets   bool                   // the directory is for sockets, so it may be private to this process
}

func systemRoots() roots {
	root, _ := userns.Root()
	return roots{
		run: "/run", lock: "/run/lock", tmp: "/tmp", mountOf: locks.MountOf, isPrivate: isPrivate,
		euid: os.Geteuid(), user: userns.RealUser(os.Geteuid()), root: root,
	}
}

// parent is a directory in which default directories may be. Their names are PREFIX and the UID.
type parent struct{ path, prefix string }

// parents returns the possible parents, the preferred one first.
func (r roots) parents() [3]parent {
	return [3]parent{{r.run + "/golock", ""}, {r.lock, "golock-"}, {r.tmp, "golock-"}}
}

// pick chooses the default directory. It depends only on the user, so that cron, systemd and a
// login shell use the same one. It is the first that exists and belongs to the user. If none
// exists, it is in the first parent that is safe.
func (r roots) pick() (string, error) {
	if r.user == userns.Unknown {
		return r.pickByOwner()
	}
	uid := strconv.Itoa(r.user)
	path, in, isPrivate := r.existing(uid)
	switch {
	case path != "" && isPrivate:
		return path, r.checkPrivate(in)
	case path != "" && in.path == r.tmp:
		// /tmp can be a volume, or private to a service, and any program may have put the directory there.
		return path, r.checkParent(in)
	case path != "":
		// Below /run, which is new with each boot, only golock makes such a directory, and it has checked the
		// parent then. Another check would cost each start time.
		return path, nil
	}
	prepared := r.parents()[0].path
	if r.user == 0 {
		err := r.makeParent(prepared)
		if err != nil {
			return "", err
		}
	}
	for _, p := range r.parents() {
		if r.isSafe(p) {
			return p.path + "/" + p.prefix + uid, r.checkParent(p)
		}
	}
	return "", &locks.PathError{
		Path: r.lock, Hint: "name a directory with --store local:///DIR",
		Err: fmt.Errorf("no place for lock files: neither it nor %s nor %s is root's and open to all "+
			"with the sticky bit", prepared, r.tmp),
	}
}

// existing returns the first default directory that exists and belongs to the user, and its parent. path is "" if
// there is none. isPrivate says that the directory was made for sockets where it was private (modeOfNew).
func (r roots) existing(uid string) (path string, in parent, isPrivate bool) {
	for _, p := range r.parents() {
		path = p.path + "/" + p.prefix + uid
		var st unix.Stat_t
		if r.isSafe(p) && unix.Lstat(path, &st) == nil && st.Uid == uint32(r.euid) {
			return path, p, st.Mode&privateMark != 0
		}
	}
	return "", parent{}, false
}

// privateMark is the mode bit of a default directory that was made for sockets in a sandbox. Without the mark a
// later run in the same sandbox would take it for a directory whose parent a run has checked. The bit has no
// other meaning there, because only the user may write to the directory.
const privateMark = unix.S_ISVTX

// modeOfNew returns the mode with which a default directory is made.
func (r roots) modeOfNew(path string) uint32 {
	const mode = 0o700
	for _, p := range r.parents() {
		if r.isForSockets && r.isPrivate(p.path) {
			return mode | privateMark
		}
		if filepath.Dir(path) == p.path {
			break
		}
	}
	return mode
}

// makeParent makes the preferred parent for root, if no package has prepared it.
func (r roots) makeParent(path string) error {
	if !r.isForSockets && r.isPrivate(path) {
		return r.refusePrivate(path)
	}
	err := unix.Mkdir(path, 0o755)
	if err == nil {
		_ = unix.Chmod(path, 0o755) // the umask must not change the mode
	}
	return nil
}

// pickByOwner chooses the default directory of a user whose ID on the host is not known: the directory that
// belongs to the user, if a run outside of the user namespace has made it. It makes none: a directory with
// the name of the ID in this namespace could belong to another user of the host.
func (r roots) pickByOwner() (string, error) {
	for _, p := range r.parents() {
		if !r.isSafe(p) {
			continue
		}
		for _, path := range directoriesIn(p) {
			var st unix.Stat_t
			if unix.Lstat(path, &st) == nil && st.Uid == uint32(r.euid) && st.Uid != r.root {
				return path, r.checkTmp(p)
			}
		}
	}
	return "", &locks.PathError{
		Path: r.lock, Err: errors.New("this user namespace hides which user of the host runs golock, and so the user's lock directory"),
		Hint: "run golock once outside of the namespace and show it " + r.run + " and " + r.tmp + "; or name a directory with --store local:///DIR",
	}
}

// isSafe reports whether a parent belongs to root, and nobody can remove what others have made in
// it. If only root may write /run/golock, only root uses it.
func (r roots) isSafe(p parent) bool {
	var st unix.Stat_t
	if unix.Lstat(p.path, &st) != nil || st.Uid != r.root || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false
	}
	isOpenAndSticky := st.Mode&(unix.S_ISVTX|0o002) == unix.S_ISVTX|0o002
	isForRootOnly := p.prefix == "" && r.user == 0 && st.Mode&0o022 == 0
	return isOpenAndSticky || isForRootOnly
}

// openForUse opens the lock directory for an entry, makes it if it is missing, and marks it as in
// use: systemd-tmpfiles(8) does not clean a directory that has a flock (tmpfiles.d(5)). If
// systemd-tmpfiles is cleaning it just now, golock notices later that its lock file has gone.
func (s *Store) openForUse() (*directory, error) {
	d, err := openDirectory(s.path, s.roots, doCreate)
	if err != nil {
		return nil, err
	}
	d.fd = fdtable.MoveHigh(d.fd)
	_ = unix.Flock(d.fd, unix.LOCK_SH|unix.LOCK_NB)
	return d, nil
}

// DefaultDirectory returns the directory in which New("") keeps its lock files. Only this user may
// enter it. cron, systemd and a login shell get the same one. Sockets of holders are there too. With
// create, a missing directory is made.
func DefaultDirectory(create bool) (string, error) {
	r := systemRoots()
	r.isForSockets = true
	d, err := openDirectory("", r, create)
	if err != nil {
		return "", err
	}
	d.close()
	return d.path, nil
}

// Directories returns the existing default directories of all users. It leaves out a directory that
// does not belong to the user in its name.
func Directories() (paths []string) {
	for _, p := range systemRoots().parents() {
		for _, path := range directoriesIn(p) {
			var st unix.Stat_t
			uid := strings.TrimPrefix(filepath.Base(path), p.prefix)
			if unix.Lstat(path, &st) == nil && strconv.FormatUint(uint64(st.Uid), 10) == uid {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// directoriesIn returns the directories in a parent that have the name of a default directory.
func directoriesIn(p parent) (paths []string) {
	entries, _ := os.ReadDir(p.path)
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), p.prefix)
		if _, err := strconv.ParseUint(digits, 10, 32); ok && err == nil && e.IsDir() {
			paths = append(paths, p.path+"/"+e.Name())
		}
	}
	return paths
}

// These are the values of the parameter create.
const (
	doNotCreate = false
	doCreate    = true
)

// openDirectory opens the lock directory, or the default one if path is empty. With create it makes
// a missing directory, but not the directories above it.
func openDirectory(path string, r roots, create bool) (*directory, error) {
	flags := unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	isDefault := path == ""
	if isDefault {
		var err error
		path, err = r.pick()
		if err != nil {
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
		mode := uint32(0o700)
		if isDefault {
			mode = r.modeOfNew(path)
		}
		mkdirErr := unix.Mkdir(path, mode)
		switch {
		case mkdirErr == nil:
			isMade = true
			_ = unix.Chmod(path, mode) // the umask must not change the mode
		case mkdirErr != unix.EEXIST:
			return nil, &locks.PathError{Op: "mkdir", Path: path, Err: mkdirErr, Hint: hintReadOnly(mkdirErr, filepath.Dir(path))}
		}
		fd, err = unix.Open(path, flags, 0)
	}
	if err != nil {
		if isDefault {
			if reason := r.explainOpenError(path); reason != nil {
				return nil, reason
			}
		}
		return nil, &locks.PathError{Op: "open directory", Path: path, Err: err}
	}
	d := &directory{fd: fd, path: path, exists: true, isMade: isMade}
	if err := d.check(isDefault, r); err != nil {
		d.close()
		return nil, err
	}
	d.resolvePath()
	return d, nil
}

// hintReadOnly is the remedy for a read-only lock directory or parent. Most often the cause is a
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

// explainOpenError returns the reason why a default directory cannot be opened, or nil if it finds none.
func (r roots) explainOpenError(path string) error {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	switch {
	case err != nil:
		return nil
	case st.Uid != uint32(r.euid):
		return r.refuseOwner(path, st.Uid)
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return &locks.PathError{Path: path, Err: errors.New("is not a directory"), Hint: "remove it"}
	}
	return nil
}

// refuseOwner refuses a default directory of another user. golock does not choose another parent
// then: runs that start after that directory was removed would not find the locks.
func (r roots) refuseOwner(path string, owner uint32) error {
	return &locks.PathError{
		Path: path, Err: fmt.Errorf("belongs to user %d, not to %d", owner, r.euid),
		Hint: "another user has taken the place: as root, rm -r " + path + "; or name a directory with --store local:///DIR",
	}
}

// check refuses a directory in which golock must not keep locks. It examines the open directory, not
// the path, because others may change what the path leads to.
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
		return refuse(fmt.Errorf("is on %s, where locks can be lost or only one host sees them", network),
			"take a directory on a local disk, or a networked store")
	}
	return nil
}

// resolvePath replaces the path by the one that the kernel shows for the descriptor.
func (d *directory) resolvePath() {
	resolved, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(d.fd))
	if err == nil && resolved[0] == '/' {
		d.path = resolved
	}
}

func (d *directory) close() {
	if d.exists {
		unix.Close(d.fd)
	}
}
