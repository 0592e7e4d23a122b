package config

import (
	"io"
	"syscall"
)

// descriptor is an open file. It takes the place of os.File because opening the
// first one of those sets up the runtime's poller, and its system calls would be
// made at every start for nothing but the few bytes read here.
type descriptor int

// openFile returns the bare error of open(2).
func openFile(path string) (descriptor, error) {
	for {
		// Not to wait for the writer of a FIFO, not to get a controlling
		// terminal.
		fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
		if err != syscall.EINTR {
			return descriptor(fd), err
		}
	}
}

// Read follows io.Reader.
func (d descriptor) Read(p []byte) (int, error) {
	for {
		n, err := syscall.Read(int(d), p)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return 0, err
		case n == 0 && len(p) > 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

func (d descriptor) stat() (st syscall.Stat_t, err error) {
	err = syscall.EINTR
	for err == syscall.EINTR {
		err = syscall.Fstat(int(d), &st)
	}
	return st, err
}

// close has no error to report: nothing was written.
func (d descriptor) close() { _ = syscall.Close(int(d)) }
