//go:build linux && (amd64 || arm64) && !portable

package signals

import "syscall"

// This file replaces os/signal, which needs three threads and, for each signal, a thread switch that
// takes longer than golock needs for a local slot. os/signal also merges and reorders signals that come
// close together. The handler here (catch_*.s) is a few instructions that write the signal's number
// into the pipe. It uses nothing of the Go runtime and runs on the signal stack of the runtime's
// threads. The runtime itself uses none of these signals.

// pipeEnd is the descriptor to which the handler writes. It is a global variable because a handler
// gets no other argument than the signal.
var pipeEnd int32 //nolint:unused // read by the handler in assembly

// faultHandler (catch_*.s) reads these variables.
var (
	processID      int32   //nolint:unused // read in assembly
	runtimeHandler uintptr //nolint:unused // the Go runtime's handler of faults; read in assembly
)

// withInfo is SA_SIGINFO: the handler gets a siginfo.
const withInfo = 4

// catchFaults installs faultHandler, which tells a fault of this process from a signal that another
// process sent (si_code, sigaction(2)). The runtime still gets the faults of this process.
func (r *Relay) catchFaults() {
	var a action
	for _, sig := range faults() {
		if sigaction(sig, nil, &a) != 0 || a[0] == sigIgn {
			continue
		}
		runtimeHandler = a[0]
		a[0], a[1] = faultHandlerPC(), a[1]|withInfo
		sigaction(sig, &a, nil)
	}
}

// handlerPC, faultHandlerPC and restorerPC give the addresses of the functions in assembly that the
// kernel jumps to.
func handlerPC() uintptr
func faultHandlerPC() uintptr
func restorerPC() uintptr

// catch installs the handlers for the signals, which write to the pipe of r.
func (r *Relay) catch(list []syscall.Signal) {
	const (
		onStack  = 0x08000000 // SA_ONSTACK
		restart  = 0x10000000 // SA_RESTART
		restorer = 0x04000000 // SA_RESTORER
	)
	pipeEnd, processID = int32(r.write), int32(syscall.Getpid())
	for _, sig := range list {
		a := action{handlerPC(), onStack | restart, 0, ^uintptr(0)}
		if mayBeSelfInflicted(sig) { // faultHandler drops the signals that golock itself has caused
			a[0], a[1] = faultHandlerPC(), a[1]|withInfo
		}
		if pc := restorerPC(); pc != 0 {
			a[1] |= restorer
			a[2] = pc
		}
		sigaction(sig, &a, nil)
	}
}

// restoreLibraries does nothing in this build: a child inherits no handlers.
func (r *Relay) restoreLibraries() []syscall.Signal { return nil }

// settle does nothing in this build: when the handler returns, the signal is in the pipe.
func settle() {}
