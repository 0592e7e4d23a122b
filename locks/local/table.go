package local

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"slices"
	"strings"

	"golock/locks"
)

// The lock file: one page of header, then one record for each entry. Kernel locks say who
// waits and who holds. A record only describes its entry; one whose byte is not locked is
// stale.
//
// Numbers are little-endian. Header and records have a checksum each (Adler-32, which needs
// no tables at the start). None crosses a page, so a process that is killed while it writes
// leaves the old or the new text.
const (
	pageSize   = 4096
	recordSize = 1024
	format     = 2
	maxRecords = 1 << 16
	firstSize  = 2 * pageSize // written whole at the start, so that later runs need no disk space

	magic = "golock\r\n"
)

// header is the first page.
//
//	0 magic · 8 format u32 · 12 checksum u32 · 16 name length u32 · 20 records u32
//	24 next ticket i64 · 32 last fence i64 · 40 checked path u64 · 48 name
type header struct {
	size        int    // records that the file has at least: one that is shorter has been cut
	checkedPath uint64 // pathMark, if that path has been searched for a removed predecessor
	next        int64
	fence       int64
	name        string
}

const (
	headerName     = 48
	headerCounters = headerName // what is before the name changes with the queue
	headerEnd      = headerName + locks.MaxName
)

// errCorrupt says that bytes are not what golock writes.
var errCorrupt = errors.New("not readable")

// formatError is a file of a golock that writes another format.
type formatError struct{ found uint32 }

func (e *formatError) Error() string {
	return fmt.Sprintf("has format %d, this golock knows format %d", e.found, format)
}

func (h *header) encode() []byte {
	b := make([]byte, headerEnd)
	copy(b, magic)
	binary.LittleEndian.PutUint32(b[8:], format)
	binary.LittleEndian.PutUint32(b[16:], uint32(len(h.name)))
	binary.LittleEndian.PutUint32(b[20:], uint32(h.size))
	binary.LittleEndian.PutUint64(b[24:], uint64(h.next))
	binary.LittleEndian.PutUint64(b[32:], uint64(h.fence))
	binary.LittleEndian.PutUint64(b[40:], h.checkedPath)
	copy(b[headerName:], h.name)
	binary.LittleEndian.PutUint32(b[12:], adler32.Checksum(b[16:]))
	return b
}

// decodeHeader reads the first page. One that is empty or all zero is of a file that
// has just been made: the zero header.
func decodeHeader(b []byte) (header, error) {
	if !slices.ContainsFunc(b[:min(len(b), pageSize)], func(c byte) bool { return c != 0 }) {
		return header{}, nil
	}
	if len(b) < headerEnd || string(b[:len(magic)]) != magic {
		return header{}, errCorrupt
	}
	if f := binary.LittleEndian.Uint32(b[8:]); f != format {
		return header{}, &formatError{f}
	}
	h := header{
		size:        int(binary.LittleEndian.Uint32(b[20:])),
		checkedPath: binary.LittleEndian.Uint64(b[40:]),
		next:        int64(binary.LittleEndian.Uint64(b[24:])),
		fence:       int64(binary.LittleEndian.Uint64(b[32:])),
	}
	n := binary.LittleEndian.Uint32(b[16:])
	if binary.LittleEndian.Uint32(b[12:]) != adler32.Checksum(b[16:headerEnd]) || n == 0 || n > locks.MaxName ||
		h.size < 0 || h.size > maxRecords || h.next < 0 || h.next >= maxTicket || h.fence < 0 {
		return header{}, errCorrupt
	}
	h.name = string(b[headerName : headerName+n])
	return h, nil
}

// record is one entry of the table.
//
//	0 checksum u32 · 4 state u8 · 5 replace u8 · 6 command length u16
//	8 ticket i64 · 16 id · 32 weight u32 · 36 max u32 · 40 priority i32 · 44 uid u32
//	48 pid u32 · 52 slot ranges u16 · 54 evictor length u16 · 56 pid namespace u64
//	64 joined, CLOCK_BOOTTIME ns i64 · 72 since, Unix us i64 · 80 fence i64
//	88 held until, CLOCK_BOOTTIME ns i64 · 96 boot id
//	112 evicted at, CLOCK_BOOTTIME ns i64 · 120 no golock u8 · 121 reserved
//	128 slot ranges (first u16, count-1 u8), then the evictor, then the command, each
//	word ended by a zero
//
// Reserved bytes are zero.
type record struct {
	index     int // its place in the table, not stored; noIndex if it has none yet
	state     uint8
	claim     locks.Claim
	id        [16]byte
	uid       int
	pid       int
	pidNS     uint64
	joined    int64
	since     int64
	fence     int64
	replace   locks.Replacement
	noGolock  bool     // its golock has become the command
	holdUntil int64    // it counts as held until then; 0: only while its byte is locked
	boot      [16]byte // of which holdUntil is a time
	evictor   string   // who evicted it; "": nobody
	evictedAt int64
	slots     []int
	command   []string // read only where somebody asks for it

	onlyHold bool // no process has it any more, only its hold keeps it; not stored
}

const (
	noIndex = -1

	stateFree    = 0
	stateWaiting = 1
	stateHolding = 2

	recordState   = 4
	recordReplace = 5

	recordTail = 128
	rangeSize  = 3
	maxUnits   = 256   // so that the slots of one entry always fit into its record
	maxSlot    = 65535 // the highest slot number that a record can tell
	maxEvictor = 127   // so that there is room for it in any record
)

// replacements are in the order of the numbers that records store.
var replacements = []locks.Replacement{locks.ReplaceNone, locks.ReplaceWaiting, locks.ReplaceRunning}

func (r *record) encode() []byte {
	b := make([]byte, recordSize)
	b[recordState], b[recordReplace] = r.state, byte(slices.Index(replacements, r.replace))
	binary.LittleEndian.PutUint64(b[8:], uint64(r.claim.Ticket))
	copy(b[16:], r.id[:])
	binary.LittleEndian.PutUint32(b[32:], uint32(r.claim.Weight))
	binary.LittleEndian.PutUint32(b[36:], uint32(r.claim.Max))
	binary.LittleEndian.PutUint32(b[40:], uint32(int32(r.claim.Priority)))
	binary.LittleEndian.PutUint32(b[44:], uint32(r.uid))
	binary.LittleEndian.PutUint32(b[48:], uint32(r.pid))
	binary.LittleEndian.PutUint64(b[56:], r.pidNS)
	binary.LittleEndian.PutUint64(b[64:], uint64(r.joined))
	binary.LittleEndian.PutUint64(b[72:], uint64(r.since))
	binary.LittleEndian.PutUint64(b[80:], uint64(r.fence))
	binary.LittleEndian.PutUint64(b[88:], uint64(r.holdUntil))
	copy(b[96:], r.boot[:])
	binary.LittleEndian.PutUint64(b[112:], uint64(r.evictedAt))
	if r.noGolock {
		b[120] = 1
	}
	at := recordTail
	for i, slot := range r.slots {
		if i > 0 && slot == r.slots[i-1]+1 {
			b[at-1]++
			continue
		}
		binary.LittleEndian.PutUint16(b[at:], uint16(slot))
		at += rangeSize
	}
	binary.LittleEndian.PutUint16(b[52:], uint16((at-recordTail)/rangeSize))
	n := copy(b[at:], r.evictor)
	binary.LittleEndian.PutUint16(b[54:], uint16(n))
	at += n
	command := at
	for _, word := range r.command { // what does not fit is cut
		at += copy(b[at:], word)
		at = min(at+1, recordSize)
	}
	binary.LittleEndian.PutUint16(b[6:], uint16(at-command))
	binary.LittleEndian.PutUint32(b, adler32.Checksum(b[4:at]))
	return b
}

// decode reads a record that is not free, without its command. It leaves the index
// alone.
func (r *record) decode(b []byte) error {
	evictor := recordTail + rangeSize*int(binary.LittleEndian.Uint16(b[52:]))
	command := evictor + int(binary.LittleEndian.Uint16(b[54:]))
	end := command + int(binary.LittleEndian.Uint16(b[6:]))
	if end > recordSize || binary.LittleEndian.Uint32(b) != adler32.Checksum(b[4:end]) ||
		int(b[recordReplace]) >= len(replacements) {
		return errCorrupt
	}
	*r = record{
		index: r.index,
		state: b[recordState],
		claim: locks.Claim{
			Ticket:   int64(binary.LittleEndian.Uint64(b[8:])),
			Weight:   int(binary.LittleEndian.Uint32(b[32:])),
			Max:      int(binary.LittleEndian.Uint32(b[36:])),
			Priority: int(int32(binary.LittleEndian.Uint32(b[40:]))),
		},
		id:        [16]byte(b[16:32]),
		uid:       int(binary.LittleEndian.Uint32(b[44:])),
		pid:       int(binary.LittleEndian.Uint32(b[48:])),
		pidNS:     binary.LittleEndian.Uint64(b[56:]),
		joined:    int64(binary.LittleEndian.Uint64(b[64:])),
		since:     int64(binary.LittleEndian.Uint64(b[72:])),
		fence:     int64(binary.LittleEndian.Uint64(b[80:])),
		holdUntil: int64(binary.LittleEndian.Uint64(b[88:])),
		boot:      [16]byte(b[96:112]),
		evictedAt: int64(binary.LittleEndian.Uint64(b[112:])),
		noGolock:  b[120] != 0,
		replace:   replacements[b[recordReplace]],
		evictor:   string(b[evictor:command]),
	}
	c := r.claim
	if r.state > stateHolding || c.Ticket < 0 || c.Ticket >= maxTicket ||
		c.Weight < 1 || c.Weight > maxUnits || c.Max < 0 || c.Max > maxUnits {
		return errCorrupt
	}
	units := 0
	if r.state == stateHolding {
		units = c.Weight
	}
	for at := recordTail; at < evictor; at += rangeSize {
		first, more := int(binary.LittleEndian.Uint16(b[at:])), int(b[at+2])
		if first+more > maxSlot || len(r.slots)+more >= units {
			return errCorrupt
		}
		for slot := first; slot <= first+more; slot++ {
			r.slots = append(r.slots, slot)
		}
	}
	if len(r.slots) != units {
		return errCorrupt
	}
	return nil
}

// decodeCommand reads the command of a record that decode has accepted.
func decodeCommand(b []byte) (argv []string) {
	at := recordTail + rangeSize*int(binary.LittleEndian.Uint16(b[52:])) + int(binary.LittleEndian.Uint16(b[54:]))
	text := string(b[at : at+int(binary.LittleEndian.Uint16(b[6:]))])
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\x00"), "\x00") // without a zero the last word was cut
}

// lockByte is the byte that the entry has locked as long as it lives.
func (r *record) lockByte() int64 {
	if r.state == stateHolding {
		return holdByte(r.claim.Ticket)
	}
	return waitByte(r.claim.Ticket)
}
