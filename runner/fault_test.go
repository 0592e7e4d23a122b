package runner

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/procfs"
	"golock/internal/proctree"
	"golock/locks"
	"golock/locks/local"
	"golock/signals"
	"golock/test/testkit"
)

// A fault in golock itself stops the command first and gives the slot back
// then, wherever it happens.

func TestMain(m *testing.M) {
	if os.Args[0] == WatchdogName {
		_ = Watchdog(os.Args, func(string) (locks.LeaseStore, error) { return nil, os.ErrNotExist })
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
		Store: store, Request: locks.Request{Ref: ref, Name: "n", Claim: locks.Claim{Weight: 1, Max: 1}}, Wait: 0,
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

// sleepCommand is a command that writes its PID into a file and sleeps.
func sleepCommand(t *testing.T) (argv []string, pidFile string) {
	pidFile = filepath.Join(t.TempDir(), "pid")
	return []string{"sh", "-c", "echo $$ > " + pidFile + "; exec sleep 1000"}, pidFile
}

// allGone checks that a run has left neither its command nor another process, and that the slot is
// free.
func allGone(t *testing.T, pidFile string, store locks.Store) {
	t.Helper()
	if text, err := os.ReadFile(pidFile); err == nil {
		// A dead one may not have been reaped by a watchdog that was dismissed at that moment. The
		// file is empty if the command died before it wrote.
		pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		if p, _ := procfs.ReadStat(pid); pid != 0 && p.Alive() {
			t.Errorf("the command is alive: %+v", p)
		}
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
				store = leasedStore{QueueStore: queue, ttl: 30 * time.Second}
			}
			argv, pidFile := sleepCommand(t)
			r := testRun(t, store, argv...)
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

// faulty panics in the goroutine that waits.
type faulty struct {
	locks.Store
	inWait bool
}

func (f faulty) Join(ctx context.Context, r locks.Request) (locks.Ticket, error) {
	if !f.inWait {
		panic("a fault made by the test")
	}
	t, err := f.Store.Join(ctx, r)
	return faultyTicket{t}, err
}

type faultyTicket struct{ locks.Ticket }

func (faultyTicket) Wait(context.Context) (locks.Lease, error) { panic("a fault made by the test") }

func TestFaultWhileWaiting(t *testing.T) {
	for _, inWait := range []bool{false, true} {
		store := local.New(filepath.Join(t.TempDir(), "locks"))
		marker := filepath.Join(t.TempDir(), "started")
		if o := testRun(t, faulty{store, inWait}, "touch", marker).Do(); o.Kind != Fault {
			t.Errorf("outcome %+v, want a fault", o)
		}
		if _, err := os.Stat(marker); err == nil {
			t.Error("the command was started")
		}
	}
}
