// What flock(1) does, written in Go with nothing more: the least that any Go
// program costs that holds a lock while a command runs.
//
//	floor [-F] FILE COMMAND [ARG...]
package main

import (
	"os"
	"syscall"
)

func main() {
	args, flags := os.Args[1:], syscall.O_RDWR|syscall.O_CREAT|syscall.O_CLOEXEC
	exec := args[0] == "-F"
	if exec {
		args, flags = args[1:], flags&^syscall.O_CLOEXEC
	}
	fd, err := syscall.Open(args[0], flags, 0o600)
	for err == nil {
		if err = syscall.Flock(fd, syscall.LOCK_EX); err != syscall.EINTR {
			break
		}
		err = nil
	}
	if err != nil {
		os.Exit(69)
	}
	command := args[1:]
	if exec {
		_ = syscall.Exec(command[0], command, os.Environ())
		os.Exit(127)
	}
	pid, err := syscall.ForkExec(command[0], command, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		os.Exit(127)
	}
	var status syscall.WaitStatus
	for {
		if _, err = syscall.Wait4(pid, &status, 0, nil); err != syscall.EINTR {
			break
		}
	}
	os.Exit(status.ExitStatus())
}
