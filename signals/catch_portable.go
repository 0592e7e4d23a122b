//go:build !linux || !(amd64 || arm64) || portable

package signals

import (
	"os"
	"os/signal"
	"syscall"
)

// catcher is the part of a Relay that os/signal needs.
type catcher struct {
	arrived chan os.Signal // nil: nothing is caught yet
	written chan struct{}  // closed when all that arrived is in the pipe
}

// catchFaults catches faults that another process sends: the Go runtime keeps the kernel's. XCPU
// and XFSZ come through Next whoever sends them.
func (r *Relay) catchFaults() { r.catch(faults()) }

// catch is for machines without a handler in assembly. The goroutine lives as long as the process.
// os/signal may merge signals that come close together.
func (r *Relay) catch(list []syscall.Signal) {
	if r.arrived == nil {
		r.arrived, r.written = make(chan os.Signal, 512), make(chan struct{})
		go func() {
			defer close(r.written)
			for sig := range r.arrived {
				r.put(byte(sig.(syscall.Signal)))
			}
		}()
	}
	for _, sig := range list {
		signal.Notify(r.arrived, sig)
	}
}

// settle returns when all signals that the runtime has received are in the pipe.
func (c catcher) settle() {
	signal.Stop(c.arrived) // waits for deliveries under way
	close(c.arrived)
	<-c.written
}
