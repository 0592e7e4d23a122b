//go:build !linux || !(amd64 || arm64) || portable

package signals

import (
	"os"
	"os/signal"
	"syscall"
)

// catcher is the part of a Relay that os/signal needs.
type catcher struct{ deliveries []delivery }

// delivery is a goroutine of catch: its signals, and whether it has written them all.
type delivery struct {
	caught  chan os.Signal
	written chan struct{}
}

// catchFaults catches faults that another process sends: the Go runtime keeps the kernel's. XCPU
// and XFSZ come through Next whoever sends them.
func (r *Relay) catchFaults() { r.catch(faults()) }

// catch is for machines without a handler in assembly. The goroutine lives as long as the process.
// os/signal may merge signals that come close together.
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

// settle returns when all signals that the runtime has received are in the pipe.
func (c catcher) settle() {
	for _, d := range c.deliveries {
		signal.Stop(d.caught) // waits for deliveries under way
		close(d.caught)
		<-d.written
	}
}
