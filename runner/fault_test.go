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

func TestFaultWhileTheCommandRuns(t *testing.T) {
	for _, moment := range []string{"command started", "slot taken", "stop signal sent"} {
		for _, group := range []bool{true, false} {
			store := local.New(filepath.Join(t.TempDir(), "locks"))
			pidFile := filepath.Join(t.TempDir(), "pid")
			r := testRun(t, store, "sh", "-c", "echo $$ > "+pidFile+"; exec sleep 1000")
			r.Terminal = !group // the command stays in our group then
			r.TimeLimit = 100 * time.Millisecond
			faults := 0
			r.Log = func(_ bool, message string, _ ...any) {
				if message == moment && faults == 0 {
					faults++
					panic("a fault made by the test")
				}
			}
			o := doRecovering(r)
			if faults == 1 && o.Kind != Fault {
				t.Errorf("fault at %q: outcome %+v", moment, o)
			}
			if faults == 0 {
				t.Errorf("%q never came", moment)
			}
			if text, err := os.ReadFile(pidFile); err == nil {
				pid, _ := strconv.Atoi(strings.TrimSpace(string(text))) // 0 if it died while writing
				if pid > 0 && unix.Kill(pid, 0) == nil {
					t.Errorf("fault at %q: the command %d is alive", moment, pid)
				}
			}
			free(t, store)
		}
	}
}

// doRecovering is what main does around a run.
func doRecovering(r *Run) (o Outcome) {
	defer func() {
		if v := recover(); v != nil {
			o = Outcome{Kind: Fault}
		}
	}()
	return r.Do()
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
