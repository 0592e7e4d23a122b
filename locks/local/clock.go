package local

import (
	"time"

	"golock/internal/procfs"
	"golock/locks"
)

// The instants in a lock file are those of CLOCK_BOOTTIME in the initial time namespace, which all
// processes of the machine can compute. In another namespace the clock is ahead or behind by days
// (time_namespaces(7)).

// clockShared is the value of stored.clock where the writer knew its time namespace. Otherwise its
// instants are those of its own CLOCK_BOOTTIME.
const clockShared = 1

// clock is how this process reads instants.
type clock struct {
	ahead    time.Duration // of its CLOCK_BOOTTIME
	isShared bool          // false: its time namespace is not known
}

func readClock() clock {
	ahead, known := procfs.BootTimeAhead()
	return clock{ahead, known}
}

func (c clock) now() locks.Instant { return locks.BootTime().Add(-c.ahead) }

// reads reports whether the instants of a record can be compared with those of c.
func (c clock) reads(r *record) bool { return c.isShared && r.clock == clockShared }

// sign writes into a record whose clock its instants are of.
func (c clock) sign(r *record) {
	r.clock = 0
	if c.isShared {
		r.clock = clockShared
	}
}

// moment is when a table was read: the holds in it are judged by it.
type moment struct {
	clock
	now  locks.Instant
	wall time.Time
	boot [16]byte // zero: not known
}

func readMoment() *moment {
	c := readClock()
	return &moment{clock: c, now: c.now(), wall: time.Now(), boot: procfs.BootID()}
}

// holdLeft is what is left of a record's hold. A hold ends too late rather than too early: where the
// two clocks cannot be compared, it has to be over on both this process's clock and the wall clock,
// which has no namespaces.
func (m *moment) holdLeft(r *record) time.Duration {
	if r.state != stateHolding || r.holdUntil == 0 || r.evictor != "" || m.isOfAnotherBoot(r) {
		return 0
	}
	left := locks.Instant(r.holdUntil).Sub(m.now)
	if !m.reads(r) {
		end := time.UnixMicro(r.since).Add(time.Duration(r.holdUntil - r.written))
		left = max(left, end.Sub(m.wall))
	}
	return max(left, 0)
}

// age is for how long a live entry has waited or held. It is not known where the two clocks cannot be
// compared.
func (m *moment) age(r *record) (age time.Duration, known bool) {
	return m.now.Sub(locks.Instant(r.written)), m.reads(r)
}

// isOfAnotherBoot reports whether a record is from before the machine was started. Containers may
// hide the number of the boot; then only a record from the future is.
func (m *moment) isOfAnotherBoot(r *record) bool {
	unknown := [16]byte{}
	if r.boot != unknown && m.boot != unknown {
		return r.boot != m.boot
	}
	return m.reads(r) && locks.Instant(r.written) > m.now
}
