// Package fatal shortens how the Go runtime ends a process: instead of a stack dump and exit code 2,
// one line on standard error and exit code 70. The runtime does that where the kernel refuses it a
// thread, memory or a system call, which a limit or a seccomp profile may be the reason of, and for
// faults such as a panic in a goroutine of a library.
//
// A program imports this package for its effect. GOTRACEBACK=crash brings the dump back, and the
// process then dies of SIGABRT (see the documentation of package runtime).
package fatal

import (
	"os"
	"syscall"
	"unsafe"
)

const (
	exitFault = 70 // as in package cli

	standardError = 2

	begin = "golock: the Go runtime has failed: "
	end   = " (is it a limit or a seccomp profile? GOTRACEBACK=crash shows more)\n"

	// A watchdog is started with this name (runner.WatchdogName). golock itself says that it has failed.
	silent      = "golock-watchdog"
	commandLine = "/proc/self/cmdline\x00"
)

// overrideWrite is called by the runtime in place of write(2), for all that it writes itself
// (runtime/time_nofake.go). It has its value before the process begins.
//
//go:linkname overrideWrite runtime.overrideWrite
var overrideWrite = write

// line is what the runtime has said of its end, once that has begun.
var line struct {
	begun bool
	text  [400]byte
	size  int
}

func init() { //nolint:gochecknoinits // a program must not be able to forget it
	if os.Getenv("GOTRACEBACK") == "crash" {
		overrideWrite = nil
	}
}

// write writes to a descriptor, and returns the count or a negative errno. What the runtime says of
// its end comes in pieces, and the process ends with the first line of that. All else is written as
// it is: wake-ups of other threads, and what GODEBUG asks for.
//
// The runtime may not work any more, or not yet: write and what it calls must need no stack, no heap
// and no locks of it.
//
//go:nosplit
//go:norace
func write(fd uintptr, text unsafe.Pointer, size int32) int32 {
	if fd != standardError || !line.begun && !begins(text, size) {
		return systemWrite(fd, text, size)
	}
	for i := range int(size) {
		char := *(*byte)(unsafe.Add(text, i))
		if char == '\n' {
			addString(end)
			if !isSilent() {
				systemWrite(fd, unsafe.Pointer(&line.text), int32(line.size))
			}
			exit()
		}
		if line.size < len(line.text)-len(end) {
			add(unsafe.Pointer(&char), 1)
		}
	}
	return size
}

// begins reports whether this is the first piece of what the runtime says of its end, and begins the
// line if so.
//
//go:nosplit
//go:norace
func begins(text unsafe.Pointer, size int32) bool {
	isOne := hasPrefix(text, size, "runtime: ") || hasPrefix(text, size, "fatal") || hasPrefix(text, size, "panic") ||
		hasPrefix(text, size, "SIG") || hasPrefix(text, size, "futexwakeup")
	if !isOne {
		return false
	}
	line.begun = true
	addString(begin)
	return true
}

// isSilent reports whether this process leaves it to another one to say that it has failed.
//
//go:nosplit
//go:norace
func isSilent() bool {
	var name [len(silent)]byte
	path := uintptr(unsafe.Pointer(unsafe.StringData(commandLine)))
	fd, _, errno := syscall.RawSyscall6(syscall.SYS_OPENAT, 0, path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		return false
	}
	n, _, _ := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&name)), uintptr(len(name)))
	return hasPrefix(unsafe.Pointer(&name), int32(n), silent)
}

//go:nosplit
//go:norace
func hasPrefix(text unsafe.Pointer, size int32, prefix string) bool {
	if int(size) < len(prefix) {
		return false
	}
	for i := range len(prefix) {
		if *(*byte)(unsafe.Add(text, i)) != *(*byte)(unsafe.Add(unsafe.Pointer(unsafe.StringData(prefix)), i)) {
			return false
		}
	}
	return true
}

// add adds to the line. The caller makes sure of the room.
//
//go:nosplit
//go:norace
func add(text unsafe.Pointer, size int) {
	for i := range size {
		*(*byte)(unsafe.Add(unsafe.Pointer(&line.text), line.size)) = *(*byte)(unsafe.Add(text, i))
		line.size++
	}
}

//go:nosplit
//go:norace
func addString(text string) { add(unsafe.Pointer(unsafe.StringData(text)), len(text)) }

//go:nosplit
//go:norace
func systemWrite(fd uintptr, text unsafe.Pointer, size int32) int32 {
	n, _, errno := syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(text), uintptr(size))
	if errno != 0 {
		return -int32(errno)
	}
	return int32(n)
}

//go:nosplit
//go:norace
func exit() {
	for {
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, exitFault, 0, 0)
	}
}
