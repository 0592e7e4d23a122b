package runner

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/local"
	"golock/test/testkit"
)

// shownTransitions are those of the page.
func shownTransitions(t *testing.T) map[string]bool {
	text, err := os.ReadFile("../docs/runner-states.md")
	testkit.Must(t, err)
	shown := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| [^|]* \\| ([^|]*) \\|$").FindAllStringSubmatch(string(text), -1) {
		for _, to := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(m[2], -1) {
			shown[m[1]+" -> "+to[1]] = true
		}
	}
	return shown
}

// walk does a run and gives the transitions that it made. With at, something happens when a log
// event comes for the first time.
func walk(t *testing.T, r *Run, at map[string]func()) (made []string, out Outcome) {
	t.Helper()
	r.onTransition = func(from, to state) { made = append(made, fmt.Sprintf("%v -> %v", from, to)) }
	r.Log = func(_ bool, message string, _ ...any) {
		if f := at[message]; f != nil {
			delete(at, message)
			f()
		}
	}
	out = r.Do()
	return made, out
}

// raise sends a signal to this process, which it has when the function returns.
func raise(sig unix.Signal) func() {
	return func() {
		_ = unix.Kill(os.Getpid(), sig)
		time.Sleep(50 * time.Millisecond)
	}
}

// Every transition that the page shows happens, and no other.
func TestEveryTransition(t *testing.T) {
	seen := map[string]bool{}
	daemon := "trap '' TERM; sleep 1 & exit 0"
	forever := "(trap '' TERM; while :; do sleep 0.1; done) & exit 0"
	panics := func() { panic("a fault made by the test") }
	for _, c := range []struct {
		what  string
		argv  []string
		setUp func(*Run)
		at    map[string]func()
		want  Kind
		path  string
	}{
		{"a command", []string{"true"}, nil, nil, Ended, "starting running ended"},
		{"no such command", []string{"golock-no-such-program"}, nil, nil, NotFound, ""},
		{"a fault before the command", []string{"true"}, nil, map[string]func(){"slot taken": panics}, Fault, ""},
		{"told to stop before it starts", []string{"true"}, nil, map[string]func(){"slot taken": raise(unix.SIGTERM)}, Interrupted, ""},
		{"a tree", []string{"sh", "-c", daemon}, func(r *Run) { r.Tree = true }, nil, Ended, "starting running ended"},
		{"a tree, its time is over", []string{"sh", "-c", daemon}, func(r *Run) { r.Tree, r.TimeLimit = true, 500*time.Millisecond }, nil, TimedOut, "starting running stopping ended"},
		{"a tree, to be killed at once", []string{"sh", "-c", forever}, func(r *Run) { r.Tree, r.TimeLimit, r.KillAfter = true, 500*time.Millisecond, 0 }, nil, TimedOut, "starting running killing ended"},
		{"a time limit", []string{"sleep", "1000"}, func(r *Run) { r.TimeLimit = 100 * time.Millisecond }, nil, TimedOut, "starting running stopping ended"},
		{"one that does not obey", []string{"sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"}, func(r *Run) { r.TimeLimit, r.KillAfter = 500*time.Millisecond, 200*time.Millisecond }, nil, TimedOut, "starting running stopping killing ended"},
		{"killed at once", []string{"sleep", "1000"}, func(r *Run) { r.TimeLimit, r.KillAfter = 100*time.Millisecond, 0 }, nil, TimedOut, "starting running killing ended"},
		{"a fault while it runs", []string{"sleep", "1000"}, nil, map[string]func(){"command started": panics}, Fault, "starting running stopping ended"},
	} {
		r := testRun(t, local.New(filepath.Join(t.TempDir(), "locks")), c.argv...)
		if c.setUp != nil {
			c.setUp(r)
		}
		made, out := walk(t, r, c.at)
		for _, step := range made {
			seen[step] = true
		}
		want := strings.Fields(c.path)
		for i := 1; i < len(want); i++ {
			want[i-1] += " -> " + want[i]
		}
		if want = want[:max(len(want)-1, 0)]; out.Kind != c.want || !slices.Equal(made, want) {
			t.Errorf("%s: %+v by %q, want kind %s by %q", c.what, out, made, c.want, want)
		}
	}
	// A run that gets no slot.
	store := local.New(filepath.Join(t.TempDir(), "locks"))
	lease, failed := testRun(t, store).Take()
	if failed != nil {
		t.Fatal(failed)
	}
	made, out := walk(t, testRun(t, store, "true"), nil)
	if out.Kind != Busy || len(made) != 0 {
		t.Errorf("busy: %+v by %q", out, made)
	}
	_ = lease.Release(t.Context())

	if shown := shownTransitions(t); !maps.Equal(seen, shown) {
		t.Errorf("docs/runner-states.md shows %q, runs make %q", slices.Sorted(maps.Keys(shown)), slices.Sorted(maps.Keys(seen)))
	}
}

// The same with a watchdog: it is gone, or the slot, or renewals fail or panic.
func TestTransitionsWithAWatchdog(t *testing.T) {
	errPanic, errFails := errors.New("a fault made by the test"), errors.New("the store cannot do it")
	for _, c := range []struct {
		what  string
		tree  bool
		renew error
		want  Kind
		path  string
	}{
		{"the slot is lost", false, locks.ErrLost, Lost, "running -> stopping"},
		{"the slot is lost after the command", true, locks.ErrLost, Lost, "running -> stopping"},
		{"renewals fail", false, errFails, Lost, "running -> stopping"},
		{"a renewal panics", false, errPanic, Fault, "running -> stopping"},
		{"the watchdog is killed", false, nil, Fault, "running -> killing"},
		{"the watchdog is killed after the command", true, nil, Fault, "running -> killing"},
	} {
		store := newLeasedStore(t, 3*time.Second)
		pidFile := filepath.Join(t.TempDir(), "pid")
		drained := func() bool { // golock knows that the command has ended, and has had it reaped
			text, _ := os.ReadFile(pidFile)
			pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
			return err == nil && unix.Kill(pid, 0) == unix.ESRCH
		}
		store.renew = func() error {
			if c.tree && !drained() {
				return nil
			}
			if c.renew == errPanic {
				panic(errPanic)
			}
			return c.renew
		}
		argv := []string{"sleep", "1000"}
		if c.tree {
			argv = []string{"sh", "-c", "sleep 1000 & echo $$ >" + pidFile}
		}
		r := testRun(t, store, argv...)
		r.Tree = c.tree
		var made []string
		r.onTransition = func(from, to state) {
			made = append(made, fmt.Sprintf("%v -> %v", from, to))
			if c.renew == nil && to == running {
				watchdog := testkit.AwaitGuard(t, os.Getpid())
				go func() {
					for c.tree && !drained() {
						time.Sleep(time.Millisecond)
					}
					_ = unix.Kill(watchdog, unix.SIGKILL)
				}()
			}
		}
		out := r.Do()
		if want := []string{"starting -> running", c.path}; out.Kind != c.want || len(made) < len(want) || !slices.Equal(made[:len(want)], want) {
			t.Errorf("%s: %+v by %q, want kind %s by %q", c.what, out, made, c.want, want)
		}
		if c.want == Lost && !errors.Is(out.Err, c.renew) {
			t.Errorf("%s: %v, want that it says %v", c.what, out.Err, c.renew)
		}
		noChildren(t)
		free(t, store.Store)
	}
}

// A fault that is not one of the command's: a run that would go back.
func TestRunGoesBack(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a run went from ended to running")
		}
	}()
	(&supervisor{Run: &Run{}, state: ended}).enter(running)
}

// A more severe reason replaces a less severe one, and none that is as severe.
func TestReasons(t *testing.T) {
	told, late, evicted := reason{requested, Ended, nil}, reason{severe, TimedOut, nil}, reason{severe, Lost, nil}
	lost, fault := reason{grave, Lost, nil}, reason{grave, Fault, nil}
	for _, c := range []struct {
		reasons []reason
		want    reason
	}{
		{[]reason{told, late}, late},
		{[]reason{late, evicted}, late},
		{[]reason{evicted, late}, evicted},
		{[]reason{evicted, told}, evicted},
		{[]reason{late, lost}, lost},
		{[]reason{lost, fault}, lost},
		{[]reason{fault, lost, late}, fault},
	} {
		s := &supervisor{Run: &Run{}, status: &statusServer{}}
		for _, r := range c.reasons {
			s.recordReason(r.severity, r.kind, nil)
		}
		isGrave := c.want == lost || c.want == fault
		if s.status.lost.Load() != isGrave || s.wholeTree() != isGrave {
			t.Errorf("%v: golock held says lost: %v; the whole tree: %v", c.reasons, s.status.lost.Load(), s.wholeTree())
		}
		if s.reason != c.want {
			t.Errorf("%v come to %v", c.reasons, s.reason)
		}
	}
}
