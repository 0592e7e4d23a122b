package signals

import (
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"golock/internal/entry"
	"golock/internal/spawn"
)

// CatchStop makes Next give the stop signal of the terminal, because a golock that waits must leave
// the queue before it stops. DropStop undoes it.
func (r *Relay) CatchStop() {
	if !ignored(unix.SIGTSTP) {
		r.catch([]syscall.Signal{unix.SIGTSTP})
	}
}

// DropStop restores the default action of the stop signal.
func (r *Relay) DropStop() {
	if !ignored(unix.SIGTSTP) {
		sigaction(unix.SIGTSTP, &action{}, nil)
	}
}

// StopJob stops this process as an uncaught SIGTSTP does, and returns when the process is continued. If
// shallStop reports false, StopJob does nothing. The kernel does not stop a process that nobody in the session could
// continue (an orphaned process group).
//
// The SIGTSTP is pending while StopJob calls shallStop, so that a SIGCONT that comes meanwhile
// discards it (signal(7)). Otherwise a job that was stopped and continued in between would stop once
// more.
func StopJob(shallStop func() bool) {
	if ignored(unix.SIGTSTP) {
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var previous action
	sigaction(unix.SIGTSTP, &action{}, &previous)
	defer sigaction(unix.SIGTSTP, &previous, nil)
	var mask uint64 = 1 << (unix.SIGTSTP - 1)
	var previousMask uint64
	sigprocmask(unix.SIG_BLOCK, &mask, &previousMask)
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGTSTP)
	if !shallStop() {
		sigaction(unix.SIGTSTP, &action{sigIgn}, nil) // ignoring it discards the pending signal
		sigaction(unix.SIGTSTP, &action{}, nil)
	}
	sigprocmask(unix.SIG_UNBLOCK, &mask, nil) // the process stops here
	sigprocmask(unix.SIG_SETMASK, &previousMask, nil)
}

// ignored reports whether the caller ignores sig and golock leaves it ignored. golock needs CHLD, and
// the Go runtime needs the faults. After a plain go build ignored can tell that only of HUP, INT and the
// signals of job control: the Go runtime installs handlers for the others before main starts.
func ignored(sig syscall.Signal) bool {
	if set, known := entry.Ignored(); known {
		return set&(1<<(sig-1)) != 0 && sig != unix.SIGCHLD && !IsFault(sig)
	}
	unhandled := []syscall.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGCONT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU}
	var current action
	return slices.Contains(unhandled, sig) && sigaction(sig, nil, &current) == 0 && current[0] == sigIgn
}

// Exec replaces this process by another program, with the signals as the caller left them. It is
// called before Catch, and returns only if it fails.
//
// Signals that package entry has blocked then act by default. The handlers of the Go runtime would
// drop most of them.
func Exec(path string, argv, env []string) error {
	for sig := syscall.Signal(1); sig <= rtMax; sig++ {
		var current action
		if !IsFault(sig) && sigaction(sig, nil, &current) == 0 && current[0] != sigIgn {
			sigaction(sig, &action{}, nil)
		}
	}
	if mask, known := entry.Mask(); known {
		sigprocmask(unix.SIG_SETMASK, &mask, nil)
	}
	return spawn.Exec(path, argv, env)
}

// Ignore ignores a signal from now on. It is for a process that starts no command, because children
// ignore the signal too.
func Ignore(sig syscall.Signal) { sigaction(sig, &action{sigIgn}, nil) }

const sigIgn = 1

// action is the kernel's struct sigaction with room to spare (rt_sigaction(2)): handler, flags,
// restorer and mask on 64-bit machines. All zero is the default action.
type action [16]uintptr

const setSize = 8 // bytes of a signal set, on all architectures but MIPS

func sigprocmask(how int, set, old *uint64) {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, uintptr(how), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), setSize, 0, 0)
}

func sigaction(sig syscall.Signal, set, old *action) syscall.Errno {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), setSize, 0, 0)
	return errno
}
