// Package proctree finds the descendants of a process, and signals and kills them.
package proctree

import (
	"os"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"golock/internal/pidfd"
	"golock/internal/procfs"
)

// Process is a process of a list.
type Process = procfs.Stat

// Live lists the live processes. One that appears or ends meanwhile may be missing.
func Live() []Process {
	var list []Process
	for _, pid := range procfs.PIDs() {
		if p, err := procfs.ReadStat(pid); err == nil && p.Alive() {
			list = append(list, p)
		}
	}
	return list
}

// ownDescendants lists the live descendants of this process from the kernel's lists of children:
// much faster than Live on a large system, and just as incomplete. Where the kernel has no such
// lists it is Live.
func ownDescendants() (list []Process) {
	for next := []int{unix.Getpid()}; len(next) > 0; next = next[1:] {
		children, err := procfs.Children(next[0])
		if err != nil && next[0] == unix.Getpid() {
			return Live()
		}
		for _, pid := range children {
			if p, err := procfs.ReadStat(pid); err == nil && p.Alive() {
				list, next = append(list, p), append(next, pid)
			}
		}
	}
	return list
}

// Descendants picks from a list the children of root, their children, and so on, without those of
// the processes in except.
func Descendants(list []Process, root int, except []Process) []Process {
	children := map[int][]Process{}
	for _, p := range list {
		excepted := func(e Process) bool { return e.PID == p.PID && e.Start == p.Start }
		if !slices.ContainsFunc(except, excepted) {
			children[p.Parent] = append(children[p.Parent], p)
		}
	}
	found := children[root]
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i].PID]...)
	}
	return found
}

// Signal sends a signal to this very process, not to a later one of its number; to one that has
// ended it sends nothing, without an error. Where no descriptor can be opened it uses kill(2): the
// number cannot be reused that soon.
func Signal(p Process, sig unix.Signal) error {
	process, err := pidfd.Open(p.PID)
	if err == nil {
		defer process.Close()
	}
	now, unread := procfs.ReadStat(p.PID)
	switch {
	case unread != nil && !procfs.IsGone(unread): // it cannot be told from a later one
		return os.NewSyscallError("open", unread)
	case unread != nil, now.Start != p.Start:
		return nil
	}
	switch err {
	case nil:
		err = process.Signal(sig)
	case unix.ESRCH:
	default:
		err = unix.Kill(p.PID, sig)
	}
	if err == unix.ESRCH {
		return nil
	}
	return err
}

// KillDescendants kills all descendants of this process, without those of except, until the kernel
// says that no child is left. It stops them all first, so that none has children meanwhile. It
// calls collected for each one that has ended, and refused for each one that cannot be killed.
func KillDescendants(except []Process, collected func(pid int, ws syscall.WaitStatus), refused func(Process, error)) {
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		found := Descendants(ownDescendants(), unix.Getpid(), except)
		for _, p := range found {
			_ = Signal(p, unix.SIGSTOP) // if that fails, KILL does it, or is refused
		}
		for _, p := range found {
			if err := Signal(p, unix.SIGKILL); err != nil {
				refused(p, err)
			}
		}
		time.Sleep(wait)
		for {
			var ws syscall.WaitStatus
			pid, err := syscall.Wait4(-1, &ws, unix.WNOHANG, nil)
			if err == unix.ECHILD {
				return
			}
			if err != nil || pid <= 0 {
				break
			}
			collected(pid, ws)
		}
		if len(except) > 0 && len(found) == 0 {
			return
		}
	}
}

// BecomeSubreaper makes descendants whose parent dies children of this process instead of init's
// (prctl(2)).
func BecomeSubreaper() error {
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}

// CheckSubreaper fails if BecomeSubreaper would fail. It changes nothing.
func CheckSubreaper() error {
	var now int32
	err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, uintptr(now), 0, 0, 0)
	}
	return os.NewSyscallError("prctl", err)
}

// PeekEnded gives a child that has ended, and its wait status as wait4(2) would give it, but does
// not reap it. The pid is 0 if there is none.
func PeekEnded() (pid int, status syscall.WaitStatus, err error) {
	var info unix.Siginfo
	err = unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	if err != nil || info.Signo == 0 {
		return 0, 0, err
	}
	// What follows signo, errno and code, which are padded (sigaction(2)).
	const after = 2*4 + unsafe.Sizeof(uintptr(0))
	child := (*struct{ pid, uid, status int32 })(unsafe.Add(unsafe.Pointer(&info), after))
	status = syscall.WaitStatus(child.status)
	const exited, dumped = 1, 3 // CLD_EXITED, CLD_DUMPED
	switch info.Code {
	case exited:
		status <<= 8
	case dumped:
		status |= 0x80
	}
	return int(child.pid), status, nil
}
