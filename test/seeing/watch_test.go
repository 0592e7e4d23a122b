//go:build integration

// golock ls on a terminal and golock ls --watch: a table that fits and is redrawn in place, elsewhere
// one that is written when something has changed.

package seeing_test

import (
	"encoding/json"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"golock/locks/redis/redistest"

	"golock/test/testkit"
)

// A table is cut to the width of a terminal. (To each width: package term.)
func TestTableOnATerminal(t *testing.T) {
	t.Parallel()
	s := local(t)
	defer s.Hold(strings.Repeat("n", 100)).Finish()
	for _, line := range strings.Split(s.Golock("ls").OnTerminal(40, 24).Expects(0).Stdout, "\r\n") {
		if n := len([]rune(line)); n > 40 {
			t.Errorf("%d columns of 40: %q", n, line)
		}
	}
	out := s.Golock("ls").Follow().Expects(0).Stdout
	if !strings.Contains(out, strings.Repeat("n", 40)) || strings.Contains(out, "\x1b") {
		t.Errorf("without a terminal: %q", out)
	}
	if out := s.Golock("ls", "--json").OnTerminal(80, 24).Expects(0).Stdout; !json.Valid([]byte(out)) {
		t.Errorf("as JSON: %q", out)
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	s := local(t)
	p := s.Golock("ls", "--watch", "--interval", "0.1").OnTerminal(80, 6)
	p.Shows("0 holding, 0 waiting")
	release := s.Hold("job").Finish
	p.Shows(`job +holding`)
	second := s.Hold("other").Finish
	var more []func()
	for _, name := range []string{"p", "q", "r"} {
		more = append(more, s.Hold(name).Finish)
	}
	p.Shows(`… and 4 more`)
	if strings.Count(p.Stdout(), "\x1b[H") < 3 {
		t.Errorf("not redrawn in place: %q", p.Stdout())
	}
	// It follows the size of the terminal.
	p.Resize(30, 20)
	p.Shows(`\x1b\[2Kr +holding[^\n]*\r\n\x1b\[J`)
	for _, f := range append(more, second, release) {
		f()
	}
	p.Shows("0 holding")
	last := p.Stdout()[strings.LastIndex(p.Stdout(), "\x1b[H"):]
	for _, line := range strings.Split(last, "\x1b[2K") {
		line, _, _ = strings.Cut(line, "\r\n")
		if n := len([]rune(line)); n > 30 {
			t.Errorf("%d columns of 30: %q", n, line)
		}
	}
	p.Signal(syscall.SIGINT)
	p.Expects(0)
}

// Ctrl-C ends it by way of the terminal too, and TERM is what it is elsewhere.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	s := local(t)
	p := s.Golock("ls", "--watch").OnTerminal(80, 24)
	p.Shows("0 holding, 0 waiting")
	p.Key("\x03")
	p.Expects(0)
	p = s.Golock("ls", "--watch").Follow()
	p.Shows("0 holding, 0 waiting")
	p.Signal(syscall.SIGTERM)
	p.DiesOf(syscall.SIGTERM)
	p = s.Golock("ls", "--watch", "job").Follow()
	p.Shows("0 holding, 0 waiting")
	p.Signal(syscall.SIGINT)
	p.Expects(0)
	for _, wrong := range [][]string{{"--interval", "5"}, {"--watch", "--interval", "0.01"}, {"--watch", "--interval", "x"}} {
		s.Golock(append([]string{"ls"}, wrong...)...).Follow().Expects(64)
	}
}

// Without a terminal a table is written when something has changed, and not
// because a lease has less time left.
func TestWatchWritesChanges(t *testing.T) {
	t.Parallel()
	s := networked(t)
	release := s.Hold("job", "--ttl", "60").Finish
	table := s.Golock("ls", "--watch", "--interval", "0.1").Follow()
	array := s.Golock("ls", "--watch", "--interval", "0.1", "--json").Follow()
	table.Shows(`(?m)^job +holding`)
	array.Shows(`(?m)^\]`)
	waiter := s.Golock("run", "--name", "job", "-q", "--", "sh", "-c", "true").Follow()
	table.Shows(`(?m)^job +waiting +1`)
	array.Shows(`(?m)^\]`)
	time.Sleep(1500 * time.Millisecond) // no order: leases have less time left then, and nothing is to be seen
	release()
	waiter.Expects(0)
	table.Shows("0 holding, 0 waiting")
	array.Shows(`(?m)^\[\]`)
	for _, p := range []*testkit.Process{table, array} {
		p.Signal(syscall.SIGINT)
		p.Expects(0)
	}
	// The waiter may be seen when it holds, or not at all.
	if n := strings.Count(table.Stdout(), "NAME"); n < 2 || n > 3 {
		t.Errorf("%d tables: %q", n, table.Stdout())
	}
	arrays := 0
	for dec := json.NewDecoder(strings.NewReader(array.Stdout())); ; arrays++ {
		var entries []map[string]any
		if err := dec.Decode(&entries); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if arrays < 3 || arrays > 4 {
		t.Errorf("%d arrays: %q", arrays, array.Stdout())
	}
}

// --watch goes on through an outage of the store.
func TestWatchThroughAnOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := on(t, server.SocketURL("quarantine=0s"))
	p := s.Golock("ls", "--watch", "--interval", "0.1").OnTerminal(120, 24)
	p.Shows("0 holding")
	server.Kill()
	p.Shows("golock: .*(reached|refused|no such file)")
	server.Restart()
	p.Shows("0 holding")
	p.Signal(syscall.SIGINT)
	p.Expects(0)
}

// When the reader of its output ends, --watch ends without a message.
func TestWatchIntoAClosedPipe(t *testing.T) {
	t.Parallel()
	s := local(t)
	reader := s.Exec("bash", "-c", `"$0" ls --watch --interval 0.1 2>err | head -1; echo "${PIPESTATUS[0]}"; cat err`,
		testkit.Golock).Begin()
	for reader.Running() { // every change is a chance to notice
		s.Lock("x", "--", "sleep", "0.3").Run()
	}
	if lines := strings.Split(reader.Expects(0).Stdout, "\n"); len(lines) != 3 || lines[1] != "141" {
		t.Errorf("%q", lines)
	}
}
