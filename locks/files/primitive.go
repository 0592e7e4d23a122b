package files

import "golang.org/x/sys/unix"

// primitive makes a name that did not exist, atomically. What matters is the
// name; there is nothing in what it makes.
type primitive func(path string) error

func primitives(scheme string) primitive {
	switch scheme {
	case "mkdir":
		return func(path string) error { return again(func() error { return unix.Mkdir(path, 0o755) }) }
	case "symlink":
		return func(path string) error { return again(func() error { return unix.Symlink("golock", path) }) }
	}
	return createFile
}

// createFile is O_EXCL, which is atomic on NFS from version 3 on (open(2)).
func createFile(path string) error {
	fd := -1
	err := again(func() (err error) {
		fd, err = unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
		return err
	})
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// removeName takes away what any of the primitives has made: stores of all three
// may use one directory.
func removeName(path string) error {
	err := again(func() error { return unix.Unlink(path) })
	if err == unix.EISDIR || err == unix.EPERM {
		if dir := again(func() error { return unix.Rmdir(path) }); dir != unix.ENOTDIR {
			return dir
		}
	}
	return err
}

func rename(from, to string) error { return again(func() error { return unix.Rename(from, to) }) }

// again repeats a system call that a signal has interrupted.
func again(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}
