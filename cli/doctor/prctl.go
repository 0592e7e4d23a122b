package doctor

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// prctl reads one of the process's attributes.
func prctl(option int, value *uintptr) error {
	return unix.Prctl(option, uintptr(unsafe.Pointer(value)), 0, 0, 0)
}
