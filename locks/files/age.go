package files

import (
	"errors"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks/queue"
)

// ageOf is for how long an entry has held or waited, or at least that. The wall clocks of two hosts are
// never compared: the owner's heartbeat tells of its own clock, this process adds for how long it has
// seen that heartbeat unchanged. The age is not known of a holder that another host has let in, and of a
// waiter where the file system does not tell when a file was made (NFS).
func (d *directory) ageOf(o *observedEntry) (age time.Duration, known bool) {
	m := o.member
	since := o.unchanged // since the last heartbeat
	if o.sameClock {
		since = max(o.at.Sub(o.last.sent), 0)
	}
	switch {
	case o.last == heartbeat{}:
		return 0, false
	case m.State == queue.Waiting:
		age, known = d.timeOfHeartbeats(m.record())
	case m.State == queue.Holding && m.granted != 0:
		age, known = o.last.sent.Sub(m.granted), true
	case m.State == queue.Ended && m.granted != 0 && o.sameClock:
		return o.at.Sub(m.granted), true
	case m.State == queue.Ended && m.hold > 0:
		return max(m.hold-m.rest, 0) + o.unchanged, true
	}
	return max(age, 0) + since, known
}

// timeOfHeartbeats is from the first to the last heartbeat of a record, both on the clock of the file
// system.
func (d *directory) timeOfHeartbeats(record string) (span time.Duration, known bool) {
	var st unix.Statx_t
	path := d.path + "/" + recordsDir + "/" + record
	const times = unix.STATX_BTIME | unix.STATX_MTIME
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, times, &st)
	if err != nil || st.Mask&times != times {
		return 0, false
	}
	return moment(st.Mtime).Sub(moment(st.Btime)), true
}

func moment(t unix.StatxTimestamp) time.Time { return time.Unix(t.Sec, int64(t.Nsec)) }

// unusedFor is how long before now the owner of an entry wrote its record, by the clock of the file
// system. One that cannot be looked at counts as just written, one that is missing as older than all.
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

// fileTime is the time of a file that it writes. A sweep of old versions may remove that file.
func (d *directory) fileTime() (now time.Time, err error) {
	var st unix.Stat_t
	for range 3 {
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
