//go:build linux && (amd64 || arm64) && !portable

package signals

import "syscall"

// os/signal needs three threads and a thread switch for each signal, which takes longer than taking
// a lock, and it merges and reorders signals that come close together. The handler here (catch_*.s)
// is a few instructions that write the signal's number into the pipe. It touches nothing of the Go
// runtime and runs on the signal stack of its threads. The runtime itself uses none of these
// signals.

// pipeEnd is where the handler writes: a global variable, since a handler gets nothing but the
// signal.
var pipeEnd int32 //nolint:unused // read by the handler in assembly

// For faultHandler: this process, and the Go runtime's handler.
var (
	ownPID      int32   //nolint:unused // read by the handler in assembly
	runtimesOwn uintptr //nolint:unused // the same
)

// withInfo is SA_SIGINFO: the handler gets a siginfo.
const withInfo = 4

// catchFaults catches faults with the handler that tells the kernel's own signals from those of
// another process (sigaction(2), si_code). The runtime gets the kernel's.
func (r *Relay) catchFaults() {
	var a action
	for _, sig := range faults() {
		if sigaction(sig, nil, &a) != 0 || a[0] == sigIgn {
			continue
		}
		runtimesOwn = a[0]
		a[0], a[1] = faultHandlerPC(), a[1]|withInfo
		sigaction(sig, &a, nil)
	}
}

// handlerPC, faultHandlerPC and restorerPC give the addresses of the functions in assembly that the
// kernel jumps to.
func handlerPC() uintptr
func faultHandlerPC() uintptr
func restorerPC() uintptr

func (r *Relay) catch(list []syscall.Signal) {
	const (
		onStack  = 0x08000000
		restart  = 0x10000000
		restorer = 0x04000000
	)
	pipeEnd, ownPID = int32(r.write), int32(syscall.Getpid())
	for _, sig := range list {
		a := action{handlerPC(), onStack | restart, 0, ^uintptr(0)}
		if isOwn(sig) { // golock's own is dropped
			a[0], a[1] = faultHandlerPC(), a[1]|withInfo
		}
		if pc := restorerPC(); pc != 0 {
			a[1] |= restorer
			a[2] = pc
		}
		sigaction(sig, &a, nil)
	}
}

// restoreLibraries has nothing to restore: a child inherits no handlers.
func (r *Relay) restoreLibraries() []syscall.Signal { return nil }

// settle has nothing to wait for: a handler has written when it returns.
func settle() {}
