package local

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"slices"
	"strings"
	"time"
	"unsafe"

	"golock/locks"
)

// The lock file: one page of header, then one record for each entry. Kernel locks say who
// waits and who holds. A record only describes its entry; one whose byte is not locked is
// stale.
//
// Header and records have a checksum each (Adler-32, which needs no tables at the start). None
// crosses a page, so a process that is killed while it writes leaves the old or the new text.
const (
	pageSize   = 4096
	recordSize = 1024
	format     = 3
	maxRecords = 1 << 14      // others may fill a file: it must fit into the memory of who reads it
	firstSize  = 2 * pageSize // written whole at the start, so that later runs need no disk space

	magic = "golock\r\n"
)

// header is the first page. It is in the file as it is in memory, without gaps: all who read it run
// on one machine.
type header struct {
	magic       [len(magic)]byte
	format      uint32
	checksum    uint32 // of the text after it
	nameLen     uint32
	size        uint32 // records that the file has at least: one that is shorter has been cut
	next        int64  // ticket
	fence       int64  // the last
	checkedPath uint64 // pathMark, if that path has been searched for a removed predecessor
	name        string // in the file its text
}

const (
	headerName     = int(unsafe.Offsetof(header{}.name))
	headerCounters = headerName // what is before the name changes with the queue
	headerEnd      = headerName + locks.MaxName
)

// errCorrupt says that bytes are not what golock writes.
var errCorrupt = errors.New("not readable")

func (h *header) bytes() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(h)), headerName) }

func (h *header) encode() []byte {
	copy(h.magic[:], magic)
	h.format, h.nameLen = format, uint32(len(h.name))
	b := make([]byte, headerEnd)
	copy(b, h.bytes())
	copy(b[headerName:], h.name)
	h.checksum = adler32.Checksum(b[16:])
	binary.NativeEndian.PutUint32(b[12:], h.checksum)
	return b
}

// decodeHeader reads the first page. One that is empty or all zero is of a file that
// has just been made: the zero header.
func decodeHeader(b []byte) (h header, err error) {
	if !slices.ContainsFunc(b[:min(len(b), pageSize)], func(c byte) bool { return c != 0 }) {
		return h, nil
	}
	copy(h.bytes(), b)
	switch {
	case len(b) < headerEnd || string(h.magic[:]) != magic:
		return header{}, errCorrupt
	case h.format != format:
		return header{}, fmt.Errorf("has format %d, this golock knows format %d", h.format, format)
	case h.checksum != adler32.Checksum(b[16:headerEnd]) || h.nameLen == 0 || h.nameLen > locks.MaxName ||
		h.size > maxRecords || h.next < 0 || h.next >= maxTicket || h.fence < 0 || h.fence > locks.MaxNumber:
		return header{}, errCorrupt
	}
	h.name = string(b[headerName : headerName+int(h.nameLen)])
	return h, nil
}

// record is one entry of the table. In the file its text begins with stored; then come the
// slots as ranges (first u16, count-1 u8), the evictor, what a later version of golock has added,
// and the command, each word ended by a zero.
type record struct {
	stored
	slots   []int
	evictor string // who evicted it; "": nobody
	extra   string // of a later version: it stays when the record is written again
	command string // its words, each ended by a zero; may be cut

	index    int           // its place in the table; noIndex if it has none yet
	holdLeft time.Duration // of its hold, when isLive looked
	onlyHold bool          // no process has it any more, only its hold keeps it
}

// stored is in the file as it is in memory, as the header.
type stored struct {
	checksum   uint32 // of the text after it
	state      uint8
	replace    uint8 // an index of replacements
	commandLen uint16
	ticket     int64
	id         [16]byte
	weight     uint32
	max        uint32
	priority   int32
	uid        uint32
	pid        uint32
	ranges     uint16
	evictorLen uint16
	pidNS      uint64
	written    int64 // an instant: when it joined, or was granted
	since      int64 // Unix time, us, of the same moment
	fence      int64
	holdUntil  int64    // an instant: it counts as held until then, 0: only while its byte is locked
	boot       [16]byte // of which holdUntil is a time
	evictedAt  int64    // an instant
	noGolock   uint8    // 1: its golock has become the command
	clock      uint8    // clockShared: its instants are of the initial time namespace; 0: not known
	extraLen   uint16
	reserved   [4]byte
}

const (
	noIndex = -1

	stateFree    = 0
	stateWaiting = 1
	stateHolding = 2

	recordState = 4 // the offset of stored.state
	recordTail  = int(unsafe.Sizeof(stored{}))
	rangeSize   = 3
	maxUnits    = 256   // so that the slots of one entry always fit into its record
	maxSlot     = 65535 // the highest slot number that a record can tell
	maxEvictor  = 127   // so that there is room for it in any record
)

// replacements are in the order of the numbers that records store.
var replacements = []locks.Replacement{locks.ReplaceNone, locks.ReplaceWaiting, locks.ReplaceRunning}

func (s *stored) bytes() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(s)), recordTail) }

func (s *stored) claim() locks.Claim {
	return locks.Claim{Weight: int(s.weight), Max: int(s.max), Priority: int(s.priority), Ticket: s.ticket}
}

func (r *record) encode() []byte {
	b := make([]byte, recordSize)
	at := recordTail
	for i, slot := range r.slots {
		if i > 0 && slot == r.slots[i-1]+1 {
			b[at-1]++
			continue
		}
		binary.NativeEndian.PutUint16(b[at:], uint16(slot))
		at += rangeSize
	}
	r.ranges = uint16((at - recordTail) / rangeSize)
	r.evictorLen = uint16(copy(b[at:], r.evictor))
	at += int(r.evictorLen)
	r.extraLen = uint16(copy(b[at:], r.extra))
	at += int(r.extraLen)
	r.commandLen = uint16(copy(b[at:], r.command))
	at += int(r.commandLen)
	copy(b, r.bytes())
	r.checksum = adler32.Checksum(b[4:at])
	binary.NativeEndian.PutUint32(b, r.checksum)
	return b
}

// decode reads a record that is not free. It leaves the index alone.
func (r *record) decode(b []byte) error {
	*r = record{index: r.index}
	copy(r.bytes(), b)
	evictor := recordTail + rangeSize*int(r.ranges)
	extra := evictor + int(r.evictorLen)
	command := extra + int(r.extraLen)
	end := command + int(r.commandLen)
	if end > recordSize || r.checksum != adler32.Checksum(b[4:end]) || int(r.replace) >= len(replacements) ||
		r.state > stateHolding || r.ticket < 0 || r.ticket >= maxTicket ||
		r.weight < 1 || r.weight > maxUnits || r.max > maxUnits {
		return errCorrupt
	}
	r.evictor, r.extra, r.command = string(b[evictor:extra]), string(b[extra:command]), string(b[command:end])
	units := 0
	if r.state == stateHolding {
		units = int(r.weight)
	}
	for at := recordTail; at < evictor; at += rangeSize {
		first, more := int(binary.NativeEndian.Uint16(b[at:])), int(b[at+2])
		if first+more > maxSlot || len(r.slots)+more >= units {
			return errCorrupt
		}
		for slot := first; slot <= first+more; slot++ {
			r.slots = append(r.slots, slot)
		}
	}
	checked := locks.Stored{
		Claim: r.claim(), Replace: replacements[r.replace], Holds: r.state == stateHolding, Slots: r.slots, Fence: r.fence,
		Moments: []int64{r.since},
	}
	if checked.Check() != nil {
		return errCorrupt
	}
	return nil
}

// What is kept of each command where a table has many records: others may have made them long.
const (
	manyRecords  = 1000
	shortCommand = 128 // bytes
	fewWords     = 16
)

// cutCommand shortens the command of a record of a long table.
func (r *record) cutCommand() {
	text := r.command[:min(len(r.command), shortCommand)]
	words := 0
	for i := range len(text) {
		if text[i] != 0 {
			continue
		}
		if words++; words == fewWords {
			text = text[:i]
			break
		}
	}
	r.command = strings.Clone(text) // the whole text is freed
}

// slotSet is a set of slot numbers.
type slotSet [(maxSlot + 1) / 64]uint64

// add reports whether the slot was not in the set.
func (s *slotSet) add(slot int) bool {
	word, bit := &s[slot/64], uint64(1)<<(slot%64)
	isNew := *word&bit == 0
	*word |= bit
	return isNew
}

func (s *slotSet) has(slot int) bool { return slot <= maxSlot && s[slot/64]&(1<<(slot%64)) != 0 }

// lockByte is the byte that the entry has locked as long as it lives.
func (r *record) lockByte() int64 {
	if r.state == stateHolding {
		return holdByte(r.ticket)
	}
	return waitByte(r.ticket)
}
