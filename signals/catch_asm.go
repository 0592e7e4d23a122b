//go:build linux && (amd64 || arm64) && !portable

package signals

import (
	"syscall"
)

// os/signal would do, but its set-up takes a thread switch for each signal and
// three threads, together more than taking a lock, and it merges and reorders
// signals that come close together. The handler here (catch_*.s) is a few
// instructions that write the signal's number into the pipe; it touches nothing
// of the Go runtime and runs on the signal stack that every thread of the
// runtime has. The runtime itself uses none of the signals caught here.

// pipeEnd is where the handler writes. It has to be a global variable: a handler
// gets nothing but the signal.
var pipeEnd int32 //nolint:unused // read by the handler in assembly

// handlerPC and restorerPC give the addresses of the two functions in assembly
// that the kernel jumps to.
func handlerPC() uintptr
func restorerPC() uintptr

func (r *Relay) catch(list []syscall.Signal) {
	const (
		onStack  = 0x08000000
		restart  = 0x10000000
		restorer = 0x04000000
	)
	pipeEnd = int32(r.write)
	a := action{handlerPC(), onStack | restart, 0, ^uintptr(0)}
	if pc := restorerPC(); pc != 0 {
		a[1] |= restorer
		a[2] = pc
	}
	for _, sig := range list {
		sigaction(sig, &a, nil)
	}
}
