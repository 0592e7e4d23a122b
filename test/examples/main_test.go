//go:build integration

// Package examples_test runs what is in docs/examples/ for real: a cron daemon, make and a compiler, databases, and a test that
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
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks/redis/redistest"
	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

// golock is the program under test, examples the folder with the examples.
var golock, examples string

func TestMain(m *testing.M) {
	// The test binary is also the service that the systemd examples start.
	if len(os.Args) > 1 && os.Args[1] == "play" {
		os.Exit(play(os.Args[2]))
	}
	os.Exit(testkit.Main(tests{m}, redistest.Close, sqltest.Close))
}

type tests struct{ *testing.M }

// Run has golock in the PATH, under that name.
func (m tests) Run() int {
	root, err := testkit.Root()
	if err == nil {
		var bin string
		if bin, err = os.MkdirTemp("", "golock-examples"); err == nil {
			defer os.RemoveAll(bin)
			golock, examples = filepath.Join(bin, "golock"), filepath.Join(root, "docs", "examples")
			err = os.Symlink(testkit.Golock, golock)
			os.Setenv("PATH", bin+":"+os.Getenv("PATH"))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	testkit.Parallel(8) // they wait
	return m.M.Run()
}

// copyExample puts a copy of one example into a fresh folder and returns it.
func copyExample(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	// By another process, so that no fork of this one has a script open for writing (ETXTBSY).
	testkit.Output(t, "", "cp", "-R", "--preserve=mode", filepath.Join(examples, name)+"/.", dir)
	return dir
}

func write(t *testing.T, path string, mode os.FileMode, text string) {
	t.Helper()
	testkit.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	// Renamed, so that no fork of this process has it open for writing (ETXTBSY).
	testkit.Output(t, text, "sh", "-c", `cat >"$0.new" && chmod "$1" "$0.new" && mv "$0.new" "$0"`, path, fmt.Sprintf("%o", mode))
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
	testkit.Must(t, c.Start())
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

// said is standard error without the lines that golock writes when it has waited
// for a second, which it does on a busy machine.
func (c *command) said() string {
	rest := slices.DeleteFunc(lines(c.err.String()), func(line string) bool {
		return strings.HasPrefix(line, "golock: waiting for ")
	})
	return strings.Join(rest, "\n")
}

// code waits for the end and returns the exit code, 128+N for a death by signal N.
func (c *command) code(t *testing.T) int {
	t.Helper()
	select {
	case <-c.done:
	case <-time.After(testkit.Patience):
		t.Fatalf("%q still runs after %v\nstdout: %s\nstderr: %s", c.Args, testkit.Patience, &c.out, &c.err)
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
