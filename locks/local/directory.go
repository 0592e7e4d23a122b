package local

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"golock/internal/fdtable"
	"golock/locks"
)

// directory is an open lock directory.
type directory struct {
	fd     int
	path   string // as the kernel knows it, symbolic links resolved
	stat   unix.Stat_t
	exists bool // false: it was asked for to look only, and fd is -1
}

// roots are the parents of the default directory, in the order of preference. Tests
// replace them.
type roots struct {
	run, lock, tmp string
	euid           int
	mountinfo      string
}

func systemRoots() roots {
	return roots{run: "/run", lock: "/run/lock", tmp: "/tmp", euid: os.Geteuid(), mountinfo: "/proc/self/mountinfo"}
}

// pick chooses the default directory by the user alone, so that cron, systemd and a login
// shell meet. The first that exists and belongs to the user is taken: /run/golock/UID,
// /run/lock/golock-UID, /tmp/golock-UID; else the first whose parent is fit: root owns it
// and nobody can remove there what others made.
func (r roots) pick() (string, error) {
	uid := strconv.Itoa(r.euid)
	own := r.run + "/golock"
	places := []struct {
		path   string
		parent string
		fit    bool
	}{
		{own + "/" + uid, own, r.shared(own) || (r.euid == 0 && r.rootOnly(own))},
		{r.lock + "/golock-" + uid, r.lock, r.shared(r.lock)},
		{r.tmp + "/golock-" + uid, r.tmp, r.shared(r.tmp)},
	}
	for _, p := range places {
		var st unix.Stat_t
		if p.fit && unix.Lstat(p.path, &st) == nil && st.Uid == uint32(r.euid) {
			return p.path, r.checkTmp(p.parent)
		}
	}
	if r.euid == 0 {
		// Root needs no package to have prepared the place.
		err := unix.Mkdir(own, 0o755)
		if err == nil {
			err = unix.Chmod(own, 0o755) // whatever the umask
		}
		if err == nil || err == unix.EEXIST {
			if r.rootOnly(own) || r.shared(own) {
				return places[0].path, nil
			}
		}
	}
	for _, p := range places {
		if p.fit {
			return p.path, r.checkTmp(p.parent)
		}
	}
	return "", &locks.PathError{Path: r.lock, Err: errors.New("no place for lock files: neither it nor " + own + " nor " + r.tmp + " is root's and open to all with the sticky bit"), Hint: "name a directory with --store local:///DIR"}
}

// shared reports a directory of root's that is open to all, with the sticky bit.
func (r roots) shared(path string) bool {
	var st unix.Stat_t
	return unix.Lstat(path, &st) == nil && st.Uid == 0 && st.Mode&(unix.S_IFMT|unix.S_ISVTX|0o002) == unix.S_IFDIR|unix.S_ISVTX|0o002
}

// rootOnly reports a directory in which only root can make files.
func (r roots) rootOnly(path string) bool {
	var st unix.Stat_t
	return unix.Lstat(path, &st) == nil && st.Uid == 0 && st.Mode&(unix.S_IFMT|0o022) == unix.S_IFDIR
}

// checkTmp refuses the private /tmp of a service (PrivateTmp= of systemd): locks there
// would exclude nobody else.
func (r roots) checkTmp(parent string) error {
	if parent != r.tmp {
		return nil
	}
	text, err := os.ReadFile(r.mountinfo)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		// 36 35 98:0 /root-of-mount /mount-point options ... (proc(5))
		field := strings.Fields(line)
		if len(field) > 4 && field[4] == r.tmp && field[3] != "/" && strings.Contains(field[3], "private") {
			return &locks.PathError{Path: r.tmp, Err: errors.New("is private to this service, so locks there exclude nobody else"), Hint: "have " + r.run + "/golock made at boot (tmpfiles.d: d /run/golock 1777 root root), or name a shared directory with --store local:///DIR"}
		}
	}
	return nil
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

// existingDirectory opens the lock directory to look into it; nil if there is none.
func (s *Store) existingDirectory() (*directory, error) {
	d, err := openDirectory(s.path, s.roots, false)
	if err != nil || !d.exists {
		return nil, err
	}
	return d, nil
}

// DefaultDirectory is where New("") keeps its lock files: a directory that only this
// user may enter, the same in every context of the user's. What else the user's golocks
// must find each other by can stand there too. With create a missing one is made.
func DefaultDirectory(create bool) (string, error) {
	d, err := openDirectory("", systemRoots(), create)
	if err != nil {
		return "", err
	}
	d.close()
	return d.path, nil
}

// Directories are the default directories of all users that exist, as long as each
// belongs to the user whom its name tells.
func Directories() (paths []string) {
	r := systemRoots()
	for _, place := range []struct{ parent, prefix string }{{r.run + "/golock", ""}, {r.lock, "golock-"}, {r.tmp, "golock-"}} {
		entries, _ := os.ReadDir(place.parent)
		for _, e := range entries {
			digits, ok := strings.CutPrefix(e.Name(), place.prefix)
			uid, err := strconv.ParseUint(digits, 10, 32)
			path := place.parent + "/" + e.Name()
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
	isDefault := path == ""
	if isDefault {
		var err error
		if path, err = r.pick(); err != nil {
			return nil, err
		}
	}
	flags := unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	if isDefault {
		flags |= unix.O_NOFOLLOW
	}
	fd, err := unix.Open(path, flags, 0)
	if err == unix.ENOENT {
		if !create {
			return &directory{fd: -1, path: path}, nil
		}
		switch err := unix.Mkdir(path, 0o700); {
		case err == nil:
			_ = unix.Chmod(path, 0o700) // whatever the umask
		case err != unix.EEXIST:
			return nil, &locks.PathError{Op: "mkdir", Path: path, Err: err}
		}
		fd, err = unix.Open(path, flags, 0)
	}
	if err != nil {
		return nil, &locks.PathError{Op: "open directory", Path: path, Err: err}
	}
	d := &directory{fd: fd, path: path, exists: true}
	if err := d.check(isDefault, r); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// check looks at what was opened, not at the path, which others may change.
func (d *directory) check(isDefault bool, r roots) error {
	st := &d.stat
	if err := unix.Fstat(d.fd, st); err != nil {
		return &locks.PathError{Op: "fstat", Path: d.path, Err: err}
	}
	if isDefault && st.Uid != uint32(r.euid) {
		return &locks.PathError{Path: d.path, Err: fmt.Errorf("belongs to user %d, not to %d", st.Uid, r.euid), Hint: "somebody took the place; have it removed, or name a directory with --store local:///DIR"}
	}
	if isDefault && st.Mode&0o022 != 0 {
		return &locks.PathError{Path: d.path, Err: fmt.Errorf("can be written by others (mode %04o)", st.Mode&0o7777), Hint: "chmod 700 " + d.path}
	}
	if kind, err := networkFS(d.fd, d.path); err != nil {
		return &locks.PathError{Op: "statfs", Path: d.path, Err: err}
	} else if kind != "" {
		return &locks.PathError{Path: d.path, Err: fmt.Errorf("is on %s, whose locks can be lost or are seen by one host only", kind), Hint: "take a directory on a local disk, or a networked store"}
	}
	if real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(d.fd)); err == nil && real[0] == '/' {
		d.path = real
	}
	return nil
}

func (d *directory) close() {
	if d.exists {
		unix.Close(d.fd)
	}
}
