//go:build integration

// Package seeing_test holds the program to what it shows to people and to their
// monitoring: the table of golock ls on a terminal, the line of a run that waits,
// what a service manager is told.
package seeing_test

import (
	"os"
	"strings"
	"testing"

	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

func TestMain(m *testing.M) {
	testkit.Parallel(6) // they mostly wait
	os.Exit(testkit.Main(m, redistest.Close))
}

func local(t *testing.T) *testkit.Sandbox { return on(t, "") }

func networked(t *testing.T) *testkit.Sandbox { return on(t, redistest.StoreURL(t)) }

// on is a sandbox in which everything uses a store.
func on(t *testing.T, store string) *testkit.Sandbox {
	s := testkit.OnStore(t, store)
	s.Env = append(s.Env, "TERM=xterm")
	return s
}

// start starts golock without a terminal on its standard files.
func start(s *testkit.Sandbox, args ...string) *testkit.Process {
	s.T.Helper()
	return s.Golock(args...).Follow()
}

func onTerminal(s *testkit.Sandbox, columns, rows uint16, args ...string) *testkit.Process {
	s.T.Helper()
	return s.Golock(args...).OnTerminal(columns, rows)
}

// hold has a lock held until the function is called.
func hold(s *testkit.Sandbox, name string, more ...string) (release func()) {
	s.T.Helper()
	p := s.Lock(name, append(more, "--", "sh", "-c", "echo holding; read code")...).Start()
	p.Expect("holding")
	return p.Finish
}

// screen plays a terminal: it gives the lines that stand on it after all that
// was written. It knows what golock uses, and fails on anything else.
func screen(t *testing.T, text string) []string {
	t.Helper()
	lines, row, col := []string{""}, 0, 0
	put := func(r rune) {
		for len(lines) <= row {
			lines = append(lines, "")
		}
		line := []rune(lines[row])
		for len(line) <= col {
			line = append(line, ' ')
		}
		line[col] = r
		lines[row] = string(line)
		col++
	}
	for len(text) > 0 {
		switch {
		case strings.HasPrefix(text, "\x1b[H"):
			row, col, text = 0, 0, text[3:]
		case strings.HasPrefix(text, "\x1b[2K"):
			if row < len(lines) {
				lines[row] = ""
			}
			text = text[4:]
		case strings.HasPrefix(text, "\x1b[K"):
			if row < len(lines) {
				lines[row] = string([]rune(lines[row])[:min(col, len([]rune(lines[row])))])
			}
			text = text[3:]
		case strings.HasPrefix(text, "\x1b[J"):
			lines, text = lines[:min(row, len(lines))], text[3:]
		case text[0] == '\r':
			col, text = 0, text[1:]
		case text[0] == '\n':
			row, text = row+1, text[1:]
		case text[0] < ' ':
			t.Fatalf("an unknown sequence: %.20q", text)
		default:
			for _, r := range text {
				put(r)
				text = text[len(string(r)):]
				break
			}
		}
	}
	return lines
}
