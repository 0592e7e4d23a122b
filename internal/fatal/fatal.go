// Package fatal replaces the stack dump and exit code 2 of the Go runtime by one line on standard
// error and exit code 70. The runtime ends a process when the kernel refuses it a thread, memory or
// a system call, because of a limit or a seccomp profile. It also does so after a panic in a
// goroutine of a library.
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
	exitFault = 70 // the exit code of a fault, which package cli names too

	standardError = 2

	begin = "golock: the Go runtime has failed: "
	end   = " (is it a limit or a seccomp profile? GOTRACEBACK=crash shows more)\n"

	// These are the names of the processes that print nothing (runner.WatchdogName, ReleaserName): golock
	// reports that its watchdog has failed, and a releaser has nobody left to tell.
	watchdog    = "golock-watchdog"
	releaser    = "golock-releaser"
	commandLine = "/proc/self/cmdline\x00"
)

// overrideWrite is a variable of the runtime, which calls it instead of write(2) for all that the
// runtime itself writes (runtime/time_nofake.go). The linker sets its value, so no initialization
// has to run first.
//
//go:linkname overrideWrite runtime.overrideWrite
var overrideWrite = write

// line is the first line of the runtime's last message. hasBegun is set at the first piece of that
// message; size counts the bytes in text.
var line struct {
	hasBegun bool
	text     [400]byte
	size     int
}

func init() { //nolint:gochecknoinits // importing the package must be enough
	if os.Getenv("GOTRACEBACK") == "crash" {
		overrideWrite = nil
	}
}

// write writes to a descriptor, and returns the count or a negative errno. The runtime writes its
// last message in pieces. write collects them and ends the process after the first line. All other
// writes pass unchanged: those that wake the runtime's poller, and the text that GODEBUG asks for.
//
// The runtime may have failed, or may not have started. So write and the functions it calls use no
// stack growth, no heap and no locks of the runtime.
//
//go:nosplit
//go:norace
func write(fd uintptr, text unsafe.Pointer, size int32) int32 {
	isOfLastMessage := fd == standardError && (line.hasBegun || isLastMessage(text, size))
	if !isOfLastMessage {
		return systemWrite(fd, text, size)
	}
	if !line.hasBegun {
		line.hasBegun = true
		addString(begin)
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

// isLastMessage reports whether a text is the first piece of the message with which the runtime ends
// the process.
//
//go:nosplit
//go:norace
func isLastMessage(text unsafe.Pointer, size int32) bool {
	return hasPrefix(text, size, "runtime: ") || hasPrefix(text, size, "fatal") || hasPrefix(text, size, "panic") ||
		hasPrefix(text, size, "SIG") || hasPrefix(text, size, "futexwakeup")
}

// isSilent reports whether this process is a watchdog or a releaser, which print nothing.
//
//go:nosplit
//go:norace
func isSilent() bool {
	var name [len(watchdog)]byte
	path := uintptr(unsafe.Pointer(unsafe.StringData(commandLine)))
	fd, _, errno := syscall.RawSyscall6(syscall.SYS_OPENAT, 0, path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		return false
	}
	n, _, _ := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&name)), uintptr(len(name)))
	return hasPrefix(unsafe.Pointer(&name), int32(n), watchdog) || hasPrefix(unsafe.Pointer(&name), int32(n), releaser)
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

// add appends bytes to the line. The caller makes sure that the line has room for them.
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
