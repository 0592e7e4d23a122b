// Package spawn starts programs with what golock's caller would have started them with: the same
// signals are ignored and blocked, and the descriptors 0, 1 and 2 that the caller had closed are
// closed. Package syscall cannot: it gives a new process the default action of all signals that the
// Go runtime handles, and the runtime handles most of those that the caller ignored.
//
// It knows that only in a process that began in package entry. In others it is package syscall.
package spawn

import (
	"syscall"

	"golock/internal/entry"
)

// Fork starts the program at path in a new process. It inherits what is not close-on-exec. Of attr it
// heeds Setpgid, Pgid and Pdeathsig. In a process that did not begin in package entry, the new process
// has the blocked signals of the calling thread.
func Fork(path string, argv, env []string, attr *syscall.SysProcAttr) (pid int, err error) {
	if _, known := entry.Mask(); known {
		return forkExec(path, argv, env, attr)
	}
	return syscall.ForkExec(path, argv, &syscall.ProcAttr{Env: env, Files: []uintptr{0, 1, 2}, Sys: attr})
}

// Exec replaces this process by the program at path. It returns only if that fails. The new program
// has the blocked signals of the calling thread.
func Exec(path string, argv, env []string) error {
	if _, known := entry.Ignored(); known {
		return replace(path, argv, env)
	}
	return syscall.Exec(path, argv, env)
}
