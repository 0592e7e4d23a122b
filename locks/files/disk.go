package files

import (
	"errors"
	"io"
	"slices"

	"golang.org/x/sys/unix"

	"golock/internal/eintr"
	"golock/locks"
)

// errForeign is for what golock has not made.
var errForeign = errors.New("is neither a file nor a directory")

// openAt opens a file or directory, and nothing else that somebody may have put
// there: no symbolic link is followed, no FIFO waited for.
func openAt(dir int, name string, flags int) (fd int, err error) {
	fd, err = eintr.Get(func() (int, error) {
		return unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	})
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	err = eintr.Repeat(func() error { return unix.Fstat(fd, &st) })
	if kind := st.Mode & unix.S_IFMT; err == nil && kind != unix.S_IFREG && kind != unix.S_IFDIR {
		err = errForeign
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Bounds of what is read of files that others have written. A state of 1000 waiters
// has 120 kB.
const (
	maxFile  = 64 << 10
	maxState = 16 << 20
)

// readAt reads a file through a descriptor of its own: NFS asks the server then
// whether what it remembers is still true (close-to-open consistency, nfs(5)).
func readAt(dir int, name string, limit int) ([]byte, error) {
	fd, err := openAt(dir, name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	text := make([]byte, 0, 4<<10)
	for len(text) < limit {
		n, err := eintr.Get(func() (int, error) { return unix.Read(fd, text[len(text):cap(text)]) })
		if err != nil || n <= 0 {
			return text, err
		}
		text = slices.Grow(text[:len(text)+n], 512)
	}
	return text, nil
}

func readFile(path string) ([]byte, error) {
	text, err := readAt(unix.AT_FDCWD, path, maxFile)
	if err != nil {
		return nil, &locks.PathError{Op: "read", Path: path, Err: err}
	}
	return text, nil
}

// createAt makes a new file for those to whom the directory is open. What is
// there already was left by somebody who was killed, or put there by somebody
// else: it is not written to.
func createAt(dir int, name string, mode uint32, text []byte) error {
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL
	fd, err := openAt(dir, name, flags)
	if err == unix.EEXIST {
		_ = eintr.Repeat(func() error { return unix.Unlinkat(dir, name, 0) })
		fd, err = openAt(dir, name, flags)
	}
	if err != nil {
		return err
	}
	_ = unix.Fchmod(fd, mode&0o666) // some shared file systems have no modes
	return finishWrite(fd, text)
}

// finishWrite writes at the beginning of a file and closes it. On a networked
// file system it is the closing that tells whether the server has it.
func finishWrite(fd int, text []byte) error {
	n, err := eintr.Get(func() (int, error) { return unix.Pwrite(fd, text, 0) })
	if err == nil && n != len(text) {
		err = unix.ENOSPC
	}
	if closed := unix.Close(fd); err == nil && closed != unix.EINTR {
		err = closed
	}
	return err
}

// modeOf is the mode of a directory, for what is made in it.
func modeOf(path string) (uint32, error) {
	var st unix.Stat_t
	if err := eintr.Repeat(func() error { return unix.Stat(path, &st) }); err != nil {
		return 0, &locks.PathError{Op: "stat", Path: path, Err: err}
	}
	return st.Mode, nil
}

// makeFile makes a file that is open to the same users as a directory.
func makeFile(path, like string, text []byte) error {
	mode, err := modeOf(like)
	if err != nil {
		return err
	}
	if err := createAt(unix.AT_FDCWD, path, mode, text); err != nil {
		return &locks.PathError{Op: "create", Path: path, Err: err}
	}
	return nil
}

// makeDirectory makes a directory that is open to the same users as another one.
func makeDirectory(path, like string) error {
	mode, err := modeOf(like)
	if err != nil {
		return err
	}
	if err := makeDirectoryAt(unix.AT_FDCWD, path, mode); err != nil {
		return &locks.PathError{Op: "mkdir", Path: path, Err: err}
	}
	return nil
}

func makeDirectoryAt(dir int, name string, mode uint32) error {
	if err := eintr.Repeat(func() error { return unix.Mkdirat(dir, name, 0o700) }); err != nil {
		return err
	}
	// Whatever the umask. Some shared file systems have no modes to change.
	_ = unix.Fchmodat(dir, name, mode&0o2777, 0)
	return nil
}

// removeFile removes a file that may have gone.
func removeFile(path string) error {
	err := eintr.Repeat(func() error { return unix.Unlink(path) })
	if err != nil && err != unix.ENOENT {
		return &locks.PathError{Op: "remove", Path: path, Err: err}
	}
	return nil
}

func rename(from, to string) error {
	return eintr.Repeat(func() error { return unix.Rename(from, to) })
}

func exists(path string) (bool, error) {
	var st unix.Stat_t
	err := eintr.Repeat(func() error { return unix.Lstat(path, &st) })
	if err != nil && err != unix.ENOENT {
		return false, &locks.PathError{Op: "stat", Path: path, Err: err}
	}
	return err == nil, nil
}

// namesIn lists an open directory, in no order, from its beginning. A call that
// returns a full buffer is one moment of the directory.
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
	}
}

// readNames lists a directory, opened anew: see readAt.
func readNames(path string) ([]string, error) {
	fd, err := openAt(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, &locks.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	names, err := namesIn(fd)
	if err != nil {
		return nil, &locks.PathError{Op: "read", Path: path, Err: err}
	}
	return names, nil
}
