//go:build !linux || !(amd64 || arm64) || portable

package signals

import (
	"os"
	"os/signal"
	"syscall"
)

// There is one Relay in a process.
var (
	arrived chan os.Signal // nil: nothing is caught yet
	written chan struct{}  // closed when all that arrived is in the pipe
)

// catchFaults catches faults that another process sends: the Go runtime keeps the kernel's. XCPU
// and XFSZ come through Next whoever sends them.
func (r *Relay) catchFaults() { r.catch(faults()) }

// catch is for machines without a handler in assembly. The goroutine lives as long as the process.
// os/signal may merge signals that come close together, does not say who sent one, and never gives
// PROF. So PIPE, which may be golock's own, is dropped. The signals of the C libraries, which it
// cannot catch, are ignored.
func (r *Relay) catch(list []syscall.Signal) {
	if arrived == nil {
		caught, end := make(chan os.Signal, 512), make(chan struct{})
		arrived, written = caught, end
		go func() {
			defer close(end)
			for sig := range caught {
				if sig != syscall.SIGPIPE {
					r.put(byte(sig.(syscall.Signal)))
				}
			}
		}()
	}
	for _, sig := range list {
		if isOfLibraries(sig) {
			Ignore(sig)
		} else {
			signal.Notify(arrived, sig)
		}
	}
}

// restoreLibraries restores the default action of the signals that catch ignores: a child would
// inherit that. The caller catches them again.
func (r *Relay) restoreLibraries() (restored []syscall.Signal) {
	for _, sig := range r.list {
		if isOfLibraries(sig) {
			sigaction(sig, &action{}, nil)
			restored = append(restored, sig)
		}
	}
	return restored
}

// settle returns when all signals that the runtime has received are in the pipe. What is caught after that
// comes by another channel.
func settle() {
	signal.Stop(arrived) // waits for deliveries under way
	close(arrived)
	<-written
	arrived, written = nil, nil
}
