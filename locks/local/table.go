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

// A lock file is a page of header, then a record for each entry. Kernel locks decide which entries wait
// and hold. A record only describes its entry. A record whose byte is not locked is stale.
//
// The header and each record have a checksum: Adler-32, because a CRC needs tables that take time at
// the start. Neither a header nor a record crosses a page. So a process that is killed while it writes one
// leaves the old or the new text.
const (
	pageSize   = 4096
	recordSize = 1024
	format     = 2
	maxRecords = 1 << 14      // others may fill a file, and it must fit into the memory of its readers
	firstSize  = 2 * pageSize // bytes of a new file; they are written, so that later runs need no disk space

	magic = "golock\r\n"
)

// header is the first page. The file has the bytes that the struct has in memory, which has no gaps:
// all readers run on one machine.
type header struct {
	magic       [len(magic)]byte
	format      uint32
	checksum    uint32 // covers the text after it
	nameLen     uint32
	size        uint32 // the least number of records in the file; a file with fewer was cut
	next        int64  // the next ticket
	fence       int64  // the last fence
	checkedPath uint64 // the pathMark under which a removed file was searched for; 0 before the first search
	name        string // the file has the text itself here
}

const (
	headerName     = int(unsafe.Offsetof(header{}.name))
	headerCounters = headerName // the fields before the name change with the queue
	headerEnd      = headerName + locks.MaxName
)

// errCorrupt says that golock has not written these bytes.
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

// decodeHeader reads the first page. A page that is empty or all zero belongs to a file that was just
// made. decodeHeader returns a zero header for it.
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

// record is a record of the table. In the file, stored comes first. Then come the slots as ranges
// (first u16, count-1 u8), the evictor, the extra words, and the command.
type record struct {
	stored
	slots   []int
	evictor string // who evicted the entry; empty if nobody did
	extra   string // words that say more (note.go); encode drops them all if the record has no room for them
	command string // the words of the command, each ended by a zero; the text may be cut

	index    int           // the index in the table; noIndex before the record has one
	holdLeft time.Duration // the rest of the hold, when isLive was called
	onlyHold bool          // no process has the slot any more, only the hold keeps it
}

// stored is the first part of a record. The file has the bytes that the struct has in memory. Times are instants
// on the clock that the field clock tells, except for since.
type stored struct {
	checksum   uint32 // covers the text after it
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
	written    int64 // when the entry joined, or got its slots
	since      int64 // the same time as written, in microseconds of Unix time
	fence      int64
	holdUntil  int64    // when the hold ends; 0 if only the locked byte keeps the slot
	boot       [16]byte // the boot in which holdUntil counts
	evictedAt  int64    // when the entry was evicted
	noGolock   uint8    // 1 if the golock has become its command
	clock      uint8    // clockShared if the times are of the initial time namespace; 0 if the writer did not know
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
	maxUnits    = 256   // the slots of an entry with more units would not fit into its record
	maxSlot     = 65535 // the highest slot number that fits into a record
	maxEvictor  = 127   // any record has room for an evictor of this length
)

// replacements are in the order of the numbers in records.
var replacements = []locks.Replacement{locks.ReplaceNone, locks.ReplaceWaiting, locks.ReplaceRunning}

func (s *stored) bytes() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(s)), recordTail) }

func (s *stored) claim() locks.Claim {
	return locks.Claim{Weight: int(s.weight), Max: int(s.max), Priority: int(s.priority), Ticket: s.ticket}
}

// encode returns the bytes of the record in the file. It sets the checksum, and the fields of stored that tell how
// long the rest of the record is.
func (r *record) encode() []byte {
	b := make([]byte, recordSize)
	at := recordTail
	for i, slot := range r.slots {
		isNextOfRange := i > 0 && slot == r.slots[i-1]+1
		if isNextOfRange {
			b[at-1]++ // the last byte of a range is the number of its slots - 1
			continue
		}
		binary.NativeEndian.PutUint16(b[at:], uint16(slot))
		at += rangeSize
	}
	r.ranges = uint16((at - recordTail) / rangeSize)
	r.evictorLen = uint16(copy(b[at:], r.evictor))
	at += int(r.evictorLen)
	r.extraLen = 0
	if len(r.extra) <= len(b)-at { // a reader would take a part of the words for all of them
		r.extraLen = uint16(copy(b[at:], r.extra))
	}
	at += int(r.extraLen)
	r.commandLen = uint16(copy(b[at:], r.command))
	at += int(r.commandLen)
	copy(b, r.bytes())
	r.checksum = adler32.Checksum(b[4:at])
	binary.NativeEndian.PutUint32(b, r.checksum)
	return b
}

// decode reads a record that is in use. It does not set the index.
func (r *record) decode(b []byte) error {
	*r = record{index: r.index}
	copy(r.bytes(), b)
	evictor := recordTail + rangeSize*int(r.ranges)
	extra := evictor + int(r.evictorLen)
	command := extra + int(r.extraLen)
	end := command + int(r.commandLen)
	if end > recordSize || r.checksum != adler32.Checksum(b[4:end]) {
		return errCorrupt
	}
	isKnown := r.state <= stateHolding && int(r.replace) < len(replacements)
	isInRange := 0 <= r.ticket && r.ticket < maxTicket && 1 <= r.weight && r.weight <= maxUnits && r.max <= maxUnits
	if !isKnown || !isInRange {
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

// These constants limit the memory of a table. If it has more than manyRecords, it keeps only a part of each
// command, because other users may have written many long commands.
const (
	manyRecords  = 1000
	shortCommand = 128 // bytes of a command that are kept
	fewWords     = 16  // words of a command that are kept
)

// cutCommand shortens the command of a record in a long table.
func (r *record) cutCommand() {
	text := r.command[:min(len(r.command), shortCommand)]
	words := 0
	for i := range len(text) {
		if text[i] != 0 {
			continue
		}
		words++
		if words == fewWords {
			text = text[:i]
			break
		}
	}
	r.command = strings.Clone(text) // a clone lets the collector free the whole text
}

// slotSet is a set of slot numbers.
type slotSet [(maxSlot + 1) / 64]uint64

// add adds a slot, and reports whether it was missing.
func (s *slotSet) add(slot int) bool {
	word, bit := &s[slot/64], uint64(1)<<(slot%64)
	isNew := *word&bit == 0
	*word |= bit
	return isNew
}

func (s *slotSet) has(slot int) bool { return slot <= maxSlot && s[slot/64]&(1<<(slot%64)) != 0 }

// lockByte returns the byte that the entry has locked as long as it lives.
func (r *record) lockByte() int64 {
	if r.state == stateHolding {
		return holdByte(r.ticket)
	}
	return waitByte(r.ticket)
}
