//go:build !linux || !(amd64 || arm64) || portable

package signals

import (
	"os"
	"os/signal"
	"syscall"
)

// catcher is what this way of catching needs in a Relay.
type catcher struct{ deliveries []delivery }

// delivery is a goroutine of catch: what it gets, and when it has written all.
type delivery struct {
	caught  chan os.Signal
	written chan struct{}
}

// catchFaults catches faults that another process sends: the Go runtime keeps its own. XCPU and
// XFSZ are caught whoever sends them.
func (r *Relay) catchFaults() { r.catch(faults()) }

// catch is for the machines that catch_asm.go has no handler for. The goroutine lives as long as
// the process; os/signal may merge signals that come close together.
func (r *Relay) catch(list []syscall.Signal) {
	caught, written := make(chan os.Signal, 512), make(chan struct{})
	r.deliveries = append(r.deliveries, delivery{caught, written})
	for _, sig := range list {
		signal.Notify(caught, sig)
	}
	go func() {
		defer close(written)
		for sig := range caught {
			r.put(byte(sig.(syscall.Signal)))
		}
	}()
}

// settle returns when all signals that the runtime had got are in the pipe.
func (c catcher) settle() {
	for _, d := range c.deliveries {
		signal.Stop(d.caught) // waits for what is on its way
		close(d.caught)
		<-d.written
	}
}
