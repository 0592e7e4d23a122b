// Package guard_test holds the program to what it promises about a leased
// store, here Redis, when golock, its guard or the server fail: nothing that
// descends from the command outlives the lease, also what left the process
// group and the session.
//
// This file pins nothing. It builds golock once, starts it with a family of
// processes as the command, and watches them through pidfds, so that a number
// that was given to another process misleads nobody.
package guard_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks/redis/redistest"
)

const limit = 30 * time.Second

var golock string // the program under test

func TestMain(m *testing.M) { os.Exit(setUp(m)) }

func setUp(m *testing.M) int {
	dir, err := os.MkdirTemp("", "golock-guard-")
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
	return m.Run()
}

// world is a Redis server of its own, with what runs on it.
type world struct {
	t      testing.TB
	server *redistest.Server
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return &world{t: t, server: redistest.Start(t)}
}

func (w *world) url() string { return w.server.SocketURL("quarantine=0s") }

// run is a golock that has been started.
type run struct {
	t      testing.TB
	cmd    *exec.Cmd
	lines  *bufio.Reader // stdout
	stderr *bytes.Buffer
	ended  func() error
}

// golock starts golock run of the lock "job".
func (w *world) golock(args ...string) *run {
	w.t.Helper()
	cmd := exec.Command(golock, append([]string{"run", "--store", w.url(), "--name", "job"}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	r := &run{t: w.t, cmd: cmd, lines: bufio.NewReader(out), stderr: &bytes.Buffer{}}
	cmd.Stderr = r.stderr
	cmd.WaitDelay = limit
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	r.ended = sync.OnceValue(cmd.Wait)
	w.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = cmd.Process.Kill()
		_ = r.ended()
	})
	return r
}

// code waits for the end and gives the exit code; -1 after death by a signal.
func (r *run) code() int {
	r.t.Helper()
	timer := time.AfterFunc(limit, func() { _ = r.cmd.Process.Kill() })
	defer timer.Stop()
	_ = r.ended()
	return r.cmd.ProcessState.ExitCode()
}

func (r *run) expectCode(want int, words ...string) {
	r.t.Helper()
	if got := r.code(); got != want {
		r.t.Fatalf("exit code %d, want %d; stderr %q", got, want, r.stderr)
	}
	for _, word := range words {
		if !strings.Contains(r.stderr.String(), word) {
			r.t.Errorf("stderr is %q, want it to say %q", r.stderr, word)
		}
	}
}

func (r *run) signal(sig syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(sig); err != nil {
		r.t.Fatal(err)
	}
}

// line is the next line that the command wrote.
func (r *run) line() string {
	r.t.Helper()
	text, err := r.lines.ReadString('\n')
	if err != nil {
		r.t.Fatalf("reading the command's output: %v; stderr %q", err, r.stderr)
	}
	return strings.TrimSuffix(text, "\n")
}

// process is one of those that are watched.
type process struct {
	pid, fd int
}

func watch(t testing.TB, pid int) process {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatalf("process %d: %v", pid, err)
	}
	t.Cleanup(func() {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		unix.Close(fd)
	})
	return process{pid, fd}
}

// diesWithin reports whether the process ends before d is over.
func (p process) diesWithin(d time.Duration) bool {
	until := time.Now().Add(d)
	for {
		left := max(time.Until(until), 0)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, int(left.Milliseconds()))
		if n > 0 || (err == nil && left == 0) {
			return n > 0
		}
	}
}

func (p process) lives() bool { return !p.diesWithin(0) }

func (p process) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if err := unix.PidfdSendSignal(p.fd, sig, nil, 0); err != nil {
		t.Fatalf("signal %d to %d: %v", sig, p.pid, err)
	}
}

// family is a command that ignores TERM, as all of its family do: a child in
// its group, and two that are double-forked into a session of their own. Each
// writes its number.
const family = `trap "" TERM
echo $$
sleep 1000 & echo $!
(setsid sh -c 'echo $$; sleep 1000 & echo $!; exec sleep 1000' &)
exec sleep 1000`

// household is a golock with its guard and the family.
type household struct {
	*run
	guard  process
	family []process // the command first
}

func (w *world) household(flags ...string) *household {
	w.t.Helper()
	h := &household{run: w.golock(append(flags, "--", "sh", "-c", family)...)}
	for range 4 {
		pid, err := strconv.Atoi(h.line())
		if err != nil {
			w.t.Fatal(err)
		}
		h.family = append(h.family, watch(w.t, pid))
	}
	h.guard = watch(w.t, parent(w.t, h.family[0].pid))
	if p := parent(w.t, h.guard.pid); p != h.cmd.Process.Pid {
		w.t.Fatalf("the guard %d is a child of %d, not of golock, %d", h.guard.pid, p, h.cmd.Process.Pid)
	}
	return h
}

// guardOf waits for the guard of a golock whose command does not run yet.
func (w *world) guardOf(r *run) process {
	w.t.Helper()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(time.Millisecond) {
		lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", r.cmd.Process.Pid))
		for _, list := range lists {
			text, _ := os.ReadFile(list)
			for _, word := range strings.Fields(string(text)) {
				name, _ := os.ReadFile("/proc/" + word + "/comm")
				if pid, err := strconv.Atoi(word); err == nil && string(name) == "golock-guard\n" {
					return watch(w.t, pid)
				}
			}
		}
	}
	w.t.Fatal("there is no guard")
	return process{}
}

func parent(t testing.TB, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	n, err := strconv.Atoi(fields[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// allDead waits until nobody of the family lives and gives the time it took.
func (h *household) allDead(within time.Duration) time.Duration {
	h.t.Helper()
	begin := time.Now()
	for i, p := range h.family {
		if !p.diesWithin(max(within-time.Since(begin), 0)) {
			h.t.Fatalf("member %d of the family lives after %v; stderr %q", i, within, h.stderr)
		}
	}
	return time.Since(begin)
}

// successor is a golock that waits for the slot and whose command tells which
// of the family are still alive when it has it.
func (w *world) successor(h *household) *run {
	w.t.Helper()
	var stats []string
	for _, p := range h.family {
		stats = append(stats, fmt.Sprintf("/proc/%d/stat", p.pid))
	}
	r := w.golock("--", "sh", "-c", `cat `+strings.Join(stats, " ")+` 2>/dev/null | grep -v ') [ZX]'; echo end`)
	return r
}

// succeeds waits for the successor and gives the time it took.
func (w *world) succeeds(r *run) time.Duration {
	w.t.Helper()
	begin := time.Now()
	if line := r.line(); line != "end" {
		w.t.Errorf("the slot was given away while there lived: %s", line)
	}
	took := time.Since(begin)
	r.expectCode(0)
	return took
}
