package term

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golock/locks"
)

// some returns entries of all kinds. The first five are on a networked store.
func some() (all []locks.Entry) {
	now := time.Now()
	for i := range 8 {
		e := locks.Entry{
			Name: "nightly", State: locks.Holding, Slots: []int{i}, Claim: locks.Claim{Max: 8, Weight: 1}, PID: 47110 + i, User: "deploy", Host: "build-7",
			Since: now, HasAge: true, Command: []string{"rsync", "-a", "--delete", "/srv/with a long path", "/mnt/backup"}, Expires: 27400 * time.Millisecond,
		}
		if i < 5 {
			e.TTL = 30 * time.Second
		}
		switch i {
		case 0:
			e.Unkept = true
		case 1:
			e.Name, e.Command = strings.Repeat("n", 255), nil
		case 2:
			e.HeldTill = now.Add(time.Second) // before the lease ends
			e.Name, e.Command = "日本語の名前", []string{"日本語", strings.Repeat("語", 60)}
		case 3:
			e.Claim.Weight, e.Claim.Priority = 2, -3
			e.State, e.Slots, e.Position = locks.Waiting, nil, 12
		case 4:
			e.Name, e.User = "a\x1b]0;x\ab", "\x1b[2J"
		case 5:
			e.HeldTill, e.Ended = now, true
		case 6:
			e.HeldTill = now
		case 7:
			e.PID, e.User, e.UID, e.Claim.Max, e.Since, e.HasAge = 0, "", -1, -1, time.Time{}, false
		}
		all = append(all, e)
	}
	return all
}

// No line is wider than the terminal. Each entry has a line, which shows the name and the state if
// there is room for them.
func TestTableFits(t *testing.T) {
	all := some()
	for width := 1; width <= 300; width++ {
		lines := Table(all, width)
		if len(lines) != len(all)+1 {
			t.Fatalf("width %d: %d lines for %d entries", width, len(lines), len(all))
		}
		for i, line := range lines {
			if n := Width(line); n > width {
				t.Fatalf("width %d: %d columns in %q", width, n, line)
			}
			if strings.ContainsAny(line, "\x1b\a\n\r") || !utf8.ValidString(line) {
				t.Fatalf("width %d: %q", width, line)
			}
			if i > 0 && width >= 60 && !strings.Contains(line, "holding") && !strings.Contains(line, "waiting") && !strings.Contains(line, "held until") {
				t.Errorf("width %d: no state in %q", width, line)
			}
		}
		if width >= 160 {
			for i, want := range map[int]string{0: "POS  SLOT  MAX  WEIGHT  PRIORITY  PID", 1: "  -      deploy@build-7", 3: "27s", 4: "27s", 8: "?"} {
				if !strings.Contains(lines[i], want) {
					t.Errorf("width %d: no %s in %q", width, want, lines[i])
				}
			}
		}
	}
	if got := Table(all[5:6], 300)[1]; !strings.HasSuffix(got, "'/srv/with a long path' /mnt/backup") {
		t.Errorf("cut though there is room: %q", got)
	}
	all[0].Note = strings.Repeat("n", 40)
	for width, want := range map[int]string{80: "NAME     STATE    PID  SINCE     AGE  LEFT  NOTE                    COMMAND", 200: "NAME     STATE    SLOT  MAX  PID  USER"} {
		if got := Table(all[:1], width)[0]; !strings.HasPrefix(got, want) {
			t.Errorf("width %d: %q", width, got)
		}
	}
	all[0].Note = ""
	if got := Table(all[:1], 300)[1]; !strings.HasSuffix(got, "27s   (no process)") {
		t.Errorf("a slot without a process: %q", got)
	}
}

// Columns are aligned also where characters are wide or have no width.
func TestTableColumns(t *testing.T) {
	for _, width := range []int{0, 100, 200} {
		lines := Table(some(), width)
		at := strings.Index(lines[0], "STATE")
		for i, line := range lines[1:] {
			n := 0
			for j := range line {
				if n = Width(line[:j]); n == at {
					if !strings.HasPrefix(line[j:], "h") && !strings.HasPrefix(line[j:], "waiting") {
						t.Errorf("width %d, line %d: %q at column %d", width, i, line[j:], at)
					}
					break
				}
			}
		}
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  string
	}{
		{"abc", 3, "abc"},
		{"abcd", 3, "ab…"},
		{"日本", 4, "日本"},
		{"日本", 3, "日…"},
		{"日本", 2, "…"},
		{"e\u0301e\u0301", 2, "e\u0301e\u0301"},
		{"", 0, ""},
	} {
		if got := Cut(c.text, c.width); got != c.want {
			t.Errorf("%s in %d: %q, want %q", fmt.Sprintf("%q", c.text), c.width, got, c.want)
		}
	}
}
