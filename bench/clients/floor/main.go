// This program does what flock(1) does, and nothing more: the least that any Go
// program costs that holds a lock while a command runs.
//
//	floor FILE COMMAND [ARG...]
package main

import (
	"os"
	"syscall"
)

func main() {
	fd, err := syscall.Open(os.Args[1], syscall.O_RDWR|syscall.O_CREAT|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		os.Exit(69)
	}
	for err = syscall.EINTR; err == syscall.EINTR; {
		err = syscall.Flock(fd, syscall.LOCK_EX)
	}
	if err != nil {
		os.Exit(69)
	}
	attr := syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}}
	pid, err := syscall.ForkExec(os.Args[2], os.Args[2:], &attr)
	if err != nil {
		os.Exit(127)
	}
	var status syscall.WaitStatus
	for err = syscall.EINTR; err == syscall.EINTR; {
		_, err = syscall.Wait4(pid, &status, 0, nil)
	}
	os.Exit(status.ExitStatus())
}
