// Package fdtable chooses the numbers of the descriptors that a command inherits from golock.
package fdtable

import "syscall"

// last is the highest number in the table of descriptors that a process begins with. For one
// beyond, the kernel makes a larger table, and a process with threads waits about 10 ms for that
// (an RCU grace period).
const last = 63

// MoveHigh gives a close-on-exec descriptor the highest free number up to 63, since scripts and
// make's jobserver use the low ones. It closes fd, unless it keeps its number.
func MoveHigh(fd int) int {
	for n := last; n > fd; n-- {
		if _, err := fcntl(n, syscall.F_GETFD, 0); err != syscall.EBADF {
			continue
		}
		moved, err := fcntl(fd, syscall.F_DUPFD_CLOEXEC, n)
		if err != 0 { // beyond the limit of open files
			continue
		}
		if moved > last { // another thread has just taken n
			_ = syscall.Close(moved)
			continue
		}
		_ = syscall.Close(fd)
		return moved
	}
	return fd
}

func fcntl(fd, command, argument int) (int, syscall.Errno) {
	result, _, err := syscall.RawSyscall(syscall.SYS_FCNTL, uintptr(fd), uintptr(command), uintptr(argument))
	return int(result), err
}
