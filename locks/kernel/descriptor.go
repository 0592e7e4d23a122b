// Package kernel is what the stores have in common whose lock is an open file
// or socket of one machine, which other tools know too: the descriptor that the
// command inherits, and the search in /proc (proc(5)) for who has it open.
package kernel

import "golang.org/x/sys/unix"

// lowestInherited is where the descriptors begin that the command inherits:
// scripts and make's jobserver use the low numbers.
const lowestInherited = 100

// High moves a descriptor to a number that commands do not use themselves. The
// new one is close-on-exec; fd is closed in any case.
func High(fd int) (int, error) {
	defer unix.Close(fd)
	for _, from := range []int{lowestInherited, 20, 3} { // a low limit of open files leaves less room
		high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, from)
		if err != unix.EINVAL && err != unix.EMFILE {
			return high, err
		}
	}
	return -1, unix.EMFILE
}
