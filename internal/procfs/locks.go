package procfs

import (
	"slices"
	"strconv"
	"strings"
)

// Lock is a line of /proc/locks, or of the list of one descriptor.
type Lock struct {
	Kind    string // FLOCK, POSIX, OFDLCK ...
	Waiting bool   // the line is that of a waiter
	Shared  bool
	PID     int    // of its maker; 0: in another pid namespace, -1: the kernel does not say
	File    string // MAJOR:MINOR:INODE; the device can differ from stat(2)'s
	Start   string // the first byte
}

// parseLock reads a line like "1: POSIX  ADVISORY  WRITE 1234 fe:00:5678 0 EOF". An arrow before
// the kind marks a waiter.
func parseLock(line string) (l Lock, ok bool) {
	field := strings.Fields(line)
	if len(field) > 1 && field[1] == "->" {
		l.Waiting = true
		field = slices.Delete(field, 1, 2)
	}
	if len(field) < 8 {
		return Lock{}, false
	}
	l.Kind, l.Shared, l.File, l.Start = field[1], field[3] == "READ", field[5], field[6]
	l.PID, _ = strconv.Atoi(field[4])
	return l, true
}

// WholeList is more than Locks can have if the kernel gave them in several pieces, a page each. Then
// one may be missing, or there twice: the list may change between two pieces.
const WholeList = 32

// Locks are all locks that the kernel lists.
func Locks() []Lock {
	text, _ := Read("/proc/locks", 1<<14)
	return parseLocks(text)
}

func parseLocks(text string) (found []Lock) {
	for line := range strings.Lines(text) {
		if l, ok := parseLock(line); ok {
			found = append(found, l)
		}
	}
	return found
}

// FDLocks are the locks on the open file of a descriptor.
func FDLocks(pid, fd int) []Lock {
	text, _ := Read(Dir(pid)+"/fdinfo/"+strconv.Itoa(fd), 1<<10)
	var found []Lock
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "lock:"); ok {
			found = append(found, parseLocks(rest)...)
		}
	}
	return found
}
