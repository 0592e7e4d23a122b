package local

import (
	"time"

	"golock/internal/procfs"
	"golock/locks"
)

// The times in a lock file are from CLOCK_BOOTTIME in the initial time namespace, because all
// processes of the machine can compute them. In another time namespace that clock is ahead or
// behind, perhaps by days (time_namespaces(7)).

// clockShared is the value of stored.clock if the writer knew its time namespace. If it did not,
// the times in its record are from the CLOCK_BOOTTIME of its namespace.
const clockShared = 1

// clock converts times in a lock file to times of this process.
type clock struct {
	ahead    time.Duration // how far CLOCK_BOOTTIME of this process is ahead of the initial namespace
	isShared bool          // false if the time namespace of this process is not known
}

func readClock() clock {
	ahead, known := procfs.BootTimeAhead()
	return clock{ahead, known}
}

func (c clock) now() locks.Instant { return locks.BootTime().Add(-c.ahead) }

// canCompare reports whether the times of a record can be compared with times of c.
func (c clock) canCompare(r *record) bool { return c.isShared && r.clock == clockShared }

// sign writes into a record which clock its times are from.
func (c clock) sign(r *record) {
	r.clock = 0
	if c.isShared {
		r.clock = clockShared
	}
}

// A slot with a hold outlasts its holder. The record keeps the slot although no process has its
// byte locked, on CLOCK_BOOTTIME and only in this boot. An eviction ends the hold.

// moment is the time at which a table was read. It decides which holds in the table have ended.
type moment struct {
	clock
	now  locks.Instant
	wall time.Time
	boot [16]byte // zero if the boot ID is not known
}

func readMoment() *moment {
	c := readClock()
	return &moment{clock: c, now: c.now(), wall: time.Now(), boot: procfs.BootID()}
}

// holdLeft returns the rest of a record's hold. A hold must not end too early. So, if the writer's
// clock and this process's clock cannot be compared, the hold ends only when it is over on this
// clock and on the wall clock, which has no namespaces.
func (m *moment) holdLeft(r *record) time.Duration {
	if r.state != stateHolding || r.holdUntil == 0 || r.evictor != "" || m.isOfAnotherBoot(r) {
		return 0
	}
	left := locks.Instant(r.holdUntil).Sub(m.now)
	if !m.canCompare(r) {
		end := time.UnixMicro(r.since).Add(time.Duration(r.holdUntil - r.written))
		left = max(left, end.Sub(m.wall))
	}
	return max(left, 0)
}

// age returns how long a live entry has waited or held. It is not known if the writer's clock and this
// process's clock cannot be compared.
func (m *moment) age(r *record) (age time.Duration, known bool) {
	return m.now.Sub(locks.Instant(r.written)), m.canCompare(r)
}

// isOfAnotherBoot reports whether a record was written before the machine was started. Containers
// may hide the boot ID; then only a record from the future counts as such.
func (m *moment) isOfAnotherBoot(r *record) bool {
	unknown := [16]byte{}
	if r.boot != unknown && m.boot != unknown {
		return r.boot != m.boot
	}
	return m.canCompare(r) && locks.Instant(r.written) > m.now
}
