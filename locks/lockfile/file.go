package lockfile

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// system is what is asked of the kernel. A test puts a file system in its place
// that no machine for tests has.
type system struct {
	open   func(path string, flags int) (fd int, err error)
	lock   func(fd int, shared, wait bool) error
	unlock func(fd int) error
	close  func(fd int)
}

func kernelCalls(family Family) system {
	s := system{
		open: openFile,
		lock: flock,
		unlock: func(fd int) error {
			return again(func() error { return unix.Flock(fd, unix.LOCK_UN) })
		},
		close: func(fd int) { unix.Close(fd) },
	}
	if family == Fcntl {
		s.lock = func(fd int, shared, wait bool) error {
			kind, command := unix.F_WRLCK, unix.F_OFD_SETLK
			if shared {
				kind = unix.F_RDLCK
			}
			if wait {
				command = unix.F_OFD_SETLKW
			}
			return setLock(fd, command, kind)
		}
		s.unlock = func(fd int) error { return setLock(fd, unix.F_OFD_SETLK, unix.F_UNLCK) }
	}
	return s
}

// openFile never waits for a FIFO. A new file gets the mode that flock(1) would
// give it.
func openFile(path string, flags int) (fd int, err error) {
	err = again(func() (err error) {
		fd, err = unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0o666)
		return err
	})
	return fd, err
}

func flock(fd int, shared, wait bool) error {
	how := unix.LOCK_EX
	if shared {
		how = unix.LOCK_SH
	}
	if !wait {
		how |= unix.LOCK_NB
	}
	return again(func() error { return unix.Flock(fd, how) })
}

// setLock is about the whole file, however long it becomes.
func setLock(fd, command, kind int) error {
	lk := unix.Flock_t{Type: int16(kind)}
	return again(func() error { return unix.FcntlFlock(uintptr(fd), command, &lk) })
}

// again repeats a system call that a signal interrupted.
func again(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

var (
	errLocked = errors.New("is locked")
	errLeft   = errors.New("nobody waits for it any more")
)

// maxMoves is how often in a row the file may be removed or replaced while it
// is being locked.
const maxMoves = 100

// lock opens the file that the path leads to, and locks it. It waits for the
// lock, in the kernel, unless gone is nil; then errLocked says that it is taken.
// When gone is closed it does not begin to wait again.
func (s *Store) lock(shared bool, gone <-chan struct{}) (int, error) {
	access := unix.O_RDONLY
	if s.family == Fcntl && !shared {
		access = unix.O_RDWR // fcntl(2): an exclusive lock needs a descriptor for writing
	}
	for range maxMoves {
		fd, err := s.open(access)
		if err != nil {
			return -1, err
		}
		if gone != nil {
			s.sleepers.Add(1)
		}
		err = s.sys.lock(fd, shared, gone != nil)
		if gone != nil {
			s.sleepers.Add(-1)
		}
		if (err == unix.EBADF || err == unix.EIO) && access == unix.O_RDONLY && !shared {
			// NFS version 4 makes a flock a record lock, which needs a
			// descriptor for writing; flock(1) does the same.
			s.sys.close(fd)
			access = unix.O_RDWR
			continue
		}
		if err == nil {
			var here bool
			if here, err = s.inPlace(fd); err == nil && here {
				return fd, nil
			}
		}
		s.sys.close(fd)
		switch {
		case err == unix.EWOULDBLOCK || err == unix.EACCES:
			return -1, errLocked
		case err != nil:
			return -1, s.lockError(err)
		}
		select {
		case <-gone:
			return -1, errLeft
		default:
		}
	}
	return -1, &Error{Path: s.path, Err: errors.New("something removes or replaces it all the time")}
}

func (s *Store) lockError(err error) error {
	e := &Error{Op: "lock", Path: s.path, Err: err}
	switch err {
	case unix.EINVAL, unix.ENOTSUP, unix.ENOLCK, unix.ENOSYS:
		e.Hint = "this file system has no " + string(s.family) + " locks, or no more of them"
	case unix.EBADF, unix.EIO:
		e.Hint = "the file system wants the right to write"
	}
	return e
}

// open opens the file, and makes it if there is none. O_CREAT comes only when it
// is needed: fs.protected_regular forbids it for the files of other users in a
// sticky directory (proc(5)).
func (s *Store) open(access int) (int, error) {
	for range maxMoves {
		// What is no file is not even opened: with some devices that alone does
		// something.
		var st unix.Stat_t
		if err := s.checkLink(); err != nil {
			return -1, err
		}
		if unix.Stat(s.path, &st) == nil {
			if err := s.checkKind(&st); err != nil {
				return -1, err
			}
		}
		fd, err := s.sys.open(s.path, access)
		if err == unix.ENOENT {
			fd, err = s.create(access)
			if err == unix.EEXIST || err == unix.EACCES && unix.Stat(s.path, &st) == nil {
				continue // somebody else has just made it, and may have removed it by now
			}
		}
		if err != nil {
			return -1, s.openError(err)
		}
		if err := unix.Fstat(fd, &st); err != nil {
			s.sys.close(fd)
			return -1, &Error{Op: "fstat", Path: s.path, Err: err}
		}
		if err := s.checkKind(&st); err != nil {
			s.sys.close(fd)
			return -1, err
		}
		return fd, nil
	}
	return -1, &Error{Path: s.path, Err: errors.New("something makes and removes it all the time")}
}

// create makes the file. A symbolic link that leads nowhere is a place that
// somebody else has chosen for it, unless it is our own or root's.
func (s *Store) create(access int) (int, error) {
	fd, err := s.sys.open(s.path, access|unix.O_CREAT|unix.O_EXCL)
	var st unix.Stat_t
	if err != unix.EEXIST || unix.Lstat(s.path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK || isForeign(&st) {
		return fd, err
	}
	return s.sys.open(s.path, access|unix.O_CREAT)
}

// checkLink refuses a symbolic link that another user has made, as the kernel
// does in directories with the sticky bit if fs.protected_symlinks is set (proc(5)):
// the lock would be on a file of that user's choice.
func (s *Store) checkLink() error {
	var st unix.Stat_t
	if unix.Lstat(s.path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK || !isForeign(&st) {
		return nil
	}
	return &Error{Path: s.path, Err: fmt.Errorf("is a symbolic link of user %d", st.Uid), Hint: "name the file that it leads to"}
}

// isForeign reports whether something belongs neither to this user nor to root.
func isForeign(st *unix.Stat_t) bool { return st.Uid != 0 && st.Uid != uint32(os.Geteuid()) }

func (s *Store) openError(err error) error {
	e := &Error{Op: "open", Path: s.path, Err: err}
	switch err {
	case unix.ENOENT:
		e.Hint = "the directory must be there"
	case unix.EACCES, unix.EPERM, unix.EROFS:
		e.Hint = "to make the file takes the right to write the directory; to lock one that is there, the right to read it"
		if s.family == Fcntl {
			e.Hint = "an exclusive fcntl lock takes the right to write the file, and a missing file the right to write the directory"
		}
	}
	return e
}

// checkKind refuses what is no file. A directory can be locked by flock.
func (s *Store) checkKind(st *unix.Stat_t) error {
	kind := ""
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		if s.family == Flock {
			return nil
		}
		return &Error{Path: s.path, Err: errors.New("is a directory, which has no fcntl locks"), Hint: "name a file in it, or use flock://"}
	case unix.S_IFIFO:
		kind = "FIFO"
	case unix.S_IFSOCK:
		kind = "socket"
	default:
		kind = "device"
	}
	return &Error{Path: s.path, Err: fmt.Errorf("is a %s, not a file", kind)}
}

// inPlace reports whether the path still leads to the file of fd.
func (s *Store) inPlace(fd int) (bool, error) {
	var now, then unix.Stat_t
	if err := unix.Fstat(fd, &then); err != nil {
		return false, err
	}
	switch err := unix.Stat(s.path, &now); err {
	case nil:
		return now.Ino == then.Ino && now.Dev == then.Dev, nil
	case unix.ENOENT, unix.ENOTDIR:
		return false, nil
	default:
		return false, err
	}
}
