package procfs

import (
	"slices"
	"strconv"
	"strings"
)

// Lock is a line of /proc/locks, or of the list of locks of one descriptor.
type Lock struct {
	Kind    string // FLOCK, POSIX, OFDLCK ...
	Waiting bool   // a process waits for this lock
	Shared  bool   // other processes may have a shared lock at the same time
	PID     int    // the process that locked; 0 if it is in another pid namespace, -1 if the kernel does not say
	File    string // MAJOR:MINOR:INODE; the device can differ from the one of stat(2)
	Start   string // the first byte of the locked range
}

// WholeList is a number of locks that fits into one page. The kernel gives a longer list in several
// reads, and the list may change between two of them. So a lock may be missing, or listed twice,
// once [Locks] returns WholeList locks or more.
const WholeList = 32

// Locks returns all locks that the kernel lists.
func Locks() []Lock {
	text, _ := Read("/proc/locks", 1<<14)
	return parseLocks(text, "")
}

// FDLocks returns the locks on the open file of a descriptor.
func FDLocks(pid, fd int) []Lock {
	text, _ := Read(Dir(pid)+"/fdinfo/"+strconv.Itoa(fd), 1<<10)
	return parseLocks(text, "lock:")
}

// parseLocks reads lines like "1: POSIX  ADVISORY  WRITE 1234 fe:00:5678 0 EOF", each after a
// prefix. An arrow before the kind marks a waiter.
func parseLocks(text, prefix string) (found []Lock) {
	for line := range strings.Lines(text) {
		line, isLock := strings.CutPrefix(line, prefix)
		if !isLock {
			continue
		}
		field := strings.Fields(line)
		waiting := len(field) > 1 && field[1] == "->"
		if waiting {
			field = slices.Delete(field, 1, 2)
		}
		if len(field) < 8 {
			continue
		}
		pid, _ := strconv.Atoi(field[4])
		found = append(found, Lock{
			Kind: field[1], Waiting: waiting, Shared: field[3] == "READ", PID: pid, File: field[5], Start: field[6],
		})
	}
	return found
}
