package locks

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// Instant is a moment on CLOCK_BOOTTIME, in nanoseconds: a clock that only goes
// forward and also counts the time that the machine was suspended. Instants of
// two machines, or of two boots, have nothing to do with each other.
type Instant int64

// Clock returns the present Instant. It is a parameter, so that tests can set the time; the real clock is
// BootTime.
type Clock func() Instant

// BootTime reads CLOCK_BOOTTIME (clock_gettime(2)).
func BootTime() Instant {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return Instant(ts.Nano())
}

// Add returns the moment d later, or the last (or first) Instant if the sum would overflow: others may have
// written d into a store.
func (i Instant) Add(d time.Duration) Instant {
	sum := i + Instant(d)
	switch {
	case i > 0 && d > 0 && sum < 0:
		return math.MaxInt64
	case i < 0 && d < 0 && sum >= 0:
		return math.MinInt64
	}
	return sum
}

// Sub returns the time from j to i, or the longest Duration if that is too long, like time.Time.Sub.
func (i Instant) Sub(j Instant) time.Duration {
	d := i - j
	switch {
	case i >= 0 && j < 0 && d < 0:
		return math.MaxInt64
	case i < 0 && j > 0 && d >= 0:
		return math.MinInt64
	}
	return time.Duration(d)
}

// Term is what an answer of a store with leases promises: the slot is held until TTL after Asked, a
// moment before the request was sent. The zero Term does not end.
type Term struct {
	Asked    Instant
	TTL      time.Duration
	Distance Distance
}

// Ends reports whether the lease ends unless it is renewed.
func (t Term) Ends() bool { return t.TTL > 0 }

// End is the moment from which the slot must count as lost. It is earlier than the end on the store's
// clock, because two good clocks may drift apart by 1 % of the TTL and 2 ms.
func (t Term) End() Instant { return t.Asked.Add(t.TTL - t.TTL/100 - 2*time.Millisecond) }
