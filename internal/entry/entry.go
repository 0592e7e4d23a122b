// Package entry keeps what the Go runtime forgets: which signals the caller had blocked and
// ignored, and duplicate variables. Its function start is the first code of the process, before the
// runtime, if the linker is told so (-ldflags '-E golock/internal/entry.start'). If the first
// argument is "run" it also blocks all signals that golock catches later: what comes in the first
// milliseconds stays pending until package signals unblocks it. A plain go build and other machines
// than amd64 and arm64 have none of this: stack is nil.
//
// The runtime unblocks HUP INT QUIT ABRT TERM and STKFLT again: until package signals catches them
// they end golock, as they end any program.
package entry

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// faults are ILL TRAP BUS FPE SEGV SYS.
const faults = 1<<3 | 1<<4 | 1<<6 | 1<<7 | 1<<10 | 1<<30

// Written by start (start_*.s), before anything else runs.
var (
	stack unsafe.Pointer // argc, argv, NULL, environment, NULL (System V ABI); nil: start has not run
	// block is what start blocks: not faults; not PROF and URG, which the runtime uses; not 32 and 33,
	// which belong to the C library.
	block   uint64 = ^uint64(faults | 1<<22 | 1<<26 | 1<<31 | 1<<32) //nolint:unused // read by start
	blocked uint64
	ignored uint64
	scratch [8]uint64 // a struct sigaction of the kernel
	files   unix.Rlimit
	null    = [...]byte{'/', 'd', 'e', 'v', '/', 'n', 'u', 'l', 'l', 0} //nolint:unused // read by start
	root    = [...]byte{'/', 0}                                         //nolint:unused // the same
	// procs is what start puts before the other variables on amd64: golock mostly sleeps, and threads
	// that wake each other for its few goroutines cost more than they save.
	procs = [...]byte{'G', 'O', 'M', 'A', 'X', 'P', 'R', 'O', 'C', 'S', '=', '1', 0}
)

// Mask returns the caller's blocked signals, signal 1 in bit 0, and whether
// that is known.
func Mask() (set uint64, known bool) { return blocked, stack != nil }

// Ignored returns the signals that the caller ignored, likewise.
func Ignored() (set uint64, known bool) { return ignored, stack != nil }

// OpenFiles returns the caller's limit of open files (RLIMIT_NOFILE), which the runtime raises.
func OpenFiles() (limit unix.Rlimit, known bool) { return files, stack != nil }

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

// init undoes what the runtime has done. What the caller ignored is ignored again, without CHLD,
// which golock needs, and faults, which the runtime needs. QUIT, ABRT and STKFLT get their default
// action: the runtime's handlers would end golock with code 2 and a stack dump. So do HUP, INT and
// TERM in a run: the runtime's handlers end the process in one thread while main goes on in
// another.
func init() { //nolint:gochecknoinits // every package that is initialised before main takes its time
	if stack == nil {
		return
	}
	const kept = 1<<(syscall.SIGCHLD-1) | faults
	const stkflt = 16 // MIPS has none
	taken := uint64(1<<(syscall.SIGQUIT-1) | 1<<(syscall.SIGABRT-1) | 1<<(stkflt-1))
	if argc() > 1 && unix.BytePtrToString(argument(1)) == "run" {
		taken |= 1<<(syscall.SIGHUP-1) | 1<<(syscall.SIGINT-1) | 1<<(syscall.SIGTERM-1)
	}
	for sig := range 64 {
		bit := uint64(1) << sig
		if (ignored&^kept|taken)&bit == 0 {
			continue
		}
		clear(scratch[:])
		if ignored&bit != 0 {
			scratch[0] = 1 // SIG_IGN
		}
		_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig+1), uintptr(unsafe.Pointer(&scratch)), 0, 8, 0, 0)
	}
}
