package leasefile

import "golang.org/x/sys/unix"

// primitive makes a name that did not exist, atomically, and takes it away. What
// matters is the name; there is nothing in what it makes.
type primitive struct {
	create func(path string) error
	remove func(path string) error
}

func primitives(scheme string) primitive {
	switch scheme {
	case "mkdir":
		return primitive{
			create: func(path string) error { return again(func() error { return unix.Mkdir(path, 0o755) }) },
			remove: func(path string) error { return again(func() error { return unix.Rmdir(path) }) },
		}
	case "symlink":
		return primitive{
			create: func(path string) error { return again(func() error { return unix.Symlink("golock", path) }) },
			remove: unlink,
		}
	}
	return primitive{create: createFile, remove: unlink}
}

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

func unlink(path string) error { return again(func() error { return unix.Unlink(path) }) }

func rename(from, to string) error { return again(func() error { return unix.Rename(from, to) }) }

// again repeats a system call that a signal has interrupted.
func again(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}
