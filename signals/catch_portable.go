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
// os/signal may merge signals that come close together.
func (r *Relay) catch(list []syscall.Signal) {
	if arrived == nil {
		arrived, written = make(chan os.Signal, 512), make(chan struct{})
		go func() {
			defer close(written)
			for sig := range arrived {
				r.put(byte(sig.(syscall.Signal)))
			}
		}()
	}
	for _, sig := range list {
		signal.Notify(arrived, sig)
	}
}

// settle returns when all signals that the runtime has received are in the pipe.
func settle() {
	signal.Stop(arrived) // waits for deliveries under way
	close(arrived)
	<-written
}
