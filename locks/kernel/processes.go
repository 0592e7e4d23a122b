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

// enclosing returns the run around this process that holds the lock, or nil. The variable GOLOCK_HELD
// (Request.Within) alone proves nothing, because processes that an earlier run left behind have it
// too. So enclosing looks for this process or an ancestor with the lock's descriptor. If /proc hides
// an ancestor, or an ancestor is outside of this pid namespace, enclosing believes GOLOCK_HELD, unless
// it sees that all holders are other processes.
func enclosing(ctx context.Context, l Lock, r locks.Request) *locks.Ref {
	if len(r.Within) == 0 {
		return nil
	}
	inside := &r.Within[len(r.Within)-1]
	if _, err := procfs.Self(); err != nil {
		return inside
	}
	isHidden := !procfs.SeesAllAncestors()
	for _, pid := range append([]int{os.Getpid()}, procfs.Ancestors(os.Getpid())...) {
		isOpen, err := l.IsOpen(pid, r)
		if isOpen {
			return inside
		}
		isHidden = isHidden || os.IsPermission(err)
	}
	if isHidden && !heldByOthers(ctx, l, r) {
		return inside
	}
	return nil
}

// heldByOthers reports whether all holders are known and none is an ancestor of this process.
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

// Roots returns the live processes of a list whose parent is not in the list. Of the processes that
// have a file open, these have not inherited it from a parent that still has it.
func Roots(pids []int) []int {
	var roots []int
	for _, pid := range pids {
		if s, _ := procfs.ReadStat(pid); s.Alive() && !slices.Contains(pids, s.Parent) {
			roots = append(roots, pid)
		}
	}
	return roots
}

// Describe adds what the kernel tells about a process to an entry. It returns false if the process
// is gone, or if pid is 0 because the process is not known. The age counts from the start of the
// process, because nothing records when it took the lock.
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

// SameFile reports whether two results of stat(2) describe the same file.
func SameFile(a, b *unix.Stat_t) bool { return a.Ino == b.Ino && a.Dev == b.Dev }
