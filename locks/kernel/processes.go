package kernel

import (
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/procfs"
	"golock/locks"
)

// enclosing is the run around this process that holds the lock. isOpen tells whether
// a process has the lock open. GOLOCK_HELD (Request.Within) alone is no proof: processes
// that an earlier run left behind have it too.
func enclosing(r locks.Request, isOpen func(pid int, r locks.Request) (bool, error)) *locks.Ref {
	if len(r.Within) == 0 {
		return nil
	}
	for _, pid := range append([]int{os.Getpid()}, procfs.Ancestors(os.Getpid())...) {
		// A process that may not be looked into counts as having it.
		if yes, err := isOpen(pid, r); yes || os.IsPermission(err) {
			return &r.Within[len(r.Within)-1]
		}
	}
	return nil
}

// Roots keeps those live processes of a list whose parent is not in it: of several
// that have a file open, the one that opened it.
func Roots(pids []int) []int {
	var roots []int
	for _, pid := range pids {
		if s, _ := procfs.ReadStat(pid); s.Alive() && !slices.Contains(pids, s.Parent) {
			roots = append(roots, pid)
		}
	}
	return roots
}

// Describe fills in what the kernel tells about a process; 0 stands for one that is
// not known. Its age counts from the start of the process: nobody records when it took a lock. It reports
// false if the process is gone.
func Describe(e *locks.Entry, pid int) bool {
	e.PID, e.UID = pid, -1
	e.Host, _ = os.Hostname()
	s, _ := procfs.ReadStat(pid)
	if pid == 0 || !s.Alive() {
		return false
	}
	e.SetAge(time.Duration(locks.BootTime()) - time.Duration(s.Start)*procfs.Tick)
	e.UID, e.Command = procfs.EffectiveUID(pid), procfs.Command(pid)
	return true
}

// SameFile reports whether two stat(2) results are of one file.
func SameFile(a, b *unix.Stat_t) bool { return a.Ino == b.Ino && a.Dev == b.Dev }
