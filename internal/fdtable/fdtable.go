// Package fdtable chooses the numbers of the descriptors that a command inherits from golock.
package fdtable

import "golang.org/x/sys/unix"

// last is the highest number in the table of descriptors that a process begins with. For a higher
// number the kernel makes a larger table. A process with threads waits about 10 ms for that (an RCU
// grace period).
const last = 63

// MoveHigh moves a close-on-exec descriptor to the highest free number up to 63, because scripts and
// make's jobserver use the low ones. It returns the new number and closes fd. If no higher number is
// free, it returns fd.
func MoveHigh(fd int) int {
	for n := last; n > fd; n-- {
		if _, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0); err != unix.EBADF {
			continue
		}
		moved, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, n)
		if err != nil { // n is beyond the limit of open files
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
