package runner

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/local"
	"golock/test/testkit"
)

// What a run does that waits for a store which is slow, silent, or evicts it.

// queued is a store that evicts every waiter, when the test's function returns.
type queued struct {
	locks.Store
	wait func(context.Context)
}

func (queued) Abilities() locks.Abilities { return locks.Abilities{} }

func (queued) URL() string { return "queued" }

func (s queued) Join(context.Context, locks.Request) (locks.Admission, error) {
	return queuedAdmission{wait: s.wait}, nil
}

type queuedAdmission struct {
	locks.Admission
	wait func(context.Context)
}

func (queuedAdmission) Queued() bool            { return true }
func (queuedAdmission) Replaced() []locks.Entry { return nil }
func (queuedAdmission) Evicted() error          { return &locks.EvictedError{} }

func (t queuedAdmission) Wait(ctx context.Context) (locks.Lease, error) {
	t.wait(ctx)
	return nil, &locks.EvictedError{}
}

// mayStop is for a test that must not be stopped for ever if it fails.
func mayStop(t *testing.T) {
	t.Helper()
	rescue := exec.Command("/bin/sh", "-c", "sleep 2; kill -CONT $PPID; sleep 1; kill -TERM $PPID")
	rescue.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	testkit.Must(t, rescue.Start())
	t.Cleanup(func() {
		_ = unix.Kill(-rescue.Process.Pid, unix.SIGKILL)
		_ = rescue.Wait()
	})
}

// A waiter that was evicted ends, and says so: also when a signal comes first, to end or to stop
// it, and when its store is slow to answer.
func TestEvictedWhenASignalComes(t *testing.T) {
	done := make(chan struct{})
	defer close(done)
	for sig, wait := range map[syscall.Signal]func(context.Context){
		unix.SIGTSTP: func(ctx context.Context) { <-ctx.Done() },
		unix.SIGTERM: func(context.Context) { <-done },
	} {
		mayStop(t)
		r := testRun(t, queued{wait: wait}, "true")
		r.Relay.CatchStop() // a run at a terminal undoes it
		r.WaitLimit = -1
		r.Log = func(_ bool, message string, _ ...any) {
			if message == "waiting" {
				_ = unix.Kill(os.Getpid(), sig)
			}
		}
		if o := r.Do(); o.Kind != Busy {
			t.Errorf("signal %d: outcome %+v, want that it was evicted", sig, o)
		}
	}
}

// played is a store with leases whose Join is the test's. It has nothing to show.
type played struct {
	locks.Store
	join    func(context.Context) error
	request locks.Request // the last one
}

// leasesOnly are the abilities of a store that is known to have leases.
func leasesOnly() locks.Abilities {
	return locks.Abilities{Queue: struct{ locks.Queue }{}, Leases: struct{ locks.Leases }{}}
}

func (*played) Abilities() locks.Abilities { return leasesOnly() }

func (*played) URL() string { return "played" }

func (s *played) Join(ctx context.Context, r locks.Request) (locks.Admission, error) {
	if r.AtOnce {
		return nil, locks.ErrWouldBlock
	}
	s.request = r
	return nil, s.join(ctx)
}

func (*played) Entries(context.Context, string) ([]locks.Entry, error) { return nil, nil }

// A store that never answers keeps nobody from the end.
func TestToldToStopBySilentStore(t *testing.T) {
	r := testRun(t, &played{join: func(context.Context) error {
		_ = unix.Kill(os.Getpid(), unix.SIGTERM)
		select {}
	}}, "true")
	r.WaitLimit, r.OnlyWarn = -1, true
	if o := r.Do(); o.Kind != Interrupted {
		t.Errorf("outcome %+v", o)
	}
}

// A store that answers later than --wait is slow, not unavailable.
func TestSlowStoreIsNotUnavailable(t *testing.T) {
	ran := filepath.Join(t.TempDir(), "ran")
	r := testRun(t, &played{join: func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
			return &locks.BusyError{Name: "n"}
		}
	}}, "touch", ran)
	r.WaitLimit, r.OnlyWarn, r.Unavailable = 10*time.Millisecond, true, RunAnyway
	if o := r.Do(); o.Kind != Busy {
		t.Errorf("outcome %+v, want that it is busy", o)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the command ran without a slot")
	}
}

// What a store answers at the very end of --wait counts, also if it had not put the run into its queue.
// One that had is busy, not unavailable.
func TestAnsweredAtTheLastMoment(t *testing.T) {
	refused := errors.New("wrong password")
	for answer, want := range map[error]Kind{context.Canceled: Busy, &locks.BusyError{Name: "n", Full: true}: Busy, refused: Refused} {
		r := testRun(t, &played{}, "true")
		r.WaitLimit, r.Unavailable = time.Second, RunAnyway
		w := &waitPhase{Run: r, attempt: &attempt{cancel: func() {}, ended: make(chan struct{}), err: answer}}
		isQueued := answer == context.Canceled
		if isQueued {
			admission := locks.Admission(queuedAdmission{})
			w.attempt.queued.Store(&admission)
			w.attempt.hasTurn.Store(true)
		}
		close(w.attempt.ended)
		if _, failed := w.endAtDeadline(); failed == nil || failed.Kind != want || !isQueued && failed.Err != answer {
			t.Errorf("outcome %+v, want kind %s: %v", failed, want, answer)
		}
	}
}

// grantedLease is evicted; who asks after its release cannot know it any more.
type grantedLease struct {
	locks.Lease
	released *bool
}

func (grantedLease) Grant() locks.Grant { return locks.Grant{} }

func (l grantedLease) Release(context.Context) error {
	*l.released = true
	return nil
}

func (l grantedLease) Evicted() error {
	if *l.released {
		return nil
	}
	return &locks.EvictedError{By: "a test"}
}

// A run that is evicted while it joins says so, also if the machine is too busy to end the attempt at once.
func TestEvictedWhileItJoins(t *testing.T) {
	w := &waitPhase{Run: testRun(t, local.New(t.TempDir()), "true"), attempt: &attempt{ended: make(chan struct{})}}
	w.attempt.cancel = func() {
		time.AfterFunc(2*leaveLimit, func() {
			w.attempt.err = &locks.EvictedError{By: "a test"}
			close(w.attempt.ended)
		})
	}
	if o := w.endBySignal(unix.SIGTERM); !errors.As(o.Err, new(*locks.EvictedError)) {
		t.Errorf("outcome %+v, want that it was evicted", o)
	}
}

// A run that was granted the slot, and evicted before it knew, says so.
func TestEvictedBeforeItKnew(t *testing.T) {
	r := testRun(t, &played{}, "true")
	w := &waitPhase{Run: r, attempt: &attempt{
		cancel: func() {}, ended: make(chan struct{}), lease: grantedLease{released: new(bool)},
	}}
	close(w.attempt.ended)
	if o := w.endBySignal(unix.SIGTERM); !errors.As(o.Err, new(*locks.EvictedError)) {
		t.Errorf("outcome %+v, want that it was evicted", o)
	}
}
