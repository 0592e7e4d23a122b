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

// Process is a process as [Live] or [Descendants] found it.
type Process = procfs.Stat

// Live lists the live processes. A process that starts or ends meanwhile may be missing.
func Live() []Process {
	var list []Process
	for _, pid := range procfs.PIDs() {
		if p, err := procfs.ReadStat(pid); err == nil && p.Alive() {
			list = append(list, p)
		}
	}
	return list
}

// candidates lists the live descendants of this process. It reads the kernel's lists of children,
// which is much faster than Live on a large system. Where the kernel has no such lists, it returns all
// live processes. A process that starts or ends meanwhile may be missing.
func candidates() (list []Process) {
	parents := []int{unix.Getpid()}
	for len(parents) > 0 {
		parent := parents[0]
		parents = parents[1:]
		children, err := procfs.Children(parent)
		if err != nil && parent == unix.Getpid() {
			return Live()
		}
		for _, pid := range children {
			if p, err := procfs.ReadStat(pid); err == nil && p.Alive() {
				list = append(list, p)
				parents = append(parents, pid)
			}
		}
	}
	return list
}

// Descendants picks from a list the children of root, their children, and so on. It leaves out the
// processes in except and their descendants.
func Descendants(list []Process, root int, except []Process) []Process {
	children := map[int][]Process{}
	for _, p := range list {
		isExcepted := func(e Process) bool { return e.PID == p.PID && e.Start == p.Start }
		if !slices.ContainsFunc(except, isExcepted) {
			children[p.Parent] = append(children[p.Parent], p)
		}
	}
	found := children[root]
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i].PID]...)
	}
	return found
}

// Signal sends a signal to the process p, never to a later process with the same PID. If p has
// ended, Signal does nothing and returns nil. Where no descriptor can be opened, it uses kill(2) right
// after the check: the kernel does not reuse a PID so soon.
func Signal(p Process, sig unix.Signal) error {
	process, openErr := pidfd.Open(p.PID)
	if openErr == nil {
		defer process.Close()
	}
	current, err := procfs.ReadStat(p.PID)
	switch {
	case err != nil && !procfs.IsGone(err): // without its start time, the process may be a later one
		return os.NewSyscallError("open", err)
	case err != nil, current.Start != p.Start, openErr == unix.ESRCH:
		return nil
	}
	if openErr == nil {
		err = process.Signal(sig)
	} else {
		err = unix.Kill(p.PID, sig)
	}
	if err == unix.ESRCH {
		return nil
	}
	return err
}

// KillDescendants kills all descendants of this process, except the processes in except and their
// descendants. It repeats that until none is left. It first stops them all, so that none starts
// children meanwhile. It calls collected for each child that has ended, and refused for each process
// that cannot be killed.
func KillDescendants(except []Process, collected func(pid int, ws syscall.WaitStatus), refused func(Process, error)) {
	wait := time.Millisecond
	for {
		found := Descendants(candidates(), unix.Getpid(), except)
		for _, p := range found {
			_ = Signal(p, unix.SIGSTOP) // KILL follows and reports an error
		}
		for _, p := range found {
			if err := Signal(p, unix.SIGKILL); err != nil {
				refused(p, err)
			}
		}
		time.Sleep(wait)
		wait = min(2*wait, 20*time.Millisecond)
		noChildIsLeft := reapEnded(collected)
		if noChildIsLeft {
			return
		}
		if len(except) > 0 && len(found) == 0 { // only the processes in except and their descendants are left
			return
		}
	}
}

// reapEnded reaps all children that have ended, and reports whether this process has no child any more.
func reapEnded(collected func(pid int, ws syscall.WaitStatus)) (noChildIsLeft bool) {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, unix.WNOHANG, nil)
		if err == unix.ECHILD {
			return true
		}
		if err != nil || pid <= 0 {
			return false
		}
		collected(pid, ws)
	}
}

// BecomeSubreaper makes this process the new parent of descendants whose parent dies. Without it,
// init would become their parent (PR_SET_CHILD_SUBREAPER(2const)).
func BecomeSubreaper() error {
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}

// CheckSubreaper fails if BecomeSubreaper would fail. It changes nothing.
func CheckSubreaper() error {
	var current int32
	err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&current)), 0, 0, 0)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, uintptr(current), 0, 0, 0)
	}
	return os.NewSyscallError("prctl", err)
}

// PeekEnded returns a child that has ended, and the status that wait4(2) would give, but does not
// reap the child. The pid is 0 if no child has ended.
func PeekEnded() (pid int, status syscall.WaitStatus, err error) {
	var info unix.Siginfo
	err = unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	if err != nil || info.Signo == 0 {
		return 0, 0, err
	}
	// The fields of the child follow signo, errno and code in siginfo_t, which are padded to the size of a
	// pointer (sigaction(2)).
	const offset = 2*4 + unsafe.Sizeof(uintptr(0))
	child := (*struct{ pid, uid, status int32 })(unsafe.Add(unsafe.Pointer(&info), offset))
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
