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

func TestMain(m *testing.M) { os.Exit(testkit.Main(m, 6)) }

func local(t *testing.T) *testkit.Sandbox { return on(t, "") }

func networked(t *testing.T) *testkit.Sandbox { return on(t, redistest.StoreURL(t)) }

// on is a sandbox in which everything uses a store.
func on(t *testing.T, store string) *testkit.Sandbox {
	s := testkit.OnStore(t, store)
	s.Env = append(s.Env, "TERM=xterm")
	return s
}

// finalText is what a line that is rewritten in place has left on a terminal.
func finalText(t *testing.T, text string) string {
	t.Helper()
	const clearLine = "\r\x1b[K"
	if at := strings.LastIndex(text, clearLine); at >= 0 {
		text = text[at+len(clearLine):]
	}
	if strings.Contains(text, "\x1b") {
		t.Fatalf("an unknown sequence: %q", text)
	}
	return strings.ReplaceAll(text, "\r\n", "\n")
}
