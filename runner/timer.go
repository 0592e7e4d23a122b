package runner

import (
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// bootTimer wakes the relay at an Instant. Go's timers and the timeouts of system calls stand still
// while the machine is suspended.
type bootTimer struct {
	fd int
	at locks.Instant
}

func newBootTimer() (*bootTimer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("timerfd_create: %w", err)
	}
	return &bootTimer{fd: fd}, nil
}

// set arms it; 0 disarms it. It also reads the expiry that has woken the relay.
func (t *bootTimer) set(at locks.Instant) {
	var count [8]byte
	_, err := unix.Read(t.fd, count[:])
	if at == t.at && err != nil {
		return
	}
	t.at = at
	spec := &unix.ItimerSpec{}
	if at != 0 {
		// Where seconds have 32 bits: not beyond 68 years of running.
		spec.Value = unix.NsecToTimespec(min(max(int64(at), 1), math.MaxInt32*int64(time.Second)))
	}
	_ = unix.TimerfdSettime(t.fd, unix.TFD_TIMER_ABSTIME, spec, nil)
}

func (t *bootTimer) close() { unix.Close(t.fd) }
