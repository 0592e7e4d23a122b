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

// record is the file of one entry, which only the entry's owner writes. The first line is the heartbeat;
// the rest describes the owner.
type record struct {
	owner.Owner
	NoGolock bool          `json:"no_golock,omitempty"` // no golock stays with the slot (locks.Keeper.HasGolock)
	Clock    string        `json:"clock"`               // the name of the owner's clock; empty if it is not known
	Process  process       `json:"process"`
	TTL      time.Duration `json:"ttl"`
}

// heartbeat is the sign of life of an entry's owner. A process on another clock only compares two
// heartbeats for equality.
type heartbeat struct {
	count uint64        // grows with each heartbeat
	sent  locks.Instant // the owner's clock before it wrote the heartbeat
	since locks.Instant // when the owner joined, or noticed that it holds
	phase byte
}

// These are the phases of an entry, which its owner changes without a version. A process that makes a
// version believes them at once. A listing does not show that an entry has left before a version says
// so: otherwise it could leave the entry out and show a newcomer as a waiter behind it.
const (
	phaseJoined    = 'j' // the entry waits, or its owner has not noticed its grant
	phaseAccepted  = 'a' // the owner has noticed that it holds: there may be a command
	phaseReleased  = 'l' // the owner gives the slot back; its hold stays
	phaseWithdrawn = 'w' // the owner gives the entry up, and its hold is void
)

// leaves reports whether the owner has given the entry up.
func (b heartbeat) leaves() bool { return b.phase == phaseReleased || b.phase == phaseWithdrawn }

// heartbeatFormat is the line of a heartbeat. Every line has the same size, so that a later heartbeat
// overwrites the whole line.
const (
	heartbeatFormat = "%020d %020d %020d %c\n"
	heartbeatSize   = 3*(20+1) + 1 + 1
)

func (b heartbeat) String() string {
	return fmt.Sprintf(heartbeatFormat, b.count, b.sent, b.since, b.phase)
}

// writeHeartbeat overwrites the heartbeat in a record, which needs no room on the disk. If there is no
// record, the error is fs.ErrNotExist.
func (d *directory) writeHeartbeat(name string, beat heartbeat) error {
	path := d.path + "/" + recordsDir + "/" + name
	fd, err := openAt(unix.AT_FDCWD, path, unix.O_WRONLY)
	if err == nil {
		err = finishWrite(fd, []byte(beat.String()))
	}
	return pathError("write", path, err)
}

// readRecord reads the record of an entry. If the file is missing or damaged, heartbeat and record are
// empty, without an error. If only the part after the heartbeat is damaged, only the record is empty: the
// owner goes on writing heartbeats, and does not write that part again.
func (d *directory) readRecord(name string) (beat heartbeat, r record, err error) {
	path := d.path + "/" + recordsDir + "/" + name
	text, err := readAt(unix.AT_FDCWD, path, maxRecord)
	for _, notARecord := range []error{fs.ErrNotExist, errForeign, unix.ELOOP, unix.EISDIR, unix.ENXIO} {
		if errors.Is(err, notARecord) {
			return beat, r, nil
		}
	}
	if err != nil {
		return beat, r, pathError("read", path, err)
	}
	size := min(heartbeatSize, len(text))
	_, err = fmt.Sscanf(string(text[:size]), heartbeatFormat, &beat.count, &beat.sent, &beat.since, &beat.phase)
	if err != nil {
		return heartbeat{}, record{}, nil
	}
	err = json.Unmarshal(text[size:], &r)
	if err != nil || !r.isValid() {
		return beat, record{}, nil
	}
	r.Owner.Limit()
	return beat, r, nil
}

// isValid reports whether golock can have written a record.
func (r *record) isValid() bool {
	stored := locks.Stored{Claim: locks.Claim{Weight: 1}, TTL: r.TTL} // a record has no claim, so any valid one does
	return stored.Check() == nil
}

func (d *directory) removeRecord(name string) error { return d.removeFile(recordsDir + "/" + name) }
