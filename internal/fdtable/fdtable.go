// Package fdtable chooses the numbers of the descriptors that a command inherits from golock.
package fdtable

import "golang.org/x/sys/unix"

// last is the highest number in the table of descriptors that a process begins with. For one
// beyond, the kernel makes a larger table, and a process with threads waits about 10 ms for that
// (an RCU grace period).
const last = 63

// MoveHigh gives a close-on-exec descriptor the highest free number up to 63, since scripts and
// make's jobserver use the low ones. It closes fd, unless it keeps its number.
func MoveHigh(fd int) int {
	for n := last; n > fd; n-- {
		if _, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0); err != unix.EBADF {
			continue
		}
		moved, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, n)
		if err != nil { // beyond the limit of open files
			continue
		}
		if moved > last { // another thread has just taken n
			unix.Close(moved)
			continue
		}
		unix.Close(fd)
		return moved
	}
	return fd
}
