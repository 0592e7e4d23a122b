//go:build !linux || !(amd64 || arm64) || portable

package entry

import "syscall"

// Mask returns the caller's blocked signals, signal 1 in bit 0, and whether
// that is known.
func Mask() (set uint64, known bool) { return 0, false }

// Ignored returns the signals that the caller ignored, likewise.
func Ignored() (set uint64, known bool) { return 0, false }

// Environ returns the environment without duplicates.
func Environ() []string { return syscall.Environ() }
