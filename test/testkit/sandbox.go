package testkit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/procfs"
)

// Sandbox is a store, a working directory and the processes started in it. What
// still runs at the end of the test is killed.
type Sandbox struct {
	T     testing.TB
	Dir   string   // working directory of everything started
	Store string   // URL of the store
	Env   []string // environment of everything started
	mark  string   // VARIABLE=VALUE in that environment: descendants are found by it
}

const markVariable = "TESTKIT_MARK"

var sandboxes atomic.Int64

// New makes a sandbox with a store. If store is "", it makes a local store for the sandbox.
func New(t testing.TB, store string) *Sandbox {
	t.Helper()
	mark := fmt.Sprintf("%s=%d.%d", markVariable, os.Getpid(), sandboxes.Add(1))
	dir := Place(t, 0o755)
	s := &Sandbox{T: t, Dir: filepath.Join(dir, "cwd"), Store: store, mark: mark}
	s.Env = []string{"PATH=" + filepath.Dir(Golock) + ":/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", mark}
	if store == "" {
		s.Store = "local://" + filepath.Join(dir, "store")
		Must(t, os.Mkdir(filepath.Join(dir, "store"), 0o700))
	}
	Must(t, os.Mkdir(s.Dir, 0o755))
	t.Cleanup(func() {
		// repeated, because a process may fork while the list is read
		if !Within(Patience, func() bool {
			left := s.Living()
			for _, pid := range left {
				s.Signal(pid, syscall.SIGKILL)
			}
			return len(left) == 0
		}) {
			t.Errorf("cannot kill %s", s.All())
		}
	})
	return s
}

// OnStore makes a sandbox in which every golock uses the store without being told.
func OnStore(t testing.TB, store string) *Sandbox {
	t.Helper()
	s := New(t, store)
	s.Env = append(s.Env, "GOLOCK_STORE="+s.Store)
	return s
}

// Place makes a directory that every user can reach.
func Place(t testing.TB, mode uint32) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "golock-place-")
	Must(t, err)
	t.Cleanup(func() { Must(t, os.RemoveAll(dir)) })
	Must(t, unix.Chmod(dir, mode)) // without the umask
	return dir
}

// OnlyFile returns the path that matches a pattern. It fails the test if not exactly one does.
func OnlyFile(t testing.TB, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %q, %v", pattern, found, err)
	}
	return found[0]
}

// IsLocal reports whether the store is of this machine and has no leases.
func (s *Sandbox) IsLocal() bool { return strings.HasPrefix(s.Store, "local") }

// Path names a file in the working directory.
func (s *Sandbox) Path(name string) string { return filepath.Join(s.Dir, name) }

// Exists reports whether a file is in the working directory.
func (s *Sandbox) Exists(name string) bool { return Exists(s.Path(name)) }

// Exists reports whether a file is there, be it a link that leads nowhere.
func Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// AwaitFile waits until a file in the working directory ends in a newline, and
// returns its text without that.
func (s *Sandbox) AwaitFile(name string) string {
	s.T.Helper()
	var text []byte
	s.Eventually(name+" is written", func() bool {
		text, _ = os.ReadFile(s.Path(name))
		return bytes.HasSuffix(text, []byte("\n"))
	})
	return strings.TrimSpace(string(text))
}

// AwaitPID waits until a file has the number of a process, and returns it.
func (s *Sandbox) AwaitPID(name string) int {
	s.T.Helper()
	pid, err := strconv.Atoi(s.AwaitFile(name))
	Must(s.T, err)
	return pid
}

// Script writes an executable file and returns its path.
func (s *Sandbox) Script(name, text string) string {
	s.T.Helper()
	path := s.Path(name)
	Must(s.T, os.MkdirAll(filepath.Dir(path), 0o755))
	// No process that is forked meanwhile holds it open for writing (ETXTBSY).
	syscall.ForkLock.RLock()
	err := os.WriteFile(path+".new", []byte(text), 0o755)
	syscall.ForkLock.RUnlock()
	Must(s.T, err)
	Must(s.T, os.Chmod(path+".new", 0o755)) // without the umask
	Must(s.T, os.Rename(path+".new", path))
	return path
}

// Write writes a file in the working directory.
func (s *Sandbox) Write(name, text string) {
	s.T.Helper()
	Must(s.T, os.WriteFile(s.Path(name), []byte(text), 0o644))
}

// Read returns the text of a file in the working directory, or "" if there is none.
func (s *Sandbox) Read(name string) string {
	s.T.Helper()
	text, err := os.ReadFile(s.Path(name))
	if !errors.Is(err, fs.ErrNotExist) {
		Must(s.T, err)
	}
	return string(text)
}

// Output runs a tool to its end, which must be a success, and returns what it
// prints.
func Output(t testing.TB, stdin string, argv ...string) string {
	t.Helper()
	ctx, end := context.WithTimeout(context.Background(), Patience)
	defer end()
	tool := exec.CommandContext(ctx, argv[0], argv[1:]...)
	tool.Stdin = strings.NewReader(stdin)
	out, err := tool.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", argv, err, out)
	}
	return string(out)
}

// Eventually calls the function of that name, and shows the processes of the sandbox on failure.
func (s *Sandbox) Eventually(what string, ok func() bool) {
	s.T.Helper()
	if !Within(Patience, ok) {
		s.T.Fatalf("not in %v: %s; running: %s", Patience, what, s.All())
	}
}

// Living lists the processes of the sandbox that have not ended, whatever group
// or session they moved to.
func (s *Sandbox) Living() []int {
	return Processes(s.Lives)
}

// has reports whether a process belongs to the sandbox. A zombie does not.
func (s *Sandbox) has(pid int) bool {
	var environment []byte
	// During its execve a process has a program, but no environment for a moment.
	Within(100*time.Millisecond, func() bool {
		environment, _ = os.ReadFile(procfs.Dir(pid) + "/environ")
		_, err := os.Readlink(procfs.Dir(pid) + "/exe")
		return len(environment) > 0 || err != nil
	})
	return slices.Contains(strings.Split(string(environment), "\x00"), s.mark)
}

// Lives reports whether a process is one of the sandbox's that have not ended:
// no later process of its number.
func (s *Sandbox) Lives(pid int) bool { return s.has(pid) && Alive(pid) }

// All describes the processes of the sandbox.
func (s *Sandbox) All() string { return Describe(s.Living()) }

// Signal signals a process of the sandbox and reports whether it was there. It uses a pidfd and looks
// first, so that no later process with the same number is hit.
func (s *Sandbox) Signal(pid int, sig syscall.Signal) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return s.has(pid) && unix.PidfdSendSignal(fd, sig, nil, 0) == nil
}

// MustSignal signals a process that must be there.
func (s *Sandbox) MustSignal(pid int, sig syscall.Signal) {
	s.T.Helper()
	if !s.Signal(pid, sig) {
		s.T.Fatalf("signal %d: no process %d; there are %s", sig, pid, s.All())
	}
}

// Kill kills a process that must be there.
func (s *Sandbox) Kill(pid int) {
	s.T.Helper()
	s.Eventually(fmt.Sprintf("%d can be killed", pid), func() bool {
		return s.Signal(pid, syscall.SIGKILL) || !Alive(pid)
	})
	s.Eventually(fmt.Sprintf("%d is dead", pid), func() bool { return !Alive(pid) })
}

// NoneLeft waits until no process of the sandbox runs.
func (s *Sandbox) NoneLeft() {
	s.T.Helper()
	s.Eventually("all have ended", func() bool { return len(s.Living()) == 0 })
}

// NoneNow fails the test if a process of the sandbox runs now.
func (s *Sandbox) NoneNow() {
	s.T.Helper()
	if left := s.Living(); len(left) > 0 {
		s.T.Fatalf("still running: %s", Describe(left))
	}
}

// Entry is one object of golock ls --json, as far as tests look at it.
type Entry struct {
	ID       string
	State    string
	PID      int
	Orphaned bool
}

// List is what golock ls --json says of a lock.
func (s *Sandbox) List(name string) []Entry {
	s.T.Helper()
	r := s.Golock("ls", name, "--json", "--store", s.Store).Run()
	var list []Entry
	if err := json.Unmarshal([]byte(r.Stdout), &list); r.Code != 0 || err != nil {
		s.T.Fatalf("golock ls: %v %v", r, err)
	}
	return list
}

// Waiters lists the process numbers of those that wait for a lock, in order.
func (s *Sandbox) Waiters(name string) []int {
	s.T.Helper()
	var pids []int
	for _, e := range s.List(name) {
		if e.State == "waiting" {
			pids = append(pids, e.PID)
		}
	}
	return pids
}

// AwaitWaiters returns once exactly these wait for "job", in this order.
func (s *Sandbox) AwaitWaiters(pids ...int) {
	s.T.Helper()
	s.Eventually(fmt.Sprintf("%v wait", pids), func() bool {
		return slices.Equal(s.Waiters("job"), pids)
	})
}

// AwaitWaiting returns once n entries wait for a lock.
func (s *Sandbox) AwaitWaiting(name string, n int) {
	s.T.Helper()
	s.Eventually(fmt.Sprintf("%d wait", n), func() bool { return len(s.Waiters(name)) == n })
}

// IsFree fails the test unless the slot of "job" can be had at once.
func (s *Sandbox) IsFree() {
	s.T.Helper()
	s.Job("-n", "--", "true").Run().Expect(s.T, 0)
}

// IsTaken fails the test unless the slot of "job" is held.
func (s *Sandbox) IsTaken() {
	s.T.Helper()
	s.Job("-n", "--", "true").Run().Expect(s.T, 75)
}
