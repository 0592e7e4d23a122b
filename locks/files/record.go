package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/lease"
)

// record is the file of one entry, which its owner alone writes. Its first line is
// the sign of life; the rest is what the entry tells about itself.
type record struct {
	lease.Owner
	NoGolock bool          `json:"no_golock,omitempty"` // see locks.Request
	Clock    string        `json:"clock"`               // the name of the owner's
	Process  owner         `json:"process"`
	Since    int64         `json:"since"` // microseconds
	TTL      time.Duration `json:"ttl"`
}

// newRecord describes a request of this process.
func (s *Store) newRecord(r locks.Request) record {
	return record{
		Owner: lease.ThisOwner(r), NoGolock: r.NoGolock, Clock: s.clockName(), Process: s.self(),
		Since: time.Now().UnixMicro(), TTL: r.TTL,
	}
}

// heartbeat is the sign of life: a counter, and the owner's clock before it was
// written. Others compare it for being the same, nothing else.
type heartbeat struct {
	count uint64
	asked locks.Instant
	phase byte
}

// The phases of an entry, of which its owner needs to ask nobody. Who makes a version
// believes them at once. For who only looks, an entry has left when a version says so, or
// its owner found no room for one: then the phase is a capital letter. Otherwise a look
// could show it gone, and a newcomer, whose version was decided before, behind it.
const (
	joined   = 'j'
	accepted = 'a' // it knows that it holds: there may be a command
	left     = 'l' // it gives up what it has; its hold stays
	withdrew = 'w' // likewise, and nothing of it stays
	toSmall  = 'a' - 'A'
)

// leaves reports whether the owner has given the entry up; noRoom: without a version.
func (p heartbeat) leaves() (leaves, noRoom bool) {
	small := p.phase | toSmall
	leaves = small == left || small == withdrew
	return leaves, leaves && p.phase != small
}

// heartbeatSize is the length of a heartbeat as it is written.
const heartbeatSize = 20 + 1 + 20 + 1 + 1 + 1

func (p heartbeat) String() string { return fmt.Sprintf("%020d %020d %c\n", p.count, p.asked, p.phase) }

func parseHeartbeat(text string) (p heartbeat, ok bool) {
	if len(text) != heartbeatSize {
		return p, false
	}
	count, err := strconv.ParseUint(text[:20], 10, 64)
	asked, err2 := strconv.ParseInt(text[21:41], 10, 64)
	return heartbeat{count, locks.Instant(asked), text[42]}, err == nil && err2 == nil
}

func (d *directory) recordPath(name string) string { return d.path + "/" + recordsDir + "/" + name }

// createRecord makes an entry's file.
func (d *directory) createRecord(name string, p heartbeat, r *record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return makeFile(d.recordPath(name), d.path, slices.Concat([]byte(p.String()), text, []byte("\n")))
}

// writeHeartbeat changes the heartbeat where it is: that needs no room on the disk. A
// record that is not there is fs.ErrNotExist.
func (d *directory) writeHeartbeat(name string, p heartbeat) error {
	path := d.recordPath(name)
	fd, err := openAt(unix.AT_FDCWD, path, unix.O_WRONLY)
	if err == nil {
		err = finishWrite(fd, []byte(p.String()))
	}
	if err != nil {
		return &locks.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

// readRecord reads an entry's file: its heartbeat as it stands, and what follows. One that
// is not there, or that says nothing, is no error: then nothing is known of the entry.
func (d *directory) readRecord(name string) (heartbeat string, r record, err error) {
	text, err := readFile(d.recordPath(name))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errForeign), errors.Is(err, unix.ELOOP), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENXIO):
		return "", r, nil
	case err != nil:
		return "", r, err
	}
	heartbeat = string(text[:min(len(text), heartbeatSize)])
	if _, ok := parseHeartbeat(heartbeat); !ok || json.Unmarshal(text[heartbeatSize:], &r) != nil {
		return "", record{}, nil
	}
	return heartbeat, r, nil
}

func (d *directory) removeRecord(name string) error { return removeFile(d.recordPath(name)) }
