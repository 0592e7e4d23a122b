package runner

import (
	"fmt"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// ticker wakes golock's relay at an Instant. Go's own timers, and the time
// limits of system calls, stand still while the machine is suspended.
type ticker struct {
	fd int
	at locks.Instant
}

func newTicker() (*ticker, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("timerfd_create: %w", err)
	}
	return &ticker{fd: fd}, nil
}

// set arms it for a moment; 0 disarms it. It quietens it too.
func (t *ticker) set(at locks.Instant) {
	var count [8]byte
	_, err := unix.Read(t.fd, count[:])
	if at == t.at && err != nil {
		return
	}
	t.at = at
	spec := &unix.ItimerSpec{}
	if at != 0 {
		spec.Value = unix.NsecToTimespec(max(int64(at), 1))
	}
	_ = unix.TimerfdSettime(t.fd, unix.TFD_TIMER_ABSTIME, spec, nil)
}

func (t *ticker) close() { unix.Close(t.fd) }
