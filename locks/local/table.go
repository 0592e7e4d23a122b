package local

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"time"

	"golock/locks"
)

// The lock file: one page of header, then one record for each entry. The
// kernel's locks are the truth about who waits and who holds; a record only
// describes its entry, and one whose byte is not locked is left over and free.
//
// All numbers are little-endian. Header and records carry a checksum each
// (Adler-32: it needs no tables to be made at the start) and never cross a
// page, so that a process killed while it writes leaves the old or the new
// text.
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
//	24 next ticket i64 · 32 last fence i64 · 40 settled u64 · 48 name
type header struct {
	size    int    // records that the file has at least: one that is shorter has been cut
	settled uint64 // settledMark, if the path has been searched for a removed predecessor
	next    int64
	fence   int64
	name    string
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
	binary.LittleEndian.PutUint64(b[40:], h.settled)
	copy(b[headerName:], h.name)
	binary.LittleEndian.PutUint32(b[12:], adler32.Checksum(b[16:]))
	return b
}

// decodeHeader reads the first page. An empty or all-zero page is a file that
// has just been made: the zero header.
func decodeHeader(b []byte) (header, error) {
	if allZero(b[:min(len(b), pageSize)]) {
		return header{}, nil
	}
	if len(b) < headerEnd || string(b[:len(magic)]) != magic {
		return header{}, errCorrupt
	}
	if f := binary.LittleEndian.Uint32(b[8:]); f != format {
		return header{}, &formatError{f}
	}
	if binary.LittleEndian.Uint32(b[12:]) != adler32.Checksum(b[16:headerEnd]) {
		return header{}, errCorrupt
	}
	h := header{
		size:    int(binary.LittleEndian.Uint32(b[20:])),
		settled: binary.LittleEndian.Uint64(b[40:]),
		next:    int64(binary.LittleEndian.Uint64(b[24:])),
		fence:   int64(binary.LittleEndian.Uint64(b[32:])),
	}
	n := binary.LittleEndian.Uint32(b[16:])
	if n == 0 || n > locks.MaxName || h.next < 0 || h.next >= maxTicket || h.fence < 0 {
		return header{}, errCorrupt
	}
	h.name = string(b[headerName : headerName+n])
	return h, nil
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// record is one entry of the table.
//
//	0 checksum u32 · 4 state u8 · 5 replace u8 · 6 command length u16
//	8 ticket i64 · 16 id · 32 weight u32 · 36 max u32 · 40 priority i32 · 44 uid u32
//	48 pid u32 · 52 slot ranges u16 · 54 evictor length u16 · 56 pid namespace u64
//	64 joined, CLOCK_BOOTTIME ns i64 · 72 since, Unix us i64 · 80 fence i64
//	88 held until, CLOCK_BOOTTIME ns i64 · 96 boot id
//	112 told to go at, CLOCK_BOOTTIME ns i64 · 120 no golock u8 · 121 reserved
//	128 slot ranges (first u16, count-1 u8), then who told it to go, then the
//	command, each word ended by a zero
//
// Reserved bytes are zero.
type record struct {
	index   int // its place in the table, not stored; noIndex if it has none yet
	state   uint8
	claim   locks.Claim
	id      [16]byte
	uid     int
	pid     int
	pidNS   uint64
	joined  int64
	since   int64
	fence   int64
	replace locks.Replacement
	bare    bool   // its golock has become the command
	until   int64  // it counts as held until then; 0: only while its byte is locked
	boot    bootID // of which until is a time
	evictor string // who told it to go; "": nobody
	evicted int64  // when
	ended   bool   // its byte is free, it only stays until then; not stored
	slots   []slotRange
	command []byte
	words   []string // the command, if somebody asked for it; not stored
}

// slotRange is more+1 slots from first on.
type slotRange struct {
	first uint16
	more  uint8
}

const (
	noIndex = -1

	stateFree    = 0
	stateWaiting = 1
	stateHolding = 2

	recordState   = 4
	recordReplace = 5

	recordTail = 128
	slotSize   = 3
	maxUnits   = 256   // so that the slots of one entry always fit into its record
	maxSlot    = 65535 // the highest slot number that a record can tell
	maxEvictor = 127   // so that there is room for it in any record
)

// replacements is the number of a replacement in a record.
func replacements(r locks.Replacement) byte {
	switch r {
	case locks.ReplaceWaiting:
		return 1
	case locks.ReplaceRunning:
		return 2
	}
	return 0
}

func (r *record) encode() []byte {
	b := make([]byte, recordSize)
	b[recordState] = r.state
	binary.LittleEndian.PutUint64(b[8:], uint64(r.claim.Ticket))
	copy(b[16:], r.id[:])
	binary.LittleEndian.PutUint32(b[32:], uint32(r.claim.Weight))
	binary.LittleEndian.PutUint32(b[36:], uint32(r.claim.Max))
	binary.LittleEndian.PutUint32(b[40:], uint32(int32(r.claim.Priority)))
	binary.LittleEndian.PutUint32(b[44:], uint32(r.uid))
	binary.LittleEndian.PutUint32(b[48:], uint32(r.pid))
	binary.LittleEndian.PutUint16(b[52:], uint16(len(r.slots)))
	binary.LittleEndian.PutUint64(b[56:], r.pidNS)
	binary.LittleEndian.PutUint64(b[64:], uint64(r.joined))
	binary.LittleEndian.PutUint64(b[72:], uint64(r.since))
	binary.LittleEndian.PutUint64(b[80:], uint64(r.fence))
	b[recordReplace] = replacements(r.replace)
	binary.LittleEndian.PutUint64(b[88:], uint64(r.until))
	copy(b[96:], r.boot[:])
	binary.LittleEndian.PutUint64(b[112:], uint64(r.evicted))
	if r.bare {
		b[120] = 1
	}
	at := recordTail
	for _, s := range r.slots {
		binary.LittleEndian.PutUint16(b[at:], s.first)
		b[at+2] = s.more
		at += slotSize
	}
	e := copy(b[at:], r.evictor)
	binary.LittleEndian.PutUint16(b[54:], uint16(e))
	at += e
	n := copy(b[at:], r.command)
	binary.LittleEndian.PutUint16(b[6:], uint16(n))
	binary.LittleEndian.PutUint32(b, adler32.Checksum(b[4:at+n]))
	return b
}

// decode reads one record that is not free. It leaves the index alone; the
// command is a part of b.
func (r *record) decode(b []byte) error {
	ranges, words := int(binary.LittleEndian.Uint16(b[52:])), int(binary.LittleEndian.Uint16(b[6:]))
	evictor := recordTail + slotSize*ranges
	at := evictor + int(binary.LittleEndian.Uint16(b[54:]))
	if at+words > recordSize || binary.LittleEndian.Uint32(b) != adler32.Checksum(b[4:at+words]) {
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
		id:      [16]byte(b[16:32]),
		uid:     int(binary.LittleEndian.Uint32(b[44:])),
		pid:     int(binary.LittleEndian.Uint32(b[48:])),
		pidNS:   binary.LittleEndian.Uint64(b[56:]),
		joined:  int64(binary.LittleEndian.Uint64(b[64:])),
		since:   int64(binary.LittleEndian.Uint64(b[72:])),
		fence:   int64(binary.LittleEndian.Uint64(b[80:])),
		until:   int64(binary.LittleEndian.Uint64(b[88:])),
		boot:    bootID(b[96:112]),
		evicted: int64(binary.LittleEndian.Uint64(b[112:])),
		bare:    b[120] != 0,
		evictor: string(b[evictor:at]),
		command: b[at : at+words],
	}
	switch b[recordReplace] {
	case 0:
	case 1:
		r.replace = locks.ReplaceWaiting
	case 2:
		r.replace = locks.ReplaceRunning
	default:
		return errCorrupt
	}
	if r.state > stateHolding || r.claim.Ticket < 0 || r.claim.Ticket >= maxTicket || r.claim.Weight < 1 || r.claim.Weight > maxUnits || r.claim.Max > maxUnits {
		return errCorrupt
	}
	units := 0
	for i := range ranges {
		s := b[recordTail+slotSize*i:]
		r.slots = append(r.slots, slotRange{first: binary.LittleEndian.Uint16(s), more: s[2]})
		units += int(s[2]) + 1
	}
	if r.state == stateHolding && units != r.claim.Weight {
		return errCorrupt
	}
	return nil
}

// lockByte is the byte that the entry has locked as long as it lives.
func (r *record) lockByte() int64 {
	if r.state == stateHolding {
		return holdByte(r.claim.Ticket)
	}
	return waitByte(r.claim.Ticket)
}

// holds reports whether slot is among the record's slots.
func (r *record) holds(slot int) bool {
	for _, s := range r.slots {
		if slot >= int(s.first) && slot <= int(s.first)+int(s.more) {
			return true
		}
	}
	return false
}

func (r *record) slotList() []int {
	var list []int
	for _, s := range r.slots {
		for i := range int(s.more) + 1 {
			list = append(list, int(s.first)+i)
		}
	}
	return list
}

func slotRanges(slots []int) []slotRange {
	var rs []slotRange
	for _, s := range slots {
		if n := len(rs); n > 0 && int(rs[n-1].first)+int(rs[n-1].more)+1 == s {
			rs[n-1].more++
			continue
		}
		rs = append(rs, slotRange{first: uint16(s)})
	}
	return rs
}

// packCommand joins argv for a record; what does not fit is cut there.
func packCommand(argv []string) []byte {
	var b []byte
	for _, a := range argv {
		if len(b) >= recordSize {
			break
		}
		b = append(append(b, a[:min(len(a), recordSize)]...), 0)
	}
	return b
}

func unpackCommand(b []byte) []string {
	var argv []string
	for len(b) > 0 {
		i := 0
		for i < len(b) && b[i] != 0 {
			i++
		}
		argv = append(argv, string(b[:i]))
		b = b[min(i+1, len(b)):]
	}
	return argv
}

func (r *record) sinceTime() time.Time { return time.UnixMicro(r.since) }
