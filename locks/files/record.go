package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/lease"
)

// record is what an entry tells about itself. It lies beside the token under a
// name that does not change with it. Its first line is the pulse.
type record struct {
	TTL      time.Duration     `json:"ttl"`
	Weight   int               `json:"weight"`
	Max      int               `json:"max"`
	Priority int               `json:"priority,omitempty"`
	NoWait   bool              `json:"no_wait,omitempty"`
	Replace  locks.Replacement `json:"replace,omitempty"`
	Alone    bool              `json:"alone,omitempty"` // once it holds, its owner need not be there
	Runs     bool              `json:"runs,omitempty"`  // see locks.Request
	Slots    []int             `json:"slots,omitempty"`
	Fence    int64             `json:"fence,omitempty"`

	// Hold is how long the slot stays taken from the grant on. Once its holder
	// has left it, Rest is what remained then.
	Hold time.Duration `json:"hold,omitempty"`
	Left bool          `json:"left,omitempty"`
	Rest time.Duration `json:"rest,omitempty"`

	Granted locks.Instant `json:"granted,omitempty"` // on the owner's Clock
	Clock   string        `json:"clock"`
	Owner   owner         `json:"owner"`
	Since   int64         `json:"since"` // microseconds; nothing is decided by it
	UID     int           `json:"uid"`
	User    string        `json:"user,omitempty"`
	Command []string      `json:"command,omitempty"`
}

// pulse is the sign of life: a counter, and the owner's clock before it was
// written. Others compare it for being the same, nothing else.
type pulse struct {
	count uint64
	asked locks.Instant
}

// pulseSize is the length of a pulse as it is written.
const pulseSize = 20 + 1 + 20 + 1

func (p pulse) String() string { return fmt.Sprintf("%020d %020d\n", p.count, p.asked) }

func parsePulse(text string) (p pulse, ok bool) {
	if len(text) != pulseSize {
		return p, false
	}
	count, err := strconv.ParseUint(text[:20], 10, 64)
	asked, err2 := strconv.ParseInt(text[21:41], 10, 64)
	return pulse{count, locks.Instant(asked)}, err == nil && err2 == nil
}

const (
	recordFile  = "record"
	evictedFile = "evicted" // by whom the entry was told to go
	seenPrefix  = "seen."   // since when the machines of these clocks have seen the pulse
)

func (q *queue) recordPath(id string) string { return q.dataPath(id) + "/" + recordFile }

// writeRecord puts a whole record in place.
func (q *queue) writeRecord(id string, p pulse, r *record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return replaceFile(q.recordPath(id), slices.Concat([]byte(p.String()), text, []byte("\n")))
}

// writePulse changes the pulse where it is: that needs no room on the disk. A
// record that is not there is fs.ErrNotExist.
func (q *queue) writePulse(id string, p pulse) error {
	path := q.recordPath(id)
	fd, err := openFile(path, unix.O_WRONLY)
	if err != nil {
		return &locks.PathError{Op: "open", Path: path, Err: err}
	}
	return finishWrite(fd, path, []byte(p.String()))
}

// readRecord reads an entry's record: its pulse as it stands, and what follows.
// A record that says nothing is errDamaged; its pulse is whatever is there. One
// that is not there is fs.ErrNotExist.
func (q *queue) readRecord(id string) (beat string, r record, err error) {
	text, err := readFile(q.recordPath(id))
	if err != nil {
		return "", r, err
	}
	if len(text) < pulseSize || text[len(text)-1] != '\n' {
		return string(text), r, errDamaged
	}
	beat = string(text[:pulseSize])
	if json.Unmarshal(text[pulseSize:], &r) != nil || r.Weight < 1 || r.Weight > lease.MaxUnits || r.Max < 0 || r.TTL <= 0 {
		return beat, record{}, errDamaged
	}
	return beat, r, nil
}

var errDamaged = errors.New("damaged record")

// evictedBy tells who wants the entry gone.
func (q *queue) evictedBy(id string) (by string, evicted bool) {
	text, err := readFile(q.dataPath(id) + "/" + evictedFile)
	return strings.TrimSuffix(string(text), "\n"), err == nil
}

// claim is what the rule knows of an entry. One that says nothing of itself
// takes all.
func (r *record) claim(ticket int64) locks.Claim {
	if r.Weight == 0 {
		return locks.Claim{Weight: 1, Max: 1, Ticket: ticket}
	}
	return locks.Claim{Weight: r.Weight, Max: r.Max, Priority: r.Priority, Ticket: ticket}
}

// newRecord describes a request of this process.
func (s *Store) newRecord(r locks.Request) record {
	who := lease.ThisOwner(r)
	rec := record{
		TTL: r.TTL, Weight: r.Claim.Weight, Max: r.Claim.Max, Priority: r.Claim.Priority, NoWait: r.NoWait,
		Replace: r.Replace, Alone: r.NoGolock, Runs: r.Runs, Hold: max(r.Hold, 0), Clock: s.clockName(), Owner: thisProcess(),
		Since: time.Now().UnixMicro(), UID: who.UID, User: who.User, Command: who.Command,
	}
	if rec.TTL <= 0 {
		rec.TTL = lease.DefaultTTL
	}
	return rec
}
