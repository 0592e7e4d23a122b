package files

import (
	"errors"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks/queue"
)

// ageOf returns how long an entry has held or waited. It never compares the clocks of two hosts. The
// owner's heartbeat has the age on the owner's clock, and this process adds the time for which it has
// seen that heartbeat. The sum may be less than the true age. Only processes on the clock of the grant
// know the age of a holder that has not yet noticed its grant.
func (d *directory) ageOf(o *observedEntry) (age time.Duration, known bool) {
	m, last := o.member, o.last
	hasNotNoticed := m.State != queue.Waiting && last.phase == phaseJoined
	if hasNotNoticed {
		return max(o.lastRead.Sub(m.granted), 0), o.sameClock && m.granted != 0
	}
	if last.since <= 0 || last.since > last.sent { // there is no heartbeat, or golock cannot have written it
		return 0, false
	}
	beforeLast, afterLast := last.sent.Sub(last.since), o.unchanged
	if o.sameClock {
		afterLast = max(o.lastRead.Sub(last.sent), 0)
	}
	return beforeLast + min(afterLast, math.MaxInt64-beforeLast), true
}

// unusedFor returns the time since the owner of an entry last wrote its record, on the clock of the file
// system. A record that cannot be examined counts as just written, a missing record as infinitely old.
func (d *directory) unusedFor(m *member, now time.Time) time.Duration {
	written, err := stat(unix.AT_FDCWD, d.path+"/"+recordsDir+"/"+m.record(), unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case err == unix.ENOENT:
		return math.MaxInt64
	case err != nil:
		return 0
	}
	return now.Sub(time.Unix(written.Mtim.Unix()))
}

// fileTime makes a file and returns its time, which is on the clock of the file system.
func (d *directory) fileTime() (now time.Time, err error) {
	var st unix.Stat_t
	for range 3 { // another process may remove the file together with old versions
		temp := tempName(1)
		if err := d.makeFile(temp, []byte("\n")); err != nil {
			return now, err
		}
		st, err = stat(unix.AT_FDCWD, d.path+"/"+temp, unix.AT_SYMLINK_NOFOLLOW)
		if err == unix.ENOENT {
			continue
		}
		err = errors.Join(pathError("stat", d.path+"/"+temp, err), d.removeFile(temp))
		return time.Unix(st.Mtim.Unix()), err
	}
	return now, pathError("stat", d.path, err)
}
