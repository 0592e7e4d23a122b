package files

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sys/unix"

	"golock/internal/eintr"
	"golock/locks"
)

// errForeign is the error of something that golock has not made.
var errForeign = errors.New("is neither a file nor a directory")

// pathError adds the operation and the path to an error. It returns nil for nil.
func pathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	failed := &locks.PathError{Op: op, Path: path, Err: err}
	if err == unix.EROFS {
		failed.Hint = "in a systemd unit the store's directory needs ReadWritePaths="
	}
	return failed
}

// openAt opens a file or directory. It refuses anything else that somebody may have put there: it follows
// no symbolic link and does not block on a FIFO.
func openAt(dir int, name string, flags int) (fd int, err error) {
	fd, err = eintr.Get(func() (int, error) {
		return unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	})
	if err != nil {
		return -1, err
	}
	st, err := stat(fd, "", unix.AT_EMPTY_PATH)
	kind := st.Mode & unix.S_IFMT
	if err == nil && kind != unix.S_IFREG && kind != unix.S_IFDIR {
		err = errForeign
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func stat(dir int, name string, flags int) (st unix.Stat_t, err error) {
	err = eintr.Repeat(func() error { return unix.Fstatat(dir, name, &st, flags) })
	return st, err
}

// These constants limit what golock reads of files that others have written.
const (
	maxFile   = 64 << 10 // bytes of the head
	maxRecord = 16 << 10 // bytes of a record: it has 1 KiB of a command, and JSON may write each byte as six
	maxState  = 4 << 20  // bytes of a state: one of 1000 waiters has 120 kB
	maxNames  = 1 << 18  // names in a directory
)

// errTooMany is the error of a directory with too many names.
var errTooMany = fmt.Errorf("has more than %d names: golock reads no larger directory; remove what does not belong there", maxNames)

// readAt reads a file up to about limit bytes. It opens the file anew, so that an NFS client asks the
// server whether its cache is still valid (close-to-open consistency, nfs(5)).
func readAt(dir int, name string, limit int) ([]byte, error) {
	fd, err := openAt(dir, name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	text := make([]byte, 0, 4<<10)
	for len(text) < limit {
		n, err := eintr.Get(func() (int, error) { return unix.Read(fd, text[len(text):cap(text)]) })
		if err == unix.EINVAL { // SMB says so of a file that another client has just removed
			err = unix.ESTALE
		}
		if err != nil || n <= 0 {
			return text, err
		}
		text = slices.Grow(text[:len(text)+n], 512)
	}
	return text, nil
}

// createAt makes a new file. Its permissions are those in mode, the mode of a directory. createAt replaces an
// existing file, which a killed process or somebody else may have left.
func createAt(dir int, name string, mode uint32, text []byte) error {
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL
	fd, err := openAt(dir, name, flags)
	if err == unix.EEXIST {
		_ = unlinkAt(dir, name)
		fd, err = openAt(dir, name, flags)
	}
	if err != nil {
		return err
	}
	_ = unix.Fchmod(fd, mode&0o666) // some shared file systems have no modes
	return finishWrite(fd, text)
}

// finishWrite writes at the beginning of a file and closes it. On a networked file
// system the close tells whether the server has the data.
func finishWrite(fd int, text []byte) error {
	n, err := eintr.Get(func() (int, error) { return unix.Pwrite(fd, text, 0) })
	if err == nil && n != len(text) {
		err = unix.ENOSPC
	}
	closeErr := unix.Close(fd)
	if err == nil && closeErr != unix.EINTR {
		err = closeErr
	}
	return err
}

// makeDirectory makes a directory. Its permissions are those in mode, the mode of another directory.
func makeDirectory(dir int, name string, mode uint32) error {
	if err := eintr.Repeat(func() error { return unix.Mkdirat(dir, name, 0o700) }); err != nil {
		return err
	}
	// The umask must not change the mode. Some shared file systems have no modes to change.
	_ = unix.Fchmodat(dir, name, mode&0o2777, 0)
	return nil
}

func unlinkAt(dir int, name string) error {
	return eintr.Repeat(func() error { return unix.Unlinkat(dir, name, 0) })
}

// namesIn lists an open directory, unsorted. It uses a large buffer, because each call of getdents(2) sees
// the directory at another moment.
func namesIn(fd int) (names []string, err error) {
	if _, err := unix.Seek(fd, 0, io.SeekStart); err != nil {
		return nil, err
	}
	buffer := make([]byte, 32<<10)
	for {
		n, err := eintr.Get(func() (int, error) { return unix.Getdents(fd, buffer) })
		if err != nil || n <= 0 {
			return names, err
		}
		_, _, names = unix.ParseDirent(buffer[:n], -1, names)
		if len(names) > maxNames {
			return nil, errTooMany
		}
	}
}

// readNames opens a directory anew, as readAt does, and lists it.
func readNames(path string) (names []string, err error) {
	fd, err := openAt(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err == nil {
		names, err = namesIn(fd)
		unix.Close(fd)
	}
	return names, pathError("read", path, err)
}
