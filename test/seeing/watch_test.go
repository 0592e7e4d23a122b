// Pins golock ls on a terminal and golock ls --watch: lines that fit, a table
// that is redrawn in place, and elsewhere one that is written when something
// has changed.

package seeing_test

import (
	"encoding/json"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"golock/locks/redis/redistest"
)

func TestTableOnATerminal(t *testing.T) {
	t.Parallel()
	w := local(t)
	defer w.hold("job")()
	defer w.hold(strings.Repeat("n", 100))()
	for _, columns := range []uint16{20, 40, 60, 80, 200} {
		p := w.onTerminal(columns, 24, "ls")
		p.code(0)
		lines := strings.Split(strings.TrimSuffix(p.all(), "\r\n"), "\r\n")
		if len(lines) != 3 {
			t.Errorf("%d columns: %q", columns, lines)
		}
		for _, line := range lines {
			if n := len([]rune(line)); n > int(columns) {
				t.Errorf("%d columns of %d: %q", n, columns, line)
			}
		}
	}
	p := w.start("ls")
	p.code(0)
	if !strings.Contains(p.all(), strings.Repeat("n", 40)) || strings.Contains(p.all(), "\x1b") {
		t.Errorf("without a terminal: %q", p.all())
	}
	p = w.onTerminal(80, 24, "ls", "--json")
	p.code(0)
	if !json.Valid([]byte(p.all())) {
		t.Errorf("as JSON: %q", p.all())
	}
}

// A networked store's table says on which host, and for how long.
func TestTableOfLeases(t *testing.T) {
	t.Parallel()
	w := networked(t)
	defer w.hold("job", "--ttl", "60")()
	p := w.onTerminal(200, 24, "ls")
	p.shows(`NAME +STATE +SLOT +MAX +PID +USER +SINCE +UNTIL +COMMAND`)
	p.shows(`job +holding +0 +1 +[0-9]+ +[a-z]+@\S+ +[0-9:]{8} +(5[0-9]s|1m0s) +sh`)
	p.code(0)
}

func TestWatch(t *testing.T) {
	t.Parallel()
	w := local(t)
	p := w.onTerminal(80, 6, "ls", "--watch", "--interval", "0.1")
	p.shows("nobody holds, nobody waits")
	release := w.hold("job")
	p.shows(`job +holding`)
	second := w.hold("other")
	var more []func()
	for _, name := range []string{"p", "q", "r"} {
		more = append(more, w.hold(name))
	}
	p.shows(`… and 4 more`)
	lines := screen(t, p.all())
	for _, line := range lines {
		if n := len([]rune(line)); n > 80 {
			t.Errorf("%d columns of 80: %q", n, line)
		}
	}
	if strings.Count(p.all(), "\x1b[H") < 3 {
		t.Errorf("not redrawn in place: %q", p.all())
	}
	// It follows the size of the terminal.
	if err := pty.Setsize(p.pty, &pty.Winsize{Cols: 30, Rows: 20}); err != nil {
		t.Fatal(err)
	}
	p.shows(`\x1b\[2Kr +holding[^\n]*\r\n\x1b\[J`)
	for _, f := range append(more, second, release) {
		f()
	}
	p.shows("nobody holds, nobody waits")
	last := p.all()[strings.LastIndex(p.all(), "\x1b[H"):]
	for _, line := range screen(t, last) {
		if n := len([]rune(line)); n > 30 {
			t.Errorf("%d columns of 30: %q", n, line)
		}
	}
	p.signal(syscall.SIGINT)
	p.code(0)
}

// Ctrl-C ends it by way of the terminal too, and TERM is what it is elsewhere.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	w := local(t)
	p := w.onTerminal(80, 24, "ls", "--watch")
	p.shows("nobody waits")
	if _, err := p.pty.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	p.code(0)
	p = w.start("ls", "--watch")
	p.shows("nobody waits")
	p.signal(syscall.SIGTERM)
	p.code(143)
	p = w.start("ls", "--watch", "job")
	p.shows("nobody waits")
	p.signal(syscall.SIGINT)
	p.code(0)
	for _, wrong := range [][]string{{"--interval", "5"}, {"--watch", "--interval", "0.01"}, {"--watch", "--interval", "x"}} {
		w.start(append([]string{"ls"}, wrong...)...).code(64)
	}
}

// Without a terminal a table is written when something has changed, and not
// because a lease has less time left.
func TestWatchWritesChanges(t *testing.T) {
	t.Parallel()
	w := networked(t)
	release := w.hold("job", "--ttl", "60")
	table := w.start("ls", "--watch", "--interval", "0.1")
	array := w.start("ls", "--watch", "--interval", "0.1", "--json")
	table.shows(`(?m)^job +holding`)
	array.shows(`(?m)^\]`)
	waiter := w.start("run", "--name", "job", "-q", "--", "sh", "-c", "true")
	table.shows(`(?m)^job +waiting 1`)
	array.shows(`(?m)^\]`)
	time.Sleep(1500 * time.Millisecond) // no order: leases have less time left then, and nothing is to be seen
	release()
	waiter.code(0)
	table.shows("nobody holds, nobody waits")
	array.shows(`(?m)^\[\]`)
	for _, p := range []*proc{table, array} {
		p.signal(syscall.SIGINT)
		p.code(0)
	}
	// The waiter may be seen when it holds, or not at all.
	if n := strings.Count(table.all(), "NAME"); n < 2 || n > 3 {
		t.Errorf("%d tables: %q", n, table.all())
	}
	arrays := 0
	for dec := json.NewDecoder(strings.NewReader(array.all())); ; arrays++ {
		var entries []map[string]any
		if err := dec.Decode(&entries); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if arrays < 3 || arrays > 4 {
		t.Errorf("%d arrays: %q", arrays, array.all())
	}
}

// A store that goes away and comes back ends nothing.
func TestWatchThroughAnOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	w := &world{t: t, dir: t.TempDir(), url: server.SocketURL("quarantine=0s")}
	p := w.onTerminal(120, 24, "ls", "--watch", "--interval", "0.1")
	p.shows("nobody holds")
	server.Kill()
	p.shows("golock: .*(reached|refused|no such file)")
	server.Restart()
	p.shows("nobody holds")
	p.signal(syscall.SIGINT)
	p.code(0)
}

// A reader that has seen enough ends it without a word.
func TestWatchIntoAClosedPipe(t *testing.T) {
	t.Parallel()
	w := local(t)
	cmd := exec.Command("bash", "-c", `"$0" ls --watch --interval 0.1 2>err | head -1; echo "${PIPESTATUS[0]}"; cat err`, golock)
	cmd.Dir, cmd.Env = w.dir, w.command(nil).Env
	done := make(chan struct{})
	var out []byte
	go func() {
		defer close(done)
		out, _ = cmd.Output()
	}()
	// Every change is a chance to notice.
	for {
		w.start("run", "--name", "x", "--", "sleep", "0.3").code(0)
		select {
		case <-done:
			if lines := strings.Split(string(out), "\n"); len(lines) != 3 || lines[1] != "141" {
				t.Errorf("%q", out)
			}
			return
		default:
		}
	}
}
