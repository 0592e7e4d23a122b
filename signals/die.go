package signals

import (
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"golock/internal/entry"
)

// DieOf ends this process by a signal, as one that does not catch it ends: its parent sees that, and
// a shell ends its script. It returns where the signal cannot end it: the kernel spares process 1 of
// a PID namespace (pid_namespaces(7)).
//
// There is no core file and no report to a core handler, which a limit of 0 would still start
// (core(5)): this process has no fault.
func DieOf(sig syscall.Signal) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	sigaction(sig, &action{}, nil)
	var mask uint64 = 1 << (sig - 1)
	sigprocmask(unix.SIG_UNBLOCK, &mask, nil)
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), sig) // to this thread: it has worked when Tgkill returns
}

// Ending lists the signals that end a program by default (signal(7)) and that the caller does not ignore,
// for a command without a Relay. The Go runtime would swallow most of them. PIPE is not among them: package
// os ends a program of it where that is right. PROF, which os/signal never gives, is not either.
func Ending() (list []syscall.Signal) {
	for sig := syscall.Signal(1); sig <= rtMax; sig++ {
		isOfGo := sig == unix.SIGPIPE || sig == unix.SIGPROF || IsFault(sig)
		if EndsWaiting(sig) && !isOfGo && !ignored(sig) {
			list = append(list, sig)
		}
	}
	return list
}

// EndByDefault has the signals of Ending end this process at once, for a command that has nothing to undo
// and catches nothing.
func EndByDefault() {
	for _, sig := range Ending() {
		sigaction(sig, &action{}, nil)
	}
	if mask, known := entry.Mask(); known { // package entry has blocked them; one thread is enough
		sigprocmask(unix.SIG_SETMASK, &mask, nil)
	}
}
