//go:build integration

package sql

import (
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/queue"
)

// written is a row as the server gives it back.
func written(t *testing.T, r row) []string {
	t.Helper()
	fields := r.fields()
	for i, f := range fields {
		fields[i] = strings.Trim(f, "'")
	}
	return fields
}

// A row comes back as it was written, whatever the texts are, and nothing in it
// could end a text of SQL.
func FuzzRow(f *testing.F) {
	f.Add("user anna", "host", int64(1), 3, -5, uint8(2))
	f.Add("'; DROP TABLE golock; --", "a\\b\"c\x00\u2028", int64(-1), 0, -1<<31, uint8(255))
	f.Add("", "&word=c", int64(1<<62), 1, 1<<30, uint8(1))
	f.Fuzz(func(t *testing.T, by, word string, moment int64, limit, priority int, slots uint8) {
		r := row{
			Entry: queue.Entry{
				State: queue.Holding, ID: "0123456789abcdef0123456789abcdef", Replace: locks.ReplaceRunning,
				Evicted: by, Fence: moment,
				Claim: locks.Claim{Max: limit, Priority: priority, Ticket: moment},
			},
			ends: moment, due: 4, ttl: 30 * time.Second, since: 1, hold: 2, wakeConn: 3,
			info: infoOf(locks.Request{Command: []string{word, by}}), login: escape(word, maxLogin),
		}
		for slot := range int(slots) {
			if slot%7 != 3 {
				r.Slots = append(r.Slots, slot)
			}
		}
		r.Claim.Weight = len(r.Slots)
		stored := r.Stored(r.ttl, 0)
		stored.Moments = []int64{moment}
		valid := stored.Check()
		fields := written(t, r)
		for _, text := range fields {
			if !isPlain(strings.ReplaceAll(text, ",", "")) {
				t.Fatalf("the field %q needs quoting", text)
			}
		}
		back := parseRow(fields)
		if (back.flaw == nil) != (valid == nil) {
			t.Fatalf("%+v has the flaw %v, want %v", r, back.flaw, valid)
		}
		if back.flaw != nil {
			return
		}
		short := len(by) < maxEvicted/3 && len(word) < 600 // escaped it is three times as long
		if d := parseOwner(back.info); short && !slices.Equal(d.Command, []string{word, by}) {
			t.Errorf("the command %q came back as %q", word, d.Command)
		}
		if by := strings.ToValidUTF8(by, "�"); short && back.Evicted != by {
			t.Errorf("evicted by %q came back as %q", by, back.Evicted)
		}
		r.Evicted = back.Evicted
		if !reflect.DeepEqual(back, r) {
			t.Errorf("%+v came back as %+v", r, back)
		}
	})
}

// What somebody else has written into the table is not run as SQL, and numbers that no int
// holds are not cut.
func TestForeignRows(t *testing.T) {
	t.Parallel()
	const id = "0123456789abcdef0123456789abcdef"
	entry := queue.Entry{ID: id, Claim: locks.Claim{Weight: 1, Max: 1}}
	good := row{Entry: entry, ttl: time.Second, info: "host=a"}
	for _, tt := range []struct {
		field int
		text  string
	}{
		{0, "'"}, {0, "X"}, {0, ""}, {1, id + "'; DROP TABLE golock"}, {1, ""}, {2, "0"}, {2, strings.Repeat("f", 32)},
		{3, "9223372036854775808"}, {3, "9223372036854775807"}, {3, ""}, {4, "-1"}, {5, "-1"}, {5, "9000000000000000000"},
		{6, "9223372036854775808"}, {6, "4294967296"}, {6, "0"}, {6, "-5"}, {6, "2"}, {6, "65537"}, {7, "-1"}, {7, "4294967297"},
		{8, "-1"}, {8, "9223372036854775807"}, {9, "-9223372036854775808"}, {10, "-1"}, {10, "100000000000000000"}, {12, "x'"}, {12, "all"},
		{13, "0'"}, {13, "1"}, {13, "0-1"}, {13, "9223372036854775807"}, {13, "1-9223372036854775807"}, {13, "2147483647"},
		{13, ""}, {15, "host=a'--"}, {15, strings.Repeat("a", maxInfo+1)}, {16, strings.Repeat("a", maxLogin+1)},
	} {
		for _, state := range []queue.State{queue.Waiting, queue.Holding} {
			r := good
			if r.State = state; state == queue.Holding {
				r.Slots = []int{0}
			}
			fields := written(t, r)
			isSame := fields[tt.field] == tt.text
			fields[tt.field] = tt.text
			if r := parseRow(fields); (r.flaw == nil) != isSame {
				t.Errorf("field %d with %q is read as %+v, %v", tt.field, tt.text, r, r.flaw)
			}
		}
	}
}

// However many arguments a command has, what is shown of them has room.
func TestManyArguments(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"", "1", "12345678", "ü", strings.Repeat("ü", 5000)} {
		var command []string
		for range 3000 {
			command = append(command, word)
		}
		info := infoOf(locks.Request{Command: command, Keeper: locks.KeptByRun})
		if o := parseOwner(info); len(info) > maxInfo || o.PID != os.Getpid() || !o.Runs || len(o.Command) == 0 {
			t.Errorf("%d times %.10q: %d bytes, %.100q", len(command), word, len(info), info)
		}
	}
}

// A quarantine withdraws the offer that a renewal asks for, if a crash of the server undid its
// acceptance. It may not be restored in the same epoch: that is a lost lease.
func TestRenewWithdrawnOffer(t *testing.T) {
	offered := row{
		Entry: queue.Entry{
			ID: "a", State: queue.Offered, Claim: locks.Claim{Weight: 1, Max: 1, Ticket: 7}, Slots: []int{0}, Fence: 8,
		},
		ends: 2000, due: 2000, ttl: time.Second, wakeConn: 3,
	}
	s := &Store{target: &Target{waiters: -1}, table: "golock"}
	s.maxConns.Store(100)
	v := &view{
		facts: facts{now: 1000, server: "s", conn: 4}, name: &nameState{epoch: "e", servers: "s", quarantine: 1500},
		holders: []row{offered}, callerRow: &offered, limit: queue.ShownPlaces,
	}
	q := &question{
		Question: queue.Question{Step: queue.Renew, Entry: queue.Entry{ID: "a", Slots: []int{0}}, Epoch: "e"},
		row:      row{Entry: queue.Entry{ID: "a"}, ttl: time.Second},
	}
	step, err := s.decide(q, v)
	if err != nil || step.answer.Verdict != queue.Lost {
		t.Fatalf("%v, %v", step, err)
	}
	if text := step.finish(); !strings.Contains(text, "SET state='W',due=1000,fence=0,conn=0,slots=''") {
		t.Error(text)
	}
}

// A time that is as far away as one can be does not make a waiter late, nor does a waiter that is overdue.
func TestFarTimes(t *testing.T) {
	t.Parallel()
	holder := row{
		Entry: queue.Entry{ID: "a", State: queue.Holding, Claim: locks.Claim{Weight: 1, Max: 1}, Slots: []int{0}},
		ends:  locks.MaxMoment, ttl: time.Second, hold: locks.MaxMoment,
	}
	for what, set := range map[string]func(v *view){
		"hold":       func(v *view) { v.holders = []row{holder} },
		"quarantine": func(v *view) { v.name.quarantine = locks.MaxMoment },
		"due": func(v *view) {
			v.front = []row{{
				Entry: queue.Entry{ID: "b", State: queue.Waiting, Claim: locks.Claim{Weight: 1, Max: 1, Ticket: 1}},
				ends:  locks.MaxMoment, due: locks.MaxMoment, ttl: time.Second,
			}}
		},
	} {
		s := &Store{target: &Target{waiters: 0}, table: "golock"}
		v := &view{facts: facts{now: 1, server: "s"}, name: &nameState{epoch: "e", servers: "s", counter: 9}, limit: queue.ShownPlaces}
		set(v)
		q := &question{
			Question: queue.Question{Step: queue.Join, Entry: queue.Entry{ID: "c", State: queue.Waiting, Claim: locks.Claim{Weight: 1, Max: 1}}},
			row:      row{Entry: queue.Entry{ID: "c"}, ttl: 30 * time.Second},
		}
		step, err := s.decide(q, v)
		if err != nil || step.callerRow == nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if d := step.answer.Nap.For; d <= 0 || d > 11*time.Second || step.callerRow.due < v.now {
			t.Errorf("%s: it looks again in %v and is overdue from %d", what, d, step.callerRow.due)
		}
	}
}

// The row of a name, and that of the table, with times that golock cannot have written.
func TestForeignState(t *testing.T) {
	t.Parallel()
	const now = int64(1e15)
	for _, tt := range []struct {
		field   int // of the row
		number  int64
		isValid bool
	}{
		{0, 0, true}, {8, -1, false}, {8, locks.MaxMoment + 1, false}, {9, -1, false}, {9, math.MaxInt64, false},
		{3, now + micros(time.Hour), true}, {3, locks.MaxMoment, false}, {3, -1, false}, {4, -1, false}, {4, math.MaxInt64, false},
	} {
		line := strings.Split("name,epoch,server,0,0,0,0,low,0,0", ",")
		if tt.field > 0 {
			line[tt.field] = strconv.FormatInt(tt.number, 10)
		}
		v := &view{facts: facts{now: now}}
		v.readName(line)
		if (len(v.invalid) == 0) != tt.isValid {
			t.Errorf("%v: %+v", tt, v.invalid)
		}
	}
	for _, tt := range []struct {
		field   int
		text    string
		isValid bool
	}{
		{4, fmt.Sprint(now), true}, {2, fmt.Sprint(locks.MaxMoment), false}, {2, "-1", false}, {3, "-1", false},
		{3, fmt.Sprint(locks.MaxMoment + 1), false}, {0, "9", false}, {4, "-1", false}, {4, "9223372036854775807", false},
		{6, "9223372036854775807", false},
	} {
		line := strings.Split(fmt.Sprintf("%d,server,0,0,%d,here,0,1,account,100", format, now), ",")
		line[tt.field] = tt.text
		err := new(view).readTable(&Store{target: &Target{}}, &question{}, line)
		if (err == nil) != tt.isValid {
			t.Errorf("field %d with %q: %v", tt.field, tt.text, err)
		}
	}
}

// Of a text that is cut in the middle of an escaped letter the rest is read.
func TestCutInfo(t *testing.T) {
	t.Parallel()
	info := infoOf(locks.Request{Command: []string{strings.Repeat("ü", 300)}})
	for n := range 8 {
		line := written(t, row{Entry: queue.Entry{State: queue.Waiting}, info: info[:400-n]})
		r := parseRow(line)
		if o := parseOwner(r.info); len(o.Command) != 1 || !strings.HasPrefix(o.Command[0], "üü") {
			t.Errorf("%q: %q", r.info, o.Command)
		}
	}
}
