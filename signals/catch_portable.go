//go:build !linux || !(amd64 || arm64) || portable

package signals

import (
	"os"
	"os/signal"
	"syscall"
)

// These variables are global because os/signal is: there is one Relay in a process.
var (
	deliveries chan os.Signal // gets signals from os/signal; nil as long as no signal is caught
	copied     chan struct{}  // closed when all deliveries are in the pipe
)

// catchFaults catches faults that another process sends. The Go runtime keeps the faults of this
// process. Next also gives XCPU and XFSZ that golock itself has caused.
func (r *Relay) catchFaults() { r.catch(faults()) }

// catch catches signals by os/signal and starts a goroutine that copies them to the pipe until
// settle. os/signal may merge signals that come close together, does not say who sent a signal, and
// never gives PROF. So the goroutine drops PIPE, which a write of golock itself may have caused.
// os/signal cannot catch the signals of the C libraries; catch ignores them.
func (r *Relay) catch(list []syscall.Signal) {
	if deliveries == nil {
		source, end := make(chan os.Signal, 512), make(chan struct{})
		deliveries, copied = source, end
		go func() {
			defer close(end)
			for sig := range source {
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
			signal.Notify(deliveries, sig)
		}
	}
}

// restoreLibraries restores the default action of the signals that catch ignores, because a child
// would ignore them too. It returns these signals, and the caller catches them again.
func (r *Relay) restoreLibraries() (restored []syscall.Signal) {
	for _, sig := range r.caught {
		if isOfLibraries(sig) {
			sigaction(sig, &action{}, nil)
			restored = append(restored, sig)
		}
	}
	return restored
}

// settle returns when all signals that the runtime has received are in the pipe. After that catch
// makes a new channel.
func settle() {
	signal.Stop(deliveries) // Stop waits until os/signal has sent what it has received
	close(deliveries)
	<-copied
	deliveries, copied = nil, nil
}
