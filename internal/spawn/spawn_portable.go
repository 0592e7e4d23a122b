//go:build !linux || !(amd64 || arm64) || portable

package spawn

import "syscall"

// In this build package entry does not run, so Fork and Exec never call forkExec and replace.

func forkExec(path string, argv, env []string, attr *syscall.SysProcAttr) (pid int, err error) {
	return 0, syscall.ENOSYS
}

func replace(path string, argv, env []string) error { return syscall.ENOSYS }
