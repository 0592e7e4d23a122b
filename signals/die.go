package signals

import (
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
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
