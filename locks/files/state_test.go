package files

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golock/locks"
	"golock/locks/queue"
)

func example() *state {
	id := strings.Repeat("0123456789abcdef", 2)
	return &state{nonce: 1 << 63, counter: 7, extra: " later=1", entries: []member{
		{
			Entry: queue.Entry{
				ID: id, State: queue.Holding, Claim: locks.Claim{Ticket: 3, Weight: 2, Max: 3}, Slots: []int{0, 1}, Fence: 4,
				Replace: locks.ReplaceRunning, Reachable: true,
			},
			life: 2, ttl: 5, hold: 6, granted: 7, rest: 8, extra: ` note="a b" more`,
		},
		{Entry: queue.Entry{ID: id, State: queue.Waiting, Claim: locks.Claim{Ticket: 5, Weight: 1, Priority: -1}, Reachable: true}, ttl: 9},
		{Entry: queue.Entry{ID: id, State: queue.Tombstone, Claim: locks.Claim{Weight: 1}, Evicted: "a \"b\"\nc\xff", Reachable: true}, ttl: 1},
	}}
}

// A state is read as it was written.
func TestState(t *testing.T) {
	for _, want := range []*state{example(), {entries: []member{}}} {
		if got, err := parseState(want.text()); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s\nis %+v, %v; want %+v", want.text(), got, err, want)
		}
	}
}

// One that was cut short, or changed, is found out.
func TestDamagedState(t *testing.T) {
	text := string(example().text())
	for i := range len(text) {
		if s, err := parseState([]byte(text[:i])); err == nil {
			t.Errorf("the first %d letters are %+v", i, s)
		}
	}
	for from, to := range map[string]string{
		" 7 3 later": " -7 3 later", " H ": " O ", "ef W": "g W", " 2 3 2 3 ": " 2 3 0 3 ", " H 2 3 2": " H 2 3 -5", " 4 5 6 7 8": " 9223372036854775807 5 6 7 8", " 5 6 7 8 s": " 9000000000000000000 6 7 8 s",
		"s0-1": "s9223372036854775807", " s0-1 ": " s1-9223372036854775807 ", " 8 s0-1": " 8 s0-2", "8 s0-": "8 s2147483646-", " s0-1": " s1-0", " rrunning": " running", ` ""`: ` "`, `"" note`: `""note`,
	} {
		s, err := parseState([]byte(strings.Replace(text, from, to, 1)))
		if err == nil && !slices.ContainsFunc(s.entries, func(m member) bool { return m.flaw != nil }) {
			t.Errorf("with %q for %q it is %+v", to, from, s)
		}
	}
}

// Whatever a file says, it is refused or means one thing.
func FuzzState(f *testing.F) {
	f.Add(example().text())
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parseState(text)
		if err != nil {
			return
		}
		again, err := parseState(s.text())
		if err != nil || !bytes.Equal(again.text(), s.text()) {
			t.Errorf("%q is written as %q: %v", text, s.text(), err)
		}
	})
}
