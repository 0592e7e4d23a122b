// Package policy_test holds the program to its queue policy, on every store
// that has one: what --hold, --replace and golock break promise when hosts come
// at once, commands are stubborn, and golocks are stopped or killed.
//
// This file pins nothing. It builds golock and starts it in a directory of its
// own. Events are ordered by what the commands write and by golock ls.
package policy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golock/locks/redis/redistest"
	"golock/locks/sql/sqltest"
)

// limit is how long a test waits for something that has to happen.
const limit = 30 * time.Second

var golock string // the program under test

func TestMain(m *testing.M) { os.Exit(setUp(m)) }

func setUp(m *testing.M) int {
	dir, err := os.MkdirTemp("", "golock-policy-")
	if err == nil {
		err = os.Chmod(dir, 0o755) // other users run it too
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	golock = filepath.Join(dir, "golock")
	build := exec.Command("go", "build", "-trimpath", "-o", golock, "../..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building golock: %v\n%s", err, out)
		return 1
	}
	return sqltest.Main(m)
}

// world is a store and a directory in which commands leave their traces.
type world struct {
	t   testing.TB
	url string
	dir string
}

// local and networked give worlds; each runs a test in both.
func local(t testing.TB) *world {
	w := &world{t: t, dir: t.TempDir()}
	w.url = "local://" + w.dir + "/store"
	return w
}

func networked(t testing.TB) *world {
	return &world{t: t, dir: t.TempDir(), url: redistest.Start(t).SocketURL("quarantine=0s")}
}

func each(t *testing.T, test func(t *testing.T, w *world)) {
	for name, make := range map[string]func(testing.TB) *world{"local": local, "redis": networked} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, make(t))
		})
	}
}

// isLocal reports whether it is the store of one machine.
func (w *world) isLocal() bool { return strings.HasPrefix(w.url, "local") }

// proc is a golock that has been started.
type proc struct {
	t      testing.TB
	cmd    *exec.Cmd
	stderr *os.File // a pipe that is read late would lose lines
	ended  chan struct{}
}

// start starts a program in the world's directory. It and what it starts are
// gone with the test.
func (w *world) start(argv ...string) *proc {
	w.t.Helper()
	p := &proc{t: w.t, cmd: exec.Command(argv[0], argv[1:]...), ended: make(chan struct{})}
	p.cmd.Dir = w.dir
	p.cmd.Env = append(os.Environ(), "STORE="+w.url)
	var err error
	if p.stderr, err = os.CreateTemp(w.t.TempDir(), "stderr"); err != nil {
		w.t.Fatal(err)
	}
	p.cmd.Stderr = p.stderr
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait()
	}()
	w.t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		_ = p.cmd.Process.Kill()
		<-p.ended
		p.stderr.Close()
	})
	return p
}

// said is what it has written to standard error.
func (p *proc) said() string {
	text, _ := os.ReadFile(p.stderr.Name())
	return string(text)
}

// run starts golock run of a lock.
func (w *world) run(name string, args ...string) *proc {
	w.t.Helper()
	return w.start(append([]string{golock, "run", "--store", w.url, "--name", name}, args...)...)
}

// golock starts another command of golock.
func (w *world) golock(command string, args ...string) *proc {
	w.t.Helper()
	return w.start(append([]string{golock, command, "--store", w.url}, args...)...)
}

// code waits for the end.
func (p *proc) code() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(limit):
		p.t.Fatalf("%q does not end; stderr %q", p.cmd.Args, p.said())
	}
	return p.cmd.ProcessState.ExitCode()
}

// expect waits for the end, which must have that code, and demands those words
// on standard error.
func (p *proc) expect(code int, words ...string) {
	p.t.Helper()
	got := p.code()
	text := p.said()
	if got != code {
		p.t.Fatalf("%q: code %d, want %d; stderr %q", p.cmd.Args[1:], got, code, text)
	}
	for _, word := range words {
		if !strings.Contains(text, word) {
			p.t.Errorf("%q says %q, want it to name %q", p.cmd.Args[1:], text, word)
		}
	}
}

func (p *proc) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// await waits until a file has a line, and returns what is in it.
func (w *world) await(name string) string {
	w.t.Helper()
	var text []byte
	w.eventually(name+" is there", func() bool {
		text, _ = os.ReadFile(w.path(name))
		return bytes.HasSuffix(text, []byte("\n"))
	})
	return strings.TrimSpace(string(text))
}

func (w *world) exists(name string) bool {
	_, err := os.Stat(w.path(name))
	return err == nil
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("never: %s", what)
		}
	}
}

// entry is what golock ls --json says.
type entry struct {
	ID       string
	State    string
	PID      int
	Orphaned bool
}

func (w *world) ls(name string) []entry {
	w.t.Helper()
	text, err := exec.Command(golock, "ls", "--store", w.url, "--json", name).Output()
	if err != nil {
		w.t.Fatal(err)
	}
	var all []entry
	if err := json.Unmarshal(text, &all); err != nil {
		w.t.Fatal(err)
	}
	return all
}

// waiting waits until so many are in the queue.
func (w *world) waiting(name string, n int) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%d wait", n), func() bool {
		count := 0
		for _, e := range w.ls(name) {
			if e.State == "waiting" {
				count++
			}
		}
		return count == n
	})
}

// isFree demands that the slot can be had at once.
func (w *world) isFree(name string) {
	w.t.Helper()
	w.run(name, "-n", "--", "true").expect(0)
}

// alive reports whether a process is there, and no zombie.
func alive(pid string) bool {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(text), ") ")
	return !strings.HasPrefix(after, "Z") && !strings.HasPrefix(after, "X")
}
