//go:build !linux || !(amd64 || arm64) || portable

package spawn

import "syscall"

// Package entry knows nothing of the caller here: forkExec and replace are not called.

func forkExec(path string, argv, env []string, attr *syscall.SysProcAttr) (pid int, err error) {
	return 0, syscall.ENOSYS
}

func replace(path string, argv, env []string) error { return syscall.ENOSYS }
