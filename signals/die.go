package signals

import (
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"golock/internal/entry"
)

// DieOf ends this process by the default action of a signal, so that its parent sees that signal in
// the wait status. A shell then ends its script. DieOf returns if the signal does not end the
// process: the kernel spares process 1 of a PID namespace (pid_namespaces(7)).
//
// DieOf leaves no core file, because golock has no fault. A limit of 0 would not do: the kernel would
// still start a core handler (core(5)).
func DieOf(sig syscall.Signal) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	sigaction(sig, &action{}, nil)
	var mask uint64 = 1 << (sig - 1)
	sigprocmask(unix.SIG_UNBLOCK, &mask, nil)
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), sig) // a signal to this thread acts before Tgkill returns
}

// Ending lists the signals that end a program by default (signal(7)) and that the caller does not
// ignore, for a command of golock without a Relay. The Go runtime would drop most of them. The list
// lacks faults, PROF, which os/signal never gives, and PIPE: the runtime ends the program by it after a
// write to a standard output or error that is closed (package os/signal).
func Ending() (list []syscall.Signal) {
	for sig := syscall.Signal(1); sig <= rtMax; sig++ {
		isLeftToGo := sig == unix.SIGPIPE || sig == unix.SIGPROF || IsFault(sig)
		if EndsWaiting(sig) && !isLeftToGo && !ignored(sig) {
			list = append(list, sig)
		}
	}
	return list
}

// EndByDefault gives the signals of Ending their default action, for a command that has no work to
// undo and catches no signals.
func EndByDefault() {
	for _, sig := range Ending() {
		sigaction(sig, &action{}, nil)
	}
	// Package entry has blocked the signals. It is enough that this thread takes them.
	if mask, known := entry.Mask(); known {
		sigprocmask(unix.SIG_SETMASK, &mask, nil)
	}
}
