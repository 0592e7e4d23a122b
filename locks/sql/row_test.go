//go:build integration

package sql

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golock/locks"
)

// written is a row as the server gives it back.
func written(t *testing.T, r row) []string {
	t.Helper()
	fields, err := r.fields()
	if err != nil {
		t.Fatal(err)
	}
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
	f.Fuzz(func(t *testing.T, by, word string, moment int64, limit, priority int, slots uint8) {
		r := row{
			state: holding, id: "0123456789abcdef0123456789abcdef", claim: locks.Claim{Weight: int(slots), Max: limit, Priority: priority, Ticket: moment},
			ends: moment, ttl: 30 * time.Second, fence: moment, since: 1, hold: 2, wakeConn: 3, woken: true, replaces: locks.ReplaceRunning,
			evicted: by, info: withLogin(infoOf(locks.Request{Command: []string{word, by}}), by),
		}
		for slot := range int(slots) {
			if slot%7 != 3 {
				r.slots = append(r.slots, slot)
			}
		}
		fields := written(t, r)
		for _, text := range fields {
			if !isPlain(strings.ReplaceAll(text, ",", "")) {
				t.Fatalf("the field %q needs quoting", text)
			}
		}
		back, err := parseRow(fields)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(back.slots, r.slots) || back.claim != r.claim || back.ends != r.ends || back.replaces != r.replaces || !back.woken {
			t.Errorf("%+v came back as %+v", r, back)
		}
		if want := strings.ToValidUTF8(by, "�"); len(by) < maxEvicted/3 && back.evicted != want {
			t.Errorf("evicted by %q came back as %q", by, back.evicted)
		}
		if d := parseOwner(back.info); len(word)+len(by) < maxCommand/4 && (len(d.Command) != 2 || d.Command[0] != strings.ToValidUTF8(word, "�")) {
			t.Errorf("the command %q came back as %q", word, d.Command)
		}
	})
}

// What somebody else has written into the table is not run as SQL.
func TestForeignRows(t *testing.T) {
	good := row{state: waiting, id: "00", claim: locks.Claim{Weight: 1}, ttl: time.Second, info: "host=a"}
	for i, text := range map[int]string{0: "W'", 1: "00'; DROP TABLE golock", 13: "x'", 14: "0'", 16: "host=a'--"} {
		fields := written(t, good)
		fields[i] = text
		if _, err := parseRow(fields); err == nil {
			t.Errorf("field %d with %q is taken", i, text)
		} else if i != 14 && !errors.Is(err, errNotOurs) {
			t.Errorf("field %d with %q: %v", i, text, err)
		}
	}
}

// The moment when an entry has gone has 64 bits on every machine.
func TestRowOfTheGone(t *testing.T) {
	r := row{state: gone, id: "00", claim: locks.Claim{Weight: 1}, goneAt: 1795327713524546}
	fields := written(t, r)
	if fields[2] != "1795327713524546" {
		t.Errorf("place is %s", fields[2])
	}
	if back, err := parseRow(fields); err != nil || back.goneAt != r.goneAt || back.claim.Priority != 0 {
		t.Errorf("read as %+v, %v", back, err)
	}
}

// Numbers that no int holds are not cut.
func TestRowOfLargeNumbers(t *testing.T) {
	for i, text := range map[int]string{2: "9223372036854775808", 6: "4294967296", 7: "9223372036854775808"} {
		fields := written(t, row{state: waiting, id: "00", claim: locks.Claim{Weight: 1}, ttl: time.Second})
		fields[i] = text
		if r, err := parseRow(fields); err == nil && (strconv.IntSize == 32 || text != "4294967296") {
			t.Errorf("field %d with %s is read as %+v", i, text, r)
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
		if n := len(withLogin(infoOf(locks.Request{Command: command, Runs: true}), strings.Repeat("ü", 500))); n > maxInfo {
			t.Errorf("%d times %.10q: %d bytes, want at most %d", len(command), word, n, maxInfo)
		}
	}
}

// Whose connections this client cannot see is known from what golock writes.
func TestLogin(t *testing.T) {
	t.Parallel()
	command := []string{"x", "&login=c", "login=d"}
	info := infoOf(locks.Request{Command: command, Runs: true})
	for _, login := range []string{"golock@localhost", "a&login=b", "ü", ""} {
		info = withLogin(info, login) // a second time it takes the place of the first
		if got := loginOf(info); got != login || !slices.Equal(parseOwner(info).Command, command) {
			t.Errorf("login %q is read as %q", login, got)
		}
	}
	if got := loginOf("host=a&pid=1"); got != "" {
		t.Errorf("no login is read as %q", got)
	}
}
