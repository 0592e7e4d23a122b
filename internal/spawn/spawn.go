// Package spawn starts programs as golock's caller would have started them: the same signals are
// ignored and blocked, and the standard descriptors that the caller had closed are closed. Package
// syscall cannot do that. It gives a new process the default action of all signals that the Go
// runtime handles, and the runtime handles most signals that the caller ignored.
//
// Only a process that began in package entry knows what its caller ignored. In other processes Fork
// and Exec do what package syscall does.
package spawn

import (
	"syscall"

	"golock/internal/entry"
)

// Fork starts the program at path in a new process, which inherits all descriptors that are not
// close-on-exec. Fork reads only Setpgid, Pgid and Pdeathsig of attr. In a process that did not begin
// in package entry, the new process blocks the signals that the calling thread blocks.
func Fork(path string, argv, env []string, attr *syscall.SysProcAttr) (pid int, err error) {
	if _, known := entry.Mask(); known {
		return forkExec(path, argv, env, attr)
	}
	return syscall.ForkExec(path, argv, &syscall.ProcAttr{Env: env, Files: []uintptr{0, 1, 2}, Sys: attr})
}

// Exec replaces this process by the program at path. It returns only if that fails. The new program
// blocks the signals that the calling thread blocks.
func Exec(path string, argv, env []string) error {
	if _, known := entry.Ignored(); known {
		return replace(path, argv, env)
	}
	return syscall.Exec(path, argv, env)
}
