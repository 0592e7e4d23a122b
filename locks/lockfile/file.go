package lockfile

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"golock/internal/eintr"
	"golock/locks"
	"golock/locks/kernel"
)

// openFile opens a file, and never blocks on a FIFO. It gives a new file the mode that flock(1) gives.
func openFile(path string, flags int) (fd int, err error) {
	return eintr.Get(func() (int, error) {
		return unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0o666)
	})
}

// setLock locks the whole file, also the part by which it grows later. kind is F_RDLCK, F_WRLCK or
// F_UNLCK, which unlocks the file.
func (f Family) setLock(fd int, kind int16, wait bool) error {
	if f == Flock {
		how := flockOperation(kind)
		if !wait {
			how |= unix.LOCK_NB
		}
		return eintr.Repeat(func() error { return unix.Flock(fd, how) })
	}
	command := unix.F_OFD_SETLK
	if wait {
		command = unix.F_OFD_SETLKW
	}
	return eintr.Repeat(func() error { return unix.FcntlFlock(uintptr(fd), command, &unix.Flock_t{Type: kind}) })
}

// flockOperation returns the operation of flock(2) for a kind of lock of fcntl(2).
func flockOperation(kind int16) int {
	switch kind {
	case unix.F_RDLCK:
		return unix.LOCK_SH
	case unix.F_WRLCK:
		return unix.LOCK_EX
	}
	return unix.LOCK_UN
}

// maxMoves limits how often in a row the file may be removed or replaced while it is being locked.
const maxMoves = 100

// lock opens the file to which the path leads, and locks it. Without wait it fails with
// kernel.ErrTaken instead of waiting.
func (s *Store) lock(kind int16, wait bool) (int, error) {
	access := unix.O_RDONLY
	if s.family == Fcntl && kind == unix.F_WRLCK {
		access = unix.O_RDWR // an exclusive lock needs a descriptor for writing (fcntl(2))
	}
	var opened, atPath unix.Stat_t
	for range maxMoves {
		fd, err := s.open(access, &opened)
		if err == unix.EEXIST {
			continue // another process has just made the file
		}
		if err != nil {
			return -1, err
		}
		s.waiting.Add(1)
		err = s.setLock(fd, kind, wait)
		s.waiting.Add(-1)
		if err == nil && unix.Stat(s.path, &atPath) == nil && kernel.SameFile(&atPath, &opened) {
			return fd, nil
		}
		unix.Close(fd)
		// If no call failed, the path leads to another file now, or stat(2) has failed: then the next open
		// reports why.
		switch {
		case (err == unix.EBADF || err == unix.EIO) && access == unix.O_RDONLY && kind == unix.F_WRLCK:
			// On NFS version 4 a flock is a record lock, which needs a descriptor for writing. flock(1) opens
			// the file again for writing, too.
			access = unix.O_RDWR
		case err == unix.EWOULDBLOCK || err == unix.EACCES:
			return -1, kernel.ErrTaken
		case err != nil:
			return -1, s.lockError(err)
		}
	}
	return -1, &locks.PathError{Path: s.path, Err: errors.New("it is removed or replaced again and again")}
}

func (s *Store) lockError(err error) error {
	e := &locks.PathError{Op: "lock", Path: s.path, Err: err}
	switch err {
	case unix.EINVAL, unix.ENOTSUP, unix.ENOLCK, unix.ENOSYS:
		e.Hint = "this file system has no " + string(s.family) + " locks, or no more of them"
	case unix.EBADF, unix.EIO:
		e.Hint = "the file system demands the right to write"
	}
	return e
}

// open opens the file, and makes it if it does not exist. It sets O_CREAT only then, because in a
// sticky directory fs.protected_regular forbids O_CREAT for files of other users (proc(5)). The error
// EEXIST says that another process has made or replaced the file meanwhile. st receives the result of
// fstat(2).
func (s *Store) open(access int, st *unix.Stat_t) (int, error) {
	create := unix.O_CREAT | unix.O_EXCL
	if unix.Lstat(s.path, st) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
		// With a symbolic link, another user could choose the file. If fs.protected_symlinks is set, the
		// kernel refuses such links in sticky directories (proc(5)).
		if st.Uid != 0 && st.Uid != uint32(os.Geteuid()) {
			foreign := fmt.Errorf("is a symbolic link of user %d", st.Uid)
			return -1, &locks.PathError{Path: s.path, Err: foreign, Hint: "name the target of the link"}
		}
		create = unix.O_CREAT // O_EXCL follows no link
	}
	// open checks the kind before it opens the file, because opening a device can have effects.
	if unix.Stat(s.path, st) == nil {
		if err := s.checkKind(st); err != nil {
			return -1, err
		}
	}
	fd, err := s.openFile(s.path, access)
	if err == unix.ENOENT {
		fd, err = s.openFile(s.path, access|create)
		if err == unix.EEXIST || err == unix.EACCES && unix.Stat(s.path, st) == nil {
			return -1, unix.EEXIST
		}
	}
	if err != nil {
		return -1, s.openError(err)
	}
	if err := unix.Fstat(fd, st); err != nil || s.checkKind(st) != nil {
		unix.Close(fd)
		return -1, unix.EEXIST // the file was replaced after stat(2)
	}
	return fd, nil
}

func (s *Store) openError(err error) error {
	e := &locks.PathError{Op: "open", Path: s.path, Err: err}
	switch err {
	case unix.ENOENT:
		e.Hint = "the directory must be there"
	case unix.EACCES, unix.EPERM, unix.EROFS:
		e.Hint = "creating the file needs the right to write the directory; locking an existing one, the right to read it"
		if s.family == Fcntl {
			e.Hint = "an exclusive fcntl lock needs the right to write the file; creating the file, the right to write the directory"
		}
	}
	return e
}

// checkKind accepts regular files. For flock it also accepts directories and block devices: systemd
// and udev leave a disk alone whose node has a flock (https://systemd.io/BLOCK_DEVICE_LOCKING).
func (s *Store) checkKind(st *unix.Stat_t) error {
	kind := st.Mode & unix.S_IFMT
	switch {
	case kind == unix.S_IFREG, (kind == unix.S_IFDIR || kind == unix.S_IFBLK) && s.family == Flock:
		return nil
	case kind == unix.S_IFBLK:
		return &locks.PathError{Path: s.path, Err: errors.New("is a block device"), Hint: "use flock://, as systemd and udev do"}
	case kind == unix.S_IFDIR:
		return &locks.PathError{Path: s.path, Err: errors.New("is a directory, which has no fcntl locks"), Hint: "name a file in it, or use flock://"}
	}
	return &locks.PathError{Path: s.path, Err: errors.New("is not a regular file")}
}
