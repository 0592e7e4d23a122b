package local

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Error is a lock directory or file that cannot be used.
type Error struct {
	Op   string // the system call, if one failed
	Path string
	Err  error
	Hint string // what the user can do, if that is known
}

func (e *Error) Error() string {
	s := e.Path + ": " + e.Err.Error()
	if e.Op != "" {
		s = e.Op + " " + s
	}
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// directory is an open lock directory.
type directory struct {
	fd       int
	users    atomic.Int32 // the store, and each place in one of its files
	path     string       // as the kernel knows it, symbolic links resolved
	mode     uint32
	owner    uint32
	ino, dev uint64
	readOnly bool // it does not exist and was asked for to look only: fd is -1
}

// lowestInherited is where the descriptors begin that the command inherits:
// scripts and make's jobserver use the low numbers.
const lowestInherited = 100

// roots are the places for the default directory, in the order of preference,
// and what they must look like. Tests replace them.
type roots struct {
	run, lock, tmp string
	euid           int
	mountinfo      string
}

func systemRoots() roots {
	return roots{run: "/run", lock: "/run/lock", tmp: "/tmp", euid: os.Geteuid(), mountinfo: "/proc/self/mountinfo"}
}

// pick chooses the default directory. It depends on the user and on nothing of
// the environment, so that cron, systemd and a login shell meet in one place:
// an own directory that exists already wins, in the order /run/golock/UID,
// /run/lock/golock-UID, /tmp/golock-UID; else the first whose parent is fit is
// made. Parents count only if root owns them and nobody can take away what
// others made there.
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
	return "", &Error{Path: r.lock, Err: errors.New("no place for lock files: neither it nor " + own + " nor " + r.tmp + " is root's and open to all with the sticky bit"), Hint: "name a directory with --store local:///DIR"}
}

// shared reports a directory in which everybody may make files that only they
// can remove.
func (r roots) shared(path string) bool {
	var st unix.Stat_t
	return unix.Lstat(path, &st) == nil && st.Uid == 0 && st.Mode&(unix.S_IFMT|unix.S_ISVTX|0o002) == unix.S_IFDIR|unix.S_ISVTX|0o002
}

// rootOnly reports a directory in which only root may make files.
func (r roots) rootOnly(path string) bool {
	var st unix.Stat_t
	return unix.Lstat(path, &st) == nil && st.Uid == 0 && st.Mode&(unix.S_IFMT|0o022) == unix.S_IFDIR
}

// checkTmp refuses a /tmp that only this process and its relatives see, as
// systemd's PrivateTmp= makes it: locks there would exclude nobody else.
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
			return &Error{Path: r.tmp, Err: errors.New("is private to this service, so locks there exclude nobody else"), Hint: "have " + r.run + "/golock made at boot (tmpfiles.d: d /run/golock 1777 root root), or name a shared directory with --store local:///DIR"}
		}
	}
	return nil
}

// openDirectory opens the lock directory: the default one if path is empty.
// With create a missing one is made (the last part of the path only), else the
// result says that there is none.
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
			return &directory{fd: -1, path: path, readOnly: true}, nil
		}
		switch err := unix.Mkdir(path, 0o700); {
		case err == nil:
			_ = unix.Chmod(path, 0o700) // whatever the umask
		case err != unix.EEXIST:
			return nil, &Error{Op: "mkdir", Path: path, Err: err}
		}
		fd, err = unix.Open(path, flags, 0)
	}
	if err != nil {
		return nil, &Error{Op: "open directory", Path: path, Err: err}
	}
	d := &directory{fd: fd, path: path}
	if err := d.check(isDefault, r); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return d, nil
}

// check looks at what was opened, not at the path, which others may change.
func (d *directory) check(isDefault bool, r roots) error {
	var st unix.Stat_t
	if err := unix.Fstat(d.fd, &st); err != nil {
		return &Error{Op: "fstat", Path: d.path, Err: err}
	}
	d.mode, d.owner, d.ino, d.dev = st.Mode, st.Uid, st.Ino, st.Dev
	if isDefault {
		if st.Uid != uint32(r.euid) {
			return &Error{Path: d.path, Err: fmt.Errorf("belongs to user %d, not to %d", st.Uid, r.euid), Hint: "somebody took the place; have it removed, or name a directory with --store local:///DIR"}
		}
		if st.Mode&0o022 != 0 {
			return &Error{Path: d.path, Err: fmt.Errorf("can be written by others (mode %04o)", st.Mode&0o7777), Hint: "chmod 700 " + d.path}
		}
	}
	if kind, err := r.networkFS(d.fd, &st); err != nil {
		return &Error{Op: "statfs", Path: d.path, Err: err}
	} else if kind != "" {
		return &Error{Path: d.path, Err: fmt.Errorf("is on %s, whose locks can be lost or are seen by one host only", kind), Hint: "take a directory on a local disk, or a networked store"}
	}
	if real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(d.fd)); err == nil && real[0] == '/' {
		d.path = real
	}
	return nil
}

// keep marks the directory as in use: systemd-tmpfiles leaves one alone that
// is flock'ed (tmpfiles.d(5)). If the cleaner is at work just now, so be it: a
// lock file that vanishes is noticed.
func (d *directory) keep() { _ = unix.Flock(d.fd, unix.LOCK_SH|unix.LOCK_NB) }

// inPlace reports whether the path still leads to this directory.
func (d *directory) inPlace() bool {
	var st unix.Stat_t
	return unix.Lstat(d.path, &st) == nil && st.Ino == d.ino && st.Dev == d.dev
}

func (d *directory) close() {
	if d.users.Add(-1) == 0 {
		unix.Close(d.fd)
	}
}

// highCopy moves a descriptor to a number that commands do not use themselves.
// It closes fd.
func highCopy(fd int) (int, error) {
	defer unix.Close(fd)
	for _, from := range []int{lowestInherited, 20, 3} { // a low limit of open files leaves less room
		high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, from)
		if err != unix.EINVAL && err != unix.EMFILE {
			return high, err
		}
	}
	return -1, unix.EMFILE
}
