package local

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/adler32"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"golock/locks"
	"golock/locks/locktest"
	"golock/test/testkit"
)

// decodeRecord reads a record; a free one is zero.
func decodeRecord(b []byte) (record, error) {
	var r record
	if len(b) < recordSize || b[recordState] == stateFree {
		return r, nil
	}
	if err := r.decode(b[:recordSize]); err != nil {
		return record{}, err
	}
	return r, nil
}

func drawRecord(t *rapid.T) record {
	r := record{
		command: rapid.StringN(0, 2*recordSize, 2*recordSize).Draw(t, "command"),
		evictor: string(rapid.SliceOfN(rapid.Byte(), 0, maxEvictor).Draw(t, "evictor")),
		extra:   string(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "extra")),
	}
	copy(r.bytes(), rapid.SliceOfN(rapid.Byte(), recordTail, recordTail).Draw(t, "what has no limits"))
	r.state = rapid.Uint8Range(stateWaiting, stateHolding).Draw(t, "state")
	r.replace = rapid.Uint8Range(0, uint8(len(replacements)-1)).Draw(t, "replace")
	r.ticket = rapid.Int64Range(0, maxTicket-1).Draw(t, "ticket")
	r.weight = rapid.Uint32Range(1, maxUnits).Draw(t, "weight")
	r.fence = rapid.Int64Range(0, locks.MaxNumber).Draw(t, "fence")
	r.since = rapid.Int64Range(0, locks.MaxMoment).Draw(t, "since")
	isLimited, n := rapid.Bool().Draw(t, "limited"), int(r.weight)
	if r.max = 0; isLimited {
		r.max = rapid.Uint32Range(r.weight, maxUnits).Draw(t, "max")
	}
	switch {
	case r.state != stateHolding:
	case isLimited:
		first := rapid.IntRange(0, int(r.max)-n).Draw(t, "first slot")
		for i := range n {
			r.slots = append(r.slots, first+i)
		}
	default:
		r.slots = rapid.SliceOfNDistinct(rapid.IntRange(0, maxSlot), n, n, rapid.ID).Draw(t, "slots")
		slices.Sort(r.slots)
	}
	return r
}

// A command may come back cut, where the record has no more room.
func TestRecordRoundTrip(t *testing.T) {
	check := func(t rapid.TB, r record) {
		b := r.encode()
		got, err := decodeRecord(b)
		if err != nil || len(b) != recordSize {
			t.Fatalf("%+v: %d bytes, %v", r, len(b), err)
		}
		room := recordSize - recordTail - rangeSize*int(r.ranges) - len(r.evictor)
		if len(r.extra) > room {
			r.extra = ""
		}
		room -= len(r.extra)
		r.command = r.command[:min(len(r.command), room)]
		if !reflect.DeepEqual(got, r) {
			t.Fatalf("%+v came back as %+v", r, got)
		}
	}
	testkit.FixRapid()
	rapid.Check(t, func(t *rapid.T) { check(t, drawRecord(t)) })

	// The longest range of slots just fits the byte for its length.
	row := record{stored: stored{state: stateHolding, weight: maxUnits}}
	for i := range maxUnits {
		row.slots = append(row.slots, 7+i)
	}
	check(t, row)
	// What a later version has added is not cut.
	row.extra, row.command = strings.Repeat("x", recordSize), "a\x00"
	check(t, row)
	row.extra = ""
	if n := binary.NativeEndian.Uint16(row.encode()[52:]); n != 1 {
		t.Errorf("%d ranges of slots in a row", n)
	}
	for _, argv := range [][]string{nil, {""}, {"a"}, {"a", "", "b"}, {"", ""}, {"sh", "-c", "x\ny"}} {
		r := New("").newRecord(locks.Request{Command: argv}, readClock())
		if got := new(lockFile).describe("x", &r).Command; !reflect.DeepEqual(got, argv) {
			t.Errorf("%q came back as %q", argv, got)
		}
	}
}

// Whatever bit is lost, it is noticed, but where the record becomes free.
func TestEveryBitCounts(t *testing.T) {
	flip := func(whole []byte, used int, decode func([]byte) error) {
		t.Helper()
		for bit := range used * 8 {
			b := bytes.Clone(whole)
			b[bit/8] ^= 1 << (bit % 8)
			if decode(b) == nil {
				t.Errorf("bit %d of byte %d may change", bit%8, bit/8)
			}
		}
	}
	h := (&header{size: 4, checkedPath: 5, next: 6, fence: 7, name: "x"}).encode()
	flip(h, len(h), func(b []byte) error {
		_, err := decodeHeader(b)
		return err
	})
	holder := record{
		stored: stored{state: stateHolding, weight: 2, ticket: 3}, slots: []int{0, 2}, command: "x\x00",
	}
	r := holder.encode()
	flip(r, recordTail+2*rangeSize+len("x\x00"), func(b []byte) error {
		if b[recordState] == stateFree {
			return errCorrupt
		}
		_, err := decodeRecord(b)
		return err
	})
}

// Whatever its checksum says, a record that no golock writes is damage: slots
// and limits are computed with what is read.
func TestImpossibleRecordsAreDamage(t *testing.T) {
	good := func() record {
		return record{stored: stored{state: stateHolding, weight: 2, max: 3, ticket: 4}, slots: []int{0, 1}}
	}
	r := good()
	_, err := decodeRecord(r.encode())
	testkit.Must(t, err)
	for name, spoil := range map[string]func(*record){
		"unknown replacement":   func(r *record) { r.replace = uint8(len(replacements)) },
		"unknown state":         func(r *record) { r.state = stateHolding + 1 },
		"ticket below all":      func(r *record) { r.ticket = -1 },
		"ticket beyond all":     func(r *record) { r.ticket = maxTicket },
		"no weight":             func(r *record) { r.weight = 0 },
		"too heavy":             func(r *record) { r.weight = maxUnits + 1 },
		"max too high":          func(r *record) { r.max = maxUnits + 1 },
		"max of 32 bits":        func(r *record) { r.max = 1<<32 - 1 },
		"holder without slots":  func(r *record) { r.slots = nil },
		"fewer slots than held": func(r *record) { r.slots = []int{0} },
		"more slots than held":  func(r *record) { r.slots = []int{0, 1, 2} },
	} {
		r := good()
		spoil(&r)
		if got, err := decodeRecord(r.encode()); err != errCorrupt {
			t.Errorf("%s: read as %+v, %v", name, got, err)
		}
	}
	for name, spoil := range map[string]func(*header){
		"no name":           func(h *header) { h.name = "" },
		"ticket below all":  func(h *header) { h.next = -1 },
		"ticket beyond all": func(h *header) { h.next = maxTicket },
		"fence below all":   func(h *header) { h.fence = -1 },
		"too many records":  func(h *header) { h.size = maxRecords + 1 },
		"size of 32 bits":   func(h *header) { h.size = 1<<32 - 1 },
	} {
		h := header{next: 1, name: "x"}
		spoil(&h)
		if got, err := decodeHeader(h.encode()); err != errCorrupt {
			t.Errorf("%s: read as %+v, %v", name, got, err)
		}
	}
}

func FuzzRecord(f *testing.F) {
	holding := record{stored: stored{state: stateHolding, weight: 3, max: 8, ticket: 5}, slots: []int{0, 1, 7}, command: "a\x00b\x00"}
	waiting := record{stored: stored{state: stateWaiting, weight: 1, ticket: 6, priority: -1}}
	f.Add(holding.encode())
	f.Add(waiting.encode())
	f.Add(make([]byte, recordSize))
	f.Add(bytes.Repeat([]byte{0xff}, recordSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		// The checksum keeps a fuzzer out; let it in by a correct one.
		for _, repaired := range [][]byte{b, withChecksum(b)} {
			r, err := decodeRecord(repaired)
			if err != nil || r.state == stateFree {
				continue
			}
			if again, err := decodeRecord(r.encode()); err != nil || !reflect.DeepEqual(again, r) {
				t.Fatalf("%+v came back as %+v, %v", r, again, err)
			}
		}
	})
}

// withChecksum gives a copy of a record whose checksum is right, if there can be
// one.
func withChecksum(b []byte) []byte {
	b = bytes.Clone(b)
	if len(b) < recordSize {
		return b
	}
	end := recordTail + rangeSize*int(binary.NativeEndian.Uint16(b[52:])) + int(binary.NativeEndian.Uint16(b[6:]))
	binary.NativeEndian.PutUint32(b, adler32.Checksum(b[4:min(end, recordSize)]))
	return b
}

// tableFile is the text of a lock file.
func tableFile(h header, records ...record) []byte {
	b := make([]byte, max(firstSize, pageSize+len(records)*recordSize))
	h.size = uint32(len(b)-pageSize) / recordSize
	copy(b, h.encode())
	for i, r := range records {
		copy(b[recordOffset(i):], r.encode())
	}
	return b
}

// FuzzFile takes any bytes, followed by zeros, for the lock file of a name. It
// works, repaired if need be, or says what is wrong with which file; the next
// user fares the same.
func FuzzFile(f *testing.F) {
	const name = "fuzz"
	dead := record{stored: stored{state: stateHolding, weight: 1, max: 1, ticket: 2}, slots: []int{0}}
	stale := record{stored: stored{state: stateWaiting, weight: 1, max: 1, ticket: 3}}
	good := tableFile(header{next: 9, fence: 8, name: name}, dead, stale)
	other := bytes.Clone(good)
	other[8] = format + 1
	bad := bytes.Clone(good)
	bad[pageSize+recordSize+20]++
	f.Add([]byte(nil), uint32(0))
	f.Add(good, uint32(0))
	f.Add(good, uint32(16<<20))
	f.Add(good[:pageSize], uint32(0))
	f.Add(good[:pageSize+recordSize/2], uint32(0))
	f.Add(good[:100], uint32(0))
	f.Add(good[:100], uint32(16<<20))
	f.Add([]byte(nil), uint32(16<<20))
	f.Add(good, uint32(80<<20))
	f.Add(other, uint32(0))
	f.Add(bad, uint32(0))
	f.Add(tableFile(header{next: maxTicket - 1, fence: 1<<63 - 1, name: name}, dead), uint32(0))
	f.Add(tableFile(header{next: 9, name: "another"}, dead), uint32(0))
	f.Add(tableFile(header{next: 1, name: name}, stale), uint32(0))
	f.Add([]byte("#!/bin/sh\n"), uint32(0))
	random := rand.New(rand.NewPCG(7, 7))
	for i := range 12 { // right checksums, wrong values
		forged := bytes.Clone(good)
		r := forged[pageSize : pageSize+recordSize]
		for range 1 + i {
			r[4+random.IntN(recordSize-4)] = byte(random.Uint32())
			r[4+random.IntN(124)] = byte(random.Uint32())
		}
		copy(r, withChecksum(r))
		f.Add(forged, uint32(0))
	}

	dir, err := os.MkdirTemp("", "golock-fuzz-")
	testkit.Must(f, err)
	f.Cleanup(func() { os.RemoveAll(dir) })
	path := lockPath(dir, name)

	f.Fuzz(func(t *testing.T, b []byte, zeros uint32) {
		testkit.Must(t, os.WriteFile(path, b, 0o600))
		size := int64(len(b)) + int64(zeros%(100<<20))
		testkit.Must(t, os.Truncate(path, size))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		failed := ""
		for range 2 {
			text := ""
			_, _ = New(dir).Entries(background, name) // ends
			if err := serve(New(dir), locktest.NewRequest(t, name, locktest.NoWait), func() {}); err != nil {
				text = err.Error()
			}
			switch {
			case text != "" && !strings.Contains(text, path):
				t.Fatalf("%s does not name the file", text)
			case text != failed && failed != "":
				t.Fatalf("first %q, then %q", failed, text)
			}
			failed = text
		}
		runtime.ReadMemStats(&after)
		if most := 2*uint64(pageSize+maxRecords*recordSize) + 32<<20; after.TotalAlloc-before.TotalAlloc > most {
			t.Fatalf("%d bytes allocated for a file of %d", after.TotalAlloc-before.TotalAlloc, size)
		}
	})
}

// damages are what can happen to a lock file.
var damages = map[string]func(t *testing.T, path string){
	"emptied":               truncated(0),
	"cut in the header":     truncated(100),
	"cut after the header":  truncated(pageSize),
	"cut in a record":       truncated(pageSize + recordSize + 10),
	"cut at the first size": truncated(firstSize), // six holders have made it longer
	"header zeroed":         patched(0, make([]byte, pageSize)),
	"header changed":        patched(24, []byte{0xff}),
	"magic changed":         patched(0, []byte("G")),
	"record changed":        patched(pageSize+recordSize+32, []byte{99}),
	"replaced by text": func(t *testing.T, path string) {
		truncated(0)(t, path)
		patched(0, bytes.Repeat([]byte("not a lock file\n"), 1000))(t, path)
	},
	"made 16 MiB of garbage": func(t *testing.T, path string) {
		patched(0, []byte("x"))(t, path)
		truncated(16<<20)(t, path)
	},
	"made longer than any table": truncated(pageSize + maxRecords*recordSize + 1),
	"given an older header":      patched(0, (&header{size: 4, next: 1, name: "x"}).encode()),
}

func truncated(size int64) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		testkit.Must(t, os.Truncate(path, size))
	}
}

func patched(at int64, text []byte) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		testkit.Must(t, err)
		defer f.Close()
		_, err = f.WriteAt(text, at)
		testkit.Must(t, err)
	}
}

// fingerprint tells whether a file has been touched.
func fingerprint(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	testkit.Must(t, err)
	defer f.Close()
	info, err := f.Stat()
	testkit.Must(t, err)
	head := make([]byte, 1<<16)
	n, _ := f.Read(head)
	return fmt.Sprintf("%d %v %x", info.Size(), info.Mode(), head[:n])
}

// A damaged file that somebody uses is left as it is, and newcomers are told. The holders notice nothing.
// A waiter whose table cannot be read any more goes on, and gets the slot when nobody holds. A damaged
// file that nobody uses is repaired in silence.
func TestDamagedFileIsLeftAloneWhileSomebodyUsesIt(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			s := New(t.TempDir())
			var held []*lease
			for range 6 { // more than a new file has records
				held = append(held, take(t, s, "x", locktest.Limit(0)))
			}
			waiters := []*locktest.WaiterOf[*lease]{queue(t, s, "x"), queue(t, s, "x")}
			path := lockPath(s.path, "x")
			testkit.AwaitSleepers(t, path, len(waiters))
			damage(t, path)
			was := fingerprint(t, path)
			for _, l := range held {
				locktest.ExpectError(t, fails(t, s, "x", path), errDamaged.Error())
				_, err := s.Entries(background, "x")
				locktest.ExpectError(t, err, path)
				if fingerprint(t, path) != was {
					t.Error("the file was changed")
				}
				locktest.Release(t, l)
			}
			first, second := waiters[0], waiters[1]
			testkit.Eventually(t, "one is granted", func() bool { return first.HasEnded() || second.HasEnded() })
			if second.HasEnded() {
				first, second = second, first
			}
			locktest.Release(t, first.ExpectGrant())
			last := second.ExpectGrant().Grant().Fence
			locktest.Release(t, second.Lease)
			if got := locktest.List(t, s, "x"); len(got) != 0 {
				t.Errorf("Entries shows %v", got)
			}
			if g := take(t, s, "x").Grant(); g.Fence <= last || !reflect.DeepEqual(g.Slots, []int{0}) {
				t.Errorf("granted %+v after fence %d", g, last)
			}
			locktest.ExpectBusy(t, s, "x")
			if info, err := os.Stat(path); err != nil || info.Size() != firstSize {
				t.Errorf("the repaired file: %v, %v", info, err)
			}
		})
	}
}

// Another golock's format is never taken for damage.
func TestOtherFormatIsLeftAlone(t *testing.T) {
	s := New(t.TempDir())
	l := take(t, s, "x")
	path := lockPath(s.path, "x")
	patched(8, []byte{77})(t, path)
	was := fingerprint(t, path)
	look := func() {
		t.Helper()
		locktest.ExpectError(t, fails(t, s, "x", path), "format 77", fmt.Sprintf("format %d", format))
		_, err := s.Entries(background, "x")
		locktest.ExpectError(t, err, "format 77")
		if fingerprint(t, path) != was {
			t.Error("the file was changed")
		}
	}
	look()
	locktest.Release(t, l)
	look()
	patched(8, []byte{format})(t, path)
	take(t, s, "x")
}

// A table may have grown to any size; what follows the records in use is free.
func TestLongSparseFileWorks(t *testing.T) {
	s := New(t.TempDir())
	l := take(t, s, "x")
	truncated(16<<20)(t, lockPath(s.path, "x"))
	locktest.ExpectBusy(t, s, "x")
	w := queue(t, s, "x")
	locktest.Release(t, l)
	locktest.Release(t, w.ExpectGrant())
	take(t, s, "x")
}

// Names whose hashes collide must not share a lock. (That they collide is
// played here by renaming the file.)
func TestFileOfAnotherNameIsRefused(t *testing.T) {
	s := New(t.TempDir())
	locktest.Release(t, take(t, s, "a"))
	testkit.Must(t, os.Rename(lockPath(s.path, "a"), lockPath(s.path, "b")))
	path := lockPath(s.path, "b")
	was := fingerprint(t, path)
	locktest.ExpectError(t, fails(t, s, "b", path), `"a"`)
	if fingerprint(t, path) != was {
		t.Error("the file was changed")
	}
}

func TestFullTableIsAnError(t *testing.T) {
	s := New(t.TempDir())
	locktest.Release(t, take(t, s, "x"))
	path := lockPath(s.path, "x")
	// Dead waiters of a lower priority: nobody has had a reason to look at them.
	stale := (&record{stored: stored{state: stateWaiting, weight: 1, priority: -1}}).encode()
	patched(0, (&header{size: maxRecords, next: 5, name: "x"}).encode())(t, path)
	patched(pageSize, bytes.Repeat(stale, maxRecords))(t, path)
	locktest.ExpectError(t, fails(t, s, "x", path), "full")
	if isInUse(t, path) {
		t.Error("something is locked after the error")
	}
	patched(recordOffset(7), make([]byte, recordSize))(t, path)
	locktest.Release(t, take(t, s, "x"))
}
