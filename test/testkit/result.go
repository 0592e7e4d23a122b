package testkit

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Result is how a process ended.
type Result struct {
	Code   int            // exit code; -1 if it died of a signal
	Signal syscall.Signal // 0 if it exited
	Core   bool           // it left a core
	Stdout string
	Stderr string
	Took   time.Duration
	CPU    time.Duration
}

func (r Result) String() string {
	end := fmt.Sprintf("exit code %d", r.Code)
	if r.Signal != 0 {
		end = fmt.Sprintf("died of signal %d", r.Signal)
	}
	return fmt.Sprintf("%s after %v, stdout %.300q, stderr %.600q", end, r.Took.Round(time.Millisecond), r.Stdout, r.Stderr)
}

// Expect fails the test unless the process ended with this exit code and wrote
// all of the words to standard error.
func (r Result) Expect(t testing.TB, code int, words ...string) Result {
	t.Helper()
	if r.Code != code {
		t.Fatalf("%v, want exit code %d", r, code)
	}
	for _, word := range words {
		if !strings.Contains(r.Stderr, word) {
			t.Errorf("stderr is %q, want it to say %q", r.Stderr, word)
		}
	}
	return r
}

// ExpectDeath fails the test unless the process died of the signal, without a core.
func (r Result) ExpectDeath(t testing.TB, sig syscall.Signal) Result {
	t.Helper()
	if r.Signal != sig || r.Core {
		t.Fatalf("%v, want death of signal %d", r, sig)
	}
	return r
}

// Quiet fails the test unless standard error is empty. A run that waits for longer than a second
// says so, which happens on a busy machine: these lines do not count.
func (r Result) Quiet(t testing.TB) Result {
	t.Helper()
	for line := range strings.Lines(r.Stderr) {
		if !strings.HasPrefix(line, "golock: waiting for ") {
			t.Errorf("%v, want nothing on stderr", r)
			break
		}
	}
	return r
}

// Complaint checks what a failing golock leaves: the code, nothing on stdout,
// and on stderr one line with the prefix that holds one of the words.
func (r Result) Complaint(t testing.TB, code int, words ...string) {
	t.Helper()
	r.Expect(t, code)
	if r.Stdout != "" {
		t.Errorf("stdout is %q, want nothing", r.Stdout)
	}
	r.OneLine(t, words...)
}

// OneLine checks that stderr is one line with the prefix that holds one of the
// words.
func (r Result) OneLine(t testing.TB, words ...string) {
	t.Helper()
	line, rest, ended := strings.Cut(r.Stderr, "\n")
	if !ended || rest != "" || !strings.HasPrefix(line, "golock: ") || len(line) <= len("golock: ") {
		t.Errorf("stderr is %q, want exactly one line that begins with %q", r.Stderr, "golock: ")
	}
	if len(words) > 0 && !slices.ContainsFunc(words, func(s string) bool { return strings.Contains(line, s) }) {
		t.Errorf("stderr is %q, want it to name %q", r.Stderr, words)
	}
}
