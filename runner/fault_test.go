package runner

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/pidfd"
	"golock/internal/proctree"
	"golock/locks"
	"golock/locks/local"
	"golock/runner/held"
	"golock/signals"
	"golock/test/testkit"
)

// A fault in golock itself stops the command first and gives the slot back
// then, wherever it happens.

func TestMain(m *testing.M) {
	if os.Args[0] == WatchdogName {
		_ = Watchdog(os.Args, func(string) (locks.Store, error) { return nil, os.ErrNotExist })
		os.Exit(0)
	}
	testkit.SetDefaults()
	// The relay is one for a process, and these tests are one process.
	relay, err := signals.NewRelay(false)
	if err != nil {
		panic(err)
	}
	relay.Catch()
	testRelay = relay
	os.Exit(m.Run())
}

var testRelay *signals.Relay

func testRun(t *testing.T, store locks.Store, argv ...string) *Run {
	t.Helper()
	ref, err := locks.NewRef("n")
	testkit.Must(t, err)
	return &Run{
		Store: locks.Know(store), Request: locks.Request{Ref: ref, Name: "n", Claim: locks.Claim{Weight: 1, Max: 1}}, WaitLimit: 0,
		Argv: argv, Env: os.Environ(), Relay: testRelay, StopSignal: unix.SIGTERM, KillAfter: 10 * time.Second,
		Rewrites: signals.Rewrites{}, Log: func(bool, string, ...any) {},
	}
}

func free(t *testing.T, store locks.Store) {
	t.Helper()
	if o := testRun(t, store, "true").Do(); o.Kind != Ended {
		t.Errorf("the slot is not free: %+v", o)
	}
}

// allGone checks that a run has left neither its command nor another process, and that the slot is
// free.
func allGone(t *testing.T, pidFile string, store locks.Store) {
	t.Helper()
	text, _ := os.ReadFile(pidFile) // empty if the command died before it wrote
	if pid, _ := strconv.Atoi(strings.TrimSpace(string(text))); pid != 0 && testkit.Alive(pid) {
		t.Errorf("the command is alive: %s", testkit.Describe([]int{pid}))
	}
	noChildren(t)
	free(t, store)
}

func noChildren(t *testing.T) {
	t.Helper()
	if left := proctree.Descendants(proctree.Live(), os.Getpid(), nil); len(left) != 0 {
		t.Errorf("left over: %+v", left)
	}
}

func TestFaultWhileTheCommandRuns(t *testing.T) {
	for _, moment := range []string{"command started", "slot taken", "stop signal sent"} {
		for _, kind := range []string{"group", "terminal", "watchdog"} {
			queue := local.New(filepath.Join(t.TempDir(), "locks"))
			store := locks.Store(queue)
			if kind == "watchdog" {
				store = leasedStore{Store: queue, ttl: 30 * time.Second}
			}
			pidFile := filepath.Join(t.TempDir(), "pid")
			r := testRun(t, store, "sh", "-c", "echo $$ > "+pidFile+"; exec sleep 1000")
			r.Terminal = kind == "terminal" // the command stays in our group then
			r.TimeLimit = 100 * time.Millisecond
			faults := 0
			r.Log = func(_ bool, message string, _ ...any) {
				if message == moment && faults == 0 {
					faults++
					panic("a fault made by the test")
				}
			}
			if o := r.Do(); o.Kind != Fault || faults != 1 {
				t.Errorf("%s: %d faults at %q: outcome %+v", kind, faults, moment, o)
			}
			allGone(t, pidFile, queue)
		}
	}
}

// The goroutine that waits panics, before and after the run is in the queue.
func TestFaultWhileWaiting(t *testing.T) {
	joins := &played{join: func(context.Context) error { panic("a fault made by the test") }}
	waits := queued{wait: func(context.Context) { panic("a fault made by the test") }}
	for _, store := range []locks.Store{joins, waits} {
		marker := filepath.Join(t.TempDir(), "started")
		r := testRun(t, store, "touch", marker)
		r.WaitLimit, r.OnlyWarn = -1, true
		if o := r.Do(); o.Kind != Fault {
			t.Errorf("outcome %+v, want a fault", o)
		}
		if _, err := os.Stat(marker); err == nil {
			t.Error("the command was started")
		}
	}
}

// A goroutine that answers another golock panics.
func TestFaultInAnAnswer(t *testing.T) {
	store := newLeasedStore(t, 30*time.Second)
	store.renew = func() error { panic("a fault made by the test") }
	dir, err := os.MkdirTemp("", "held") // whose path is short enough for a socket
	testkit.Must(t, err)
	defer os.RemoveAll(dir)
	r := testRun(t, store, "sleep", "1000")
	r.Sockets = func() (string, error) { return dir, nil }
	answer := make(chan error, 1)
	r.Log = func(_ bool, message string, _ ...any) {
		if message == "command started" {
			go func() { answer <- held.Ask(t.Context(), dir, r.Request.Ref.String(), held.Confirm) }()
		}
	}
	if o := r.Do(); o.Kind != Fault || !errors.As(o.Err, new(*locks.PanicError)) {
		t.Errorf("outcome %+v, want the fault", o)
	}
	if err := <-answer; err != held.ErrNobody {
		t.Errorf("the answer is %v", err)
	}
	noChildren(t)
	free(t, store.Store)
}

// So does the one that waits for the end of a process without a pidfd.
func TestFaultWhileTheEndIsAwaited(t *testing.T) {
	var fault error = &locks.PanicError{Value: "a fault made by the test"}
	h := &Holder{Run: testRun(t, local.New(t.TempDir()), "true"), Process: pidfd.Inherited(-1, 0), Caller: -1}
	h.fault.Store(&fault)
	if o := h.Do(); o.Kind != Fault {
		t.Errorf("outcome %+v, want the fault", o)
	}
	h.Relay.Unwatch(-1)
	free(t, h.Store)
}
