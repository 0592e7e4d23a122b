package signals

import (
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// jobControl returns the signals by which shell and kernel control the jobs of a terminal.
func jobControl() []syscall.Signal {
	return []syscall.Signal{unix.SIGCONT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGWINCH}
}

// Forwarded reports whether golock passes a signal that it gets on to the command. golock cannot
// catch KILL and STOP. CHLD, PIPE, URG and PROF concern golock itself; the Go runtime sends itself URG.
func Forwarded(sig syscall.Signal) bool {
	switch sig {
	case unix.SIGKILL, unix.SIGSTOP, unix.SIGCHLD, unix.SIGPIPE, unix.SIGURG, unix.SIGPROF:
		return false
	}
	return sig > 0 && sig <= rtMax && !IsFault(sig) && !isOfLibraries(sig)
}

// isOfLibraries reports whether sig is one of the first real-time signals, which C libraries use
// themselves: glibc two, musl three (signal(7)). golock ignores them.
func isOfLibraries(sig syscall.Signal) bool { return sig >= 32 && sig <= rtMin }

// FromTerminal reports whether kernel and shell send sig to every process of a job on a terminal.
func FromTerminal(sig syscall.Signal) bool {
	return sig == unix.SIGINT || sig == unix.SIGQUIT || sig == unix.SIGHUP || slices.Contains(jobControl(), sig)
}

// AsksToStop reports whether people and service managers use sig to end a program.
func AsksToStop(sig syscall.Signal) bool {
	return sig == unix.SIGINT || sig == unix.SIGTERM || sig == unix.SIGHUP || sig == unix.SIGQUIT
}

// EndsWaiting reports whether sig ends a golock that waits for a slot. Every signal does that ends a
// program by default (signal(7)).
func EndsWaiting(sig syscall.Signal) bool {
	if IsFault(sig) || sig == unix.SIGPIPE || sig == unix.SIGPROF {
		return true
	}
	return Forwarded(sig) && !slices.Contains(jobControl(), sig)
}

// faults returns the signals that the kernel sends for a fault of the process itself.
func faults() []syscall.Signal {
	return []syscall.Signal{unix.SIGILL, unix.SIGTRAP, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGSYS}
}

// mayBeSelfInflicted reports whether the kernel may send golock sig because of a write, or because of
// the processor time that golock has used.
func mayBeSelfInflicted(sig syscall.Signal) bool {
	return sig == unix.SIGPIPE || sig == unix.SIGXCPU || sig == unix.SIGXFSZ
}

// IsFault reports whether the kernel sends sig for a fault of the process. [Relay.Next] gives such a
// signal only if another process sent it.
func IsFault(sig syscall.Signal) bool { return slices.Contains(faults(), sig) }
