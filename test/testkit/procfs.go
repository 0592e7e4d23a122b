package testkit

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"golock/internal/procfs"
)

// StatOf reads about a process; the zero value means no such process.
func StatOf(pid int) procfs.Stat {
	s, _ := procfs.ReadStat(pid)
	return s
}

// Alive reports whether a process is there and is no zombie.
func Alive(pid int) bool { return StatOf(pid).Alive() }

// Stopped reports whether a process is stopped by a signal.
func Stopped(pid int) bool { return StatOf(pid).State == 'T' }

// Caught returns the signals that a process catches or blocks, as a mask.
func Caught(pid int) uint64 {
	return signalMask(pid, "SigCgt") | signalMask(pid, "SigBlk")
}

// Processes lists the processes that fit, zombies included.
func Processes(fit func(pid int) bool) []int {
	return slices.DeleteFunc(procfs.PIDs(), func(pid int) bool { return !fit(pid) })
}

// Children lists the children of a process, zombies included.
func Children(parent int) []int {
	return Processes(func(pid int) bool { return StatOf(pid).Parent == parent })
}

// GuardOf returns the watchdog of a golock on a store with leases, or 0 if it has none.
func GuardOf(golock int) int {
	for _, pid := range Children(golock) {
		if procfs.Status(pid, "Name") == "golock-watchdog" {
			return pid
		}
	}
	return 0
}

// AwaitGuard waits for the watchdog of a golock whose command may not run yet. The kernel's list of
// children may miss one while another one starts or ends.
func AwaitGuard(t testing.TB, golock int) (guard int) {
	t.Helper()
	Eventually(t, "there is a guard", func() bool {
		guard = GuardOf(golock)
		return guard != 0
	})
	return guard
}

// AwaitSleepers waits until n goroutines or processes sleep in the kernel on locks of a file: a waiter
// has looked then, and does nothing before it is woken.
func AwaitSleepers(t testing.TB, path string, n int) {
	t.Helper()
	var st unix.Stat_t
	Must(t, unix.Stat(path, &st))
	inode := ":" + strconv.FormatUint(st.Ino, 10)
	sleeps := func(l procfs.Lock) bool { return l.Waiting && strings.HasSuffix(l.File, inode) }
	Eventually(t, fmt.Sprintf("%d sleep on %s", n, path), func() bool {
		all := procfs.Locks()
		return len(all)-len(slices.DeleteFunc(all, sleeps)) == n
	})
}

// Describe is a line about processes, for failures.
func Describe(pids []int) string {
	var all []string
	for _, pid := range pids {
		asleep, _ := os.ReadFile(procfs.Dir(pid) + "/wchan")
		s := StatOf(pid)
		all = append(all, fmt.Sprintf("%d (child of %d, group %d, %c in %s) %.200q", pid, s.Parent,
			s.Group, s.State, asleep, strings.Join(procfs.Command(pid), " ")))
	}
	if all == nil {
		return "no processes"
	}
	return strings.Join(all, "; ")
}

func signalMask(pid int, key string) uint64 {
	mask, _ := strconv.ParseUint(procfs.Status(pid, key), 16, 64)
	return mask
}
