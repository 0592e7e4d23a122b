// Package entry saves what the Go runtime forgets about the caller: the signals that it had blocked
// and ignored, its limit of open files, and duplicate variables.
//
// The function start is the first code of the process. It runs before the runtime if the linker is
// told so (-ldflags '-E golock/internal/entry.start'). If the first argument is "run", start also
// blocks all signals that golock catches later: a signal of the first milliseconds stays pending
// until package signals unblocks it. After a plain go build, and on machines other than amd64 and
// arm64, start does not run and stack is nil.
//
// start also keeps the runtime from handling signals in a way that no caller expects: its handlers
// for QUIT, ABRT, STKFLT and faults end the process with code 2 and a stack dump. The runtime
// installs handlers through _cgo_sigaction, which exists for programs with cgo
// (runtime/cgo_sigaction.go). The runtime unblocks HUP INT QUIT ABRT TERM and STKFLT again: until
// package signals catches them they end golock, as they end any program.
package entry

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A set of signals has signal 1 in bit 0. All sets have constant values, because start runs before any
// initialization.

// faultSet is the set of ILL TRAP BUS FPE SEGV SYS.
const faultSet = 1<<3 | 1<<4 | 1<<6 | 1<<7 | 1<<10 | 1<<30 //nolint:unused // not used on machines where start is not written in assembly

// The assembly of start (start_*.s) reads and writes these variables before anything else runs.
var (
	// stack points to argc, argv, NULL, environment, NULL (System V ABI). It is nil if start has not run.
	stack unsafe.Pointer
	// startMask is the set that start blocks. It leaves out faults, PROF and URG, which the runtime uses,
	// and 32 and 33, which belong to the C library.
	startMask     uint64    = ^uint64(faultSet | 1<<22 | 1<<26 | 1<<31 | 1<<32) //nolint:unused // read by start
	callerMask    uint64                                                        // the signals that the caller had blocked
	callerIgnored uint64                                                        // the signals that the caller ignored
	scratch       [4]uint64                                                     //nolint:unused // a struct sigaction of the kernel
	defaultAction [4]uint64                                                     //nolint:unused // a struct sigaction of the kernel, all zero
	callerLimit   unix.Rlimit
	closedFiles   uint64 // the standard descriptors that the caller had closed, descriptor 0 in bit 0

	nullPath = [...]byte{'/', 'd', 'e', 'v', '/', 'n', 'u', 'l', 'l', 0} //nolint:unused // read by start
	rootPath = [...]byte{'/', 0}                                         //nolint:unused // read by start
	// oneProcessor is the variable that start puts before the others on amd64: golock mostly sleeps, and
	// threads that wake each other for its few goroutines cost more than they save.
	oneProcessor = [...]byte{'G', 'O', 'M', 'A', 'X', 'P', 'R', 'O', 'C', 'S', '=', '1', 0}
)

// The function setAction, which the runtime calls to install a handler, reads these variables.
var (
	// faultSignals get a handler that tells a fault of this process from a signal that somebody sent. A
	// sent signal ends the process by its default action.
	faultSignals uint64 = faultSet //nolint:unused // read by setAction
	// noHandler is the set for which the runtime gets no handler. At first it has QUIT ABRT STKFLT. start
	// adds the signals that the caller ignored and that are in keepIgnored. In a run it adds endSignals.
	noHandler uint64 = 1<<2 | 1<<5 | 1<<15 //nolint:unused // read by setAction
	// endSignals are HUP INT TERM. The runtime's handlers for them end the process in one thread while main
	// goes on in another.
	endSignals uint64 = 1<<0 | 1<<1 | 1<<14 //nolint:unused // read by start
	// keepIgnored is the set of signals that stay ignored if the caller ignored them. It leaves out faults,
	// and CHLD (17), which golock needs.
	keepIgnored uint64 = ^uint64(faultSet | 1<<16) //nolint:unused // read by start

	runtimeHandler uintptr //nolint:unused // the runtime's handler of faults
)

// Mask returns the signals that the caller had blocked, signal 1 in bit 0. They are known only if start has run.
func Mask() (set uint64, known bool) { return callerMask, stack != nil }

// Ignored returns the signals that the caller ignored, signal 1 in bit 0. They are known only if start
// has run.
func Ignored() (set uint64, known bool) { return callerIgnored, stack != nil }

// OpenFiles returns the caller's limit of open files (RLIMIT_NOFILE), which the runtime raises. It is
// known only if start has run.
func OpenFiles() (limit unix.Rlimit, known bool) { return callerLimit, stack != nil }

// IsClosed reports whether the caller had closed a standard descriptor. start has opened /dev/null
// there, so a write would succeed. If start has not run, IsClosed reports false.
func IsClosed(fd int) bool { return closedFiles>>fd&1 != 0 }

// Environ returns the whole environment. os.Environ drops all duplicates of a variable but the
// last.
func Environ() []string {
	if stack == nil {
		return syscall.Environ()
	}
	var list []string
	for n := argc() + 1; argument(n) != nil; n++ {
		if argument(n) != &oneProcessor[0] {
			list = append(list, unix.BytePtrToString(argument(n)))
		}
	}
	return list
}

func argc() int { return *(*int)(stack) }

// argument returns argv[n]. The variables follow argv and a NULL: the first has the index argc+1.
func argument(n int) *byte { return *(**byte)(unsafe.Add(stack, (n+1)*int(unsafe.Sizeof(stack)))) }

// init lets package os/signal install handlers from now on.
func init() { noHandler = 0 } //nolint:gochecknoinits // start cannot know when the runtime has installed its own
