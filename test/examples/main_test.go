// Package examples_test runs what is in examples/ for real: a cron daemon, make and a compiler, databases, and a test that
// plays systemd. Each test copies the files a user would copy and asserts on what a user would see.
package examples_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks/sql/sqltest"
)

// patience bounds every wait for something that must happen. It is long because machines are slow, and reached only
// when the test fails.
const patience = 60 * time.Second

var (
	golock   string // the built program
	examples string // the folder with the examples
)

func TestMain(m *testing.M) {
	// The test binary is also the service that the systemd examples start.
	if len(os.Args) > 1 && os.Args[1] == "play" {
		os.Exit(play(os.Args[2]))
	}
	code, err := buildAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func buildAndRun(m *testing.M) (int, error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return 1, err
	}
	examples = filepath.Join(root, "examples")
	// No variable of the caller reaches the program but what a test sets.
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "GOLOCK_") {
			os.Unsetenv(name)
		}
	}
	bin, err := os.MkdirTemp("", "golock-examples")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(bin)
	golock = filepath.Join(bin, "golock")
	build := exec.Command("go", "build", "-trimpath", "-o", golock, ".")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("go build in %s: %w\n%s", root, err, out)
	}
	os.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	return sqltest.Main(m), nil
}

// need fails the test if a program that it cannot do without is missing.
func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Fatalf("%v; run: make deps", err)
	}
}

// copyExample puts a copy of one example into a fresh folder and returns it.
func copyExample(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(examples, name))); err != nil {
		t.Fatal(err)
	}
	// CopyFS keeps only the bits of the mode that the umask lets through; scripts must stay executable.
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		from, err := os.Stat(filepath.Join(examples, name, strings.TrimPrefix(path, dir)))
		if err != nil {
			return err
		}
		return os.Chmod(path, from.Mode().Perm())
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t *testing.T, path string, mode os.FileMode, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// read returns the file's text, or "" as long as it does not exist.
func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(b)
}

func lines(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == '\n' })
}

// await returns as soon as done says so, and fails the test if it never does.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no sign of it in %v: %s", patience, what)
		}
	}
}

// command is a program with its own store, in its own session as cron, systemd and CI runners start theirs, and ended at
// the end of the test.
type command struct {
	*exec.Cmd
	out, err buffer
	done     chan struct{}
	mu       sync.Mutex // held while it is reaped, or signalled
}

// buffer may be read while it is written to.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (b *buffer) Len() int { return len(b.String()) }

func newCommand(t *testing.T, store, dir string, argv ...string) *command {
	t.Helper()
	c := &command{Cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	c.Dir = dir
	c.Env = append(os.Environ(), "GOLOCK_STORE=local://"+store)
	c.Stdout, c.Stderr = &c.out, &c.err
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	c.WaitDelay = 5 * time.Second
	return c
}

func (c *command) start(t *testing.T) *command {
	t.Helper()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		// As long as it is not reaped its number, and its group's, is nobody else's.
		for unix.Waitid(unix.P_PID, c.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		defer close(c.done)
		_ = c.Wait() // the code is asked for in code
	}()
	t.Cleanup(func() {
		// A supervisor's command is in a group of its own: TERM to golock ends that too.
		for _, end := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			select {
			case <-c.done:
				return
			default:
			}
			c.signalAll(end)
			select {
			case <-c.done:
			case <-time.After(10 * time.Second):
			}
		}
	})
	return c
}

// signalAll signals the processes of the command's group, unless the command has ended.
func (c *command) signalAll(sig syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.done:
	default:
		_ = syscall.Kill(-c.Process.Pid, sig)
	}
}

// code waits for the end and returns the exit code, 128+N for a death by signal N.
func (c *command) code(t *testing.T) int {
	t.Helper()
	select {
	case <-c.done:
	case <-time.After(patience):
		t.Fatalf("%q still runs after %v\nstdout: %s\nstderr: %s", c.Args, patience, &c.out, &c.err)
	}
	ws := c.ProcessState.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

// mustRun runs a command to its end, which must be a success, and returns its output.
func mustRun(t *testing.T, store, dir string, argv ...string) string {
	t.Helper()
	c := newCommand(t, store, dir, argv...).start(t)
	if code := c.code(t); code != 0 {
		t.Fatalf("%q: exit code %d\nstdout: %s\nstderr: %s", argv, code, &c.out, &c.err)
	}
	return c.out.String()
}

// most returns how many were in at the same time at the most, by a log of lines "begin ..." and "end ...". Each line is
// written inside the section that it stands for, by one write to a file opened for append, so what overlaps in the log
// has overlapped indeed.
func most(log string) int {
	n, top := 0, 0
	for _, line := range lines(log) {
		switch word, _, _ := strings.Cut(line, " "); word {
		case "begin":
			n++
		case "end":
			n--
		}
		top = max(top, n)
	}
	return top
}
