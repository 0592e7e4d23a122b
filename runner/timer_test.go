package runner

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/test/testkit"
)

// A moment whose seconds have more than 32 bits is not taken for one of the past.
func TestTimerOfCenturies(t *testing.T) {
	tick, err := newBootTimer()
	testkit.Must(t, err)
	defer tick.close()
	ready := []unix.PollFd{{Fd: int32(tick.fd), Events: unix.POLLIN}}
	for at, want := range map[locks.Instant]int{locks.Instant(time.Second<<32 + 1): 0, 1: 1} {
		tick.set(at)
		if n, err := unix.Poll(ready, 100); n != want || err != nil {
			t.Errorf("set for %v: %d are ready, %v, want %d", time.Duration(at), n, err, want)
		}
	}
}
