//go:build !linux || !(amd64 || arm64) || portable

package signals

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// catch is for the machines that catch_asm.go has no handler for. The goroutine
// lives as long as the process; os/signal may merge signals that come close
// together.
func (r *Relay) catch(list []syscall.Signal) {
	caught := make(chan os.Signal, 512)
	for _, sig := range list {
		signal.Notify(caught, sig)
	}
	go func() {
		for sig := range caught {
			for {
				_, err := unix.Write(r.write, []byte{byte(sig.(syscall.Signal))})
				if err != unix.EINTR {
					break
				}
			}
		}
	}()
}
