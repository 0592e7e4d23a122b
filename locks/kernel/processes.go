package kernel

import (
	"context"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/procfs"
	"golock/locks"
)

// enclosing is the run around this process that holds the lock. GOLOCK_HELD (Request.Within) alone is
// no proof: processes that an earlier run left behind have it too. Where an ancestor may not be looked
// into, or is outside of this pid namespace, it decides unless it is seen that others hold the lock.
func enclosing(ctx context.Context, l Lock, r locks.Request) *locks.Ref {
	if len(r.Within) == 0 {
		return nil
	}
	inside := &r.Within[len(r.Within)-1]
	if _, err := procfs.Self(); err != nil {
		return inside
	}
	hidden := !procfs.SeesAllAncestors()
	for _, pid := range append([]int{os.Getpid()}, procfs.Ancestors(os.Getpid())...) {
		isOpen, err := l.IsOpen(pid, r)
		if isOpen {
			return inside
		}
		hidden = hidden || os.IsPermission(err)
	}
	if hidden && !heldByOthers(ctx, l, r) {
		return inside
	}
	return nil
}

// heldByOthers reports whether every holder is seen and none is an ancestor of this process.
func heldByOthers(ctx context.Context, l Lock, r locks.Request) bool {
	entries, err := l.Entries(ctx, r.Name)
	if err != nil || len(entries) == 0 {
		return false
	}
	return !slices.ContainsFunc(entries, func(e locks.Entry) bool {
		if e.State != locks.Holding {
			return false
		}
		isAncestor, known := procfs.IsAncestor(e.PID)
		return e.PID == 0 || e.Orphaned || isAncestor || !known
	})
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
