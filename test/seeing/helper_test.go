// Package seeing_test holds the program to what it shows to people and to their
// monitoring: the table of golock ls on a terminal, the line of a run that waits,
// what a service manager is told, the textfile for Prometheus.
//
// This file pins nothing. It builds golock once and starts it on a terminal or
// with pipes.
package seeing_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"golock/locks/redis/redistest"
)

// limit is how long a test waits for something that has to happen.
const limit = 30 * time.Second

var golock string // the program under test

func TestMain(m *testing.M) { os.Exit(setUp(m)) }

func setUp(m *testing.M) int {
	dir, err := os.MkdirTemp("", "golock-seeing-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	golock = filepath.Join(dir, "golock")
	build := exec.Command("go", "build", "-trimpath", "-o", golock, "../..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if os.Getenv("GOLOCK_TEST_RACE") == "1" {
		build = exec.Command("go", "build", "-race", "-o", golock, "../..")
	}
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building golock: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// world is a store and a directory.
type world struct {
	t   *testing.T
	url string
	dir string
	env []string
}

func local(t *testing.T) *world {
	dir := t.TempDir()
	return &world{t: t, dir: dir, url: "local://" + dir + "/store"}
}

func networked(t *testing.T) *world {
	return &world{t: t, dir: t.TempDir(), url: redistest.Start(t).SocketURL("quarantine=0s")}
}

// proc is a golock that has been started; what it writes, on its terminal or to
// standard output and error, is collected.
type proc struct {
	t     *testing.T
	cmd   *exec.Cmd
	pty   *os.File // nil: none
	ended chan struct{}

	mu   sync.Mutex
	text string
	seen int
}

// Write implements io.Writer.
func (p *proc) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text += string(b)
	return len(b), nil
}

func (w *world) command(args []string) *exec.Cmd {
	cmd := exec.Command(golock, args...)
	cmd.Dir = w.dir
	cmd.Env = append([]string{"PATH=/usr/local/bin:/usr/bin:/bin", "TERM=xterm", "LC_ALL=C", "GOLOCK_STORE=" + w.url}, w.env...)
	return cmd
}

func (w *world) follow(p *proc) *proc {
	w.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
	})
	return p
}

// start starts golock without a terminal on its standard files.
func (w *world) start(args ...string) *proc {
	w.t.Helper()
	p := &proc{t: w.t, cmd: w.command(args), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p, p
	p.cmd.WaitDelay = time.Second
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait()
	}()
	return w.follow(p)
}

// onTerminal starts golock as the leader of a terminal of that size.
func (w *world) onTerminal(columns, rows uint16, args ...string) *proc {
	w.t.Helper()
	p := &proc{t: w.t, cmd: w.command(args), ended: make(chan struct{})}
	var err error
	if p.pty, err = pty.StartWithSize(p.cmd, &pty.Winsize{Cols: columns, Rows: rows}); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		buffer := make([]byte, 4096)
		for {
			n, err := p.pty.Read(buffer)
			_, _ = p.Write(buffer[:n])
			if err != nil { // the last that had the terminal open is gone
				break
			}
		}
		_ = p.cmd.Wait()
		p.pty.Close()
	}()
	return w.follow(p)
}

// hold has a lock held until the function is called.
func (w *world) hold(name string, more ...string) (release func()) {
	w.t.Helper()
	in, out := filepath.Join(w.t.TempDir(), "in"), filepath.Join(w.t.TempDir(), "out")
	args := append([]string{"run", "--name", name}, more...)
	p := w.start(append(args, "--", "sh", "-c", `: >"$1"; until test -e "$2"; do sleep 0.02; done`, "hold", in, out)...)
	await(w.t, "the holder of "+name, func() bool { return exists(in) })
	return func() {
		w.t.Helper()
		if err := os.WriteFile(out, nil, 0o644); err != nil {
			w.t.Fatal(err)
		}
		p.code(0)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for until := time.Now().Add(limit); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("no %s", what)
		}
	}
}

// shows waits for what matches a regular expression, after what was shown
// before, and gives it.
func (p *proc) shows(expression string) string {
	p.t.Helper()
	re := regexp.MustCompile(expression)
	found := ""
	for until := time.Now().Add(limit); ; time.Sleep(5 * time.Millisecond) {
		p.mu.Lock()
		rest := p.text[p.seen:]
		at := re.FindStringIndex(rest)
		if at != nil {
			found = rest[at[0]:at[1]]
			p.seen += at[1]
		}
		p.mu.Unlock()
		if at != nil {
			return found
		}
		if time.Now().After(until) {
			p.t.Fatalf("%q does not show %q but, in the end, %q", p.cmd.Args, expression, rest[max(len(rest)-2000, 0):])
		}
	}
}

func (p *proc) all() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text
}

// code waits for the end, which must have that exit code.
func (p *proc) code(want int) {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(limit):
		p.t.Fatalf("%q does not end; it has written %q", p.cmd.Args, p.all())
	}
	if got := p.cmd.ProcessState.ExitCode(); got != want {
		p.t.Fatalf("%q ends with %d, want %d; it has written %q", p.cmd.Args, got, want, p.all())
	}
}

func (p *proc) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
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
