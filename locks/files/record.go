package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/owner"
)

// record is the file of one entry, which only its owner writes. The first line is its
// heartbeat; the rest describes the owner.
type record struct {
	owner.Owner
	NoGolock bool          `json:"no_golock,omitempty"` // there is no locks.Keeper.HasGolock
	Clock    string        `json:"clock"`               // the name of the owner's
	Process  process       `json:"process"`
	TTL      time.Duration `json:"ttl"`
}

// heartbeat is a counter, and the owner's clock before it was written. Other clocks only
// compare two of them for equality.
type heartbeat struct {
	count uint64
	sent  locks.Instant
	since locks.Instant // when the owner joined, or knew that it holds
	phase byte
}

// The phases of an entry, which its owner changes without a version. Whoever makes a
// version believes them at once. A listing believes that an entry has left when a version
// says so: otherwise it could show it gone, and behind it a newcomer whose version was
// decided before.
const (
	phaseJoined    = 'j'
	phaseAccepted  = 'a' // the owner knows that it holds: there may be a command
	phaseReleased  = 'l' // it gives up what it has; its hold stays
	phaseWithdrawn = 'w' // it gives up what it has, and its hold is void
)

// leaves reports whether the owner has given the entry up.
func (p heartbeat) leaves() bool { return p.phase == phaseReleased || p.phase == phaseWithdrawn }

// A heartbeat as it is written, and the length of that.
const (
	heartbeatFormat = "%020d %020d %020d %c\n"
	heartbeatSize   = 3*(20+1) + 1 + 1
)

func (p heartbeat) String() string {
	return fmt.Sprintf(heartbeatFormat, p.count, p.sent, p.since, p.phase)
}

// writeHeartbeat changes the heartbeat in place, which needs no room on the disk. A
// missing record is fs.ErrNotExist.
func (d *directory) writeHeartbeat(name string, p heartbeat) error {
	path := d.path + "/" + recordsDir + "/" + name
	fd, err := openAt(unix.AT_FDCWD, path, unix.O_WRONLY)
	if err == nil {
		err = finishWrite(fd, []byte(p.String()))
	}
	return pathError("write", path, err)
}

// readRecord reads an entry's file. One that is missing or damaged is no error: then heartbeat and
// record are empty. If only what follows the heartbeat is damaged, only the record is empty: the owner
// goes on renewing and does not write that part again.
func (d *directory) readRecord(name string) (p heartbeat, r record, err error) {
	path := d.path + "/" + recordsDir + "/" + name
	text, err := readAt(unix.AT_FDCWD, path, maxRecord)
	for _, none := range []error{fs.ErrNotExist, errForeign, unix.ELOOP, unix.EISDIR, unix.ENXIO} {
		if errors.Is(err, none) {
			return p, r, nil
		}
	}
	if err != nil {
		return p, r, pathError("read", path, err)
	}
	size := min(heartbeatSize, len(text))
	_, err = fmt.Sscanf(string(text[:size]), heartbeatFormat, &p.count, &p.sent, &p.since, &p.phase)
	if err != nil {
		return heartbeat{}, record{}, nil
	}
	err = json.Unmarshal(text[size:], &r)
	if err != nil || !r.isValid() {
		return p, record{}, nil
	}
	r.Owner.Limit()
	return p, r, nil
}

// isValid reports whether golock can have written a record. It describes any claim.
func (r *record) isValid() bool {
	stored := locks.Stored{Claim: locks.Claim{Weight: 1}, TTL: r.TTL}
	return stored.Check() == nil
}

func (d *directory) removeRecord(name string) error { return d.removeFile(recordsDir + "/" + name) }
