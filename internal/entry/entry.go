// Package entry keeps what the Go runtime forgets: which signals the caller had blocked and
// ignored, and duplicate variables. Its function start is the first code of the process, before the
// runtime, if the linker is told so (-ldflags '-E golock/internal/entry.start'). If the first
// argument is "run" it also blocks all signals that golock catches later: what comes in the first
// milliseconds stays pending until package signals unblocks it. A plain go build and other machines
// than amd64 and arm64 have none of this: stack is nil.
//
// start also keeps the runtime from handling signals in a way that no caller expects: its handlers
// for QUIT, ABRT, STKFLT and faults end the process with code 2 and a stack dump. The runtime installs
// handlers through _cgo_sigaction, which is there for programs with cgo (runtime/cgo_sigaction.go).
// The runtime unblocks HUP INT QUIT ABRT TERM and STKFLT again: until package signals catches them
// they end golock, as they end any program.
package entry

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// isFault has ILL TRAP BUS FPE SEGV SYS. Signal 1 is in bit 0. All values are constants: start runs
// before any initialization.
const isFault = 1<<3 | 1<<4 | 1<<6 | 1<<7 | 1<<10 | 1<<30 //nolint:unused // where start is no assembly

// Written by start (start_*.s), before anything else runs.
var (
	stack unsafe.Pointer // argc, argv, NULL, environment, NULL (System V ABI); nil: start has not run
	// block is what start blocks: not faults; not PROF and URG, which the runtime uses; not 32 and 33,
	// which belong to the C library.
	block   uint64 = ^uint64(isFault | 1<<22 | 1<<26 | 1<<31 | 1<<32) //nolint:unused // read by start
	blocked uint64
	ignored uint64
	scratch [4]uint64 //nolint:unused // a struct sigaction of the kernel
	initial [4]uint64 //nolint:unused // the same: the default action
	files   unix.Rlimit
	closed  uint64                                                      // the standard descriptors that the caller had closed, descriptor 0 in bit 0
	null    = [...]byte{'/', 'd', 'e', 'v', '/', 'n', 'u', 'l', 'l', 0} //nolint:unused // read by start
	root    = [...]byte{'/', 0}                                         //nolint:unused // the same
	// procs is what start puts before the other variables on amd64: golock mostly sleeps, and threads
	// that wake each other for its few goroutines cost more than they save.
	procs = [...]byte{'G', 'O', 'M', 'A', 'X', 'P', 'R', 'O', 'C', 'S', '=', '1', 0}
)

// For setAction, which the runtime calls to install a handler.
var (
	// The handler of faults tells one of this process from a signal that somebody sent, which ends it.
	faults uint64 = isFault //nolint:unused // read by setAction
	// withheld are the signals for which the runtime gets no handler. Of those that the caller ignored,
	// start adds what restored has. In a run it adds ends (HUP INT TERM): the runtime's handlers end the
	// process in one thread while main goes on in another.
	withheld uint64 = 1<<2 | 1<<5 | 1<<15      //nolint:unused // QUIT ABRT STKFLT, read by setAction
	ends     uint64 = 1<<0 | 1<<1 | 1<<14      //nolint:unused // read by start
	restored uint64 = ^uint64(isFault | 1<<16) //nolint:unused // read by start; golock needs CHLD (17)

	runtimesOwn uintptr //nolint:unused // the runtime's handler of faults
)

// Mask returns the caller's blocked signals, signal 1 in bit 0, and whether
// that is known.
func Mask() (set uint64, known bool) { return blocked, stack != nil }

// Ignored returns the signals that the caller ignored, likewise.
func Ignored() (set uint64, known bool) { return ignored, stack != nil }

// OpenFiles returns the caller's limit of open files (RLIMIT_NOFILE), which the runtime raises.
func OpenFiles() (limit unix.Rlimit, known bool) { return files, stack != nil }

// IsClosed reports whether the caller had closed a standard descriptor. Something else is open there
// now, so a write would succeed. Where start has not run that is not known, and IsClosed is false.
func IsClosed(fd int) bool { return closed>>fd&1 != 0 }

// Environ returns the whole environment. os.Environ drops all duplicates of a variable but the
// last.
func Environ() []string {
	if stack == nil {
		return syscall.Environ()
	}
	var list []string
	for n := argc() + 1; argument(n) != nil; n++ {
		if argument(n) != &procs[0] {
			list = append(list, unix.BytePtrToString(argument(n)))
		}
	}
	return list
}

func argc() int { return *(*int)(stack) }

// argument is argv[n]. Behind argv and a NULL come the variables.
func argument(n int) *byte { return *(**byte)(unsafe.Add(stack, (n+1)*int(unsafe.Sizeof(stack)))) }

// init lets package os/signal install handlers from now on.
func init() { withheld = 0 } //nolint:gochecknoinits // start cannot know when the runtime has installed its own
