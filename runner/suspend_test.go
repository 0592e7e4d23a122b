package runner

import (
	"context"
	"iter"
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

// evicting is a store that takes every waiter out of its queue.
type evicting struct {
	locks.Store
	told chan struct{} // the end of Wait, if it does not hear of its context's
}

func (s evicting) Join(context.Context, locks.Request) (locks.Ticket, error) {
	return &evictedTicket{told: s.told}, nil
}

type evictedTicket struct {
	locks.Ticket
	told chan struct{}
}

func (*evictedTicket) Queued() bool { return true }

func (*evictedTicket) Replaced() []locks.Entry { return nil }
func (*evictedTicket) Evicted() error          { return &locks.EvictedError{} }

func (t *evictedTicket) Wait(ctx context.Context) (locks.Lease, error) {
	if t.told == nil {
		<-ctx.Done()
	} else {
		<-t.told
	}
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

// A waiter that was taken out just when it is told to stop ends, and does not
// come again when it is continued.
func TestEvictedWhenItIsToStop(t *testing.T) {
	mayStop(t)
	r := testRun(t, evicting{Store: local.New(filepath.Join(t.TempDir(), "locks"))}, "true")
	r.Relay.CatchStop() // a run at a terminal undoes it
	r.Wait = -1
	r.Log = func(_ bool, message string, _ ...any) {
		if message == "waiting" {
			_ = unix.Kill(os.Getpid(), unix.SIGTSTP)
		}
	}
	begin := time.Now()
	if o := r.Do(); o.Kind != Busy {
		t.Errorf("outcome %+v after %v, want that it was evicted", o, time.Since(begin))
	}
}

// A waiter whose store is slow to answer says that it was evicted all the same.
func TestEvictedBySignal(t *testing.T) {
	told := make(chan struct{})
	defer close(told)
	r := testRun(t, evicting{local.New(filepath.Join(t.TempDir(), "locks")), told}, "true")
	r.Wait = -1
	r.Log = func(_ bool, message string, _ ...any) {
		if message == "waiting" {
			_ = unix.Kill(os.Getpid(), unix.SIGTERM)
		}
	}
	if o := r.Do(); o.Kind != Busy {
		t.Errorf("outcome %+v, want that it was evicted", o)
	}
}

// silent is a store with leases that never answers. stop tells golock to stop once
// it is asked.
type silent struct {
	locks.LeaseStore
	stop     func()
	released chan time.Duration // how long a release may take
}

func (silent) URL() string { return "silent" }

func (s silent) Join(ctx context.Context, _ locks.Request) (locks.Ticket, error) {
	if ctx.Err() == nil {
		s.stop()
		<-ctx.Done()
		select {}
	}
	return nil, ctx.Err()
}

func (s silent) Attach(locks.Ref) locks.RenewableLease { return silentLease{released: s.released} }

type silentLease struct {
	locks.RenewableLease
	released chan time.Duration
}

func (l silentLease) Release(ctx context.Context) error {
	until, _ := ctx.Deadline()
	l.released <- time.Until(until)
	return ctx.Err()
}

// Leaving the queue and telling the store so take less than 100 ms together.
func TestToldToStopBySilentStore(t *testing.T) {
	store := silent{stop: func() { _ = unix.Kill(os.Getpid(), unix.SIGTERM) }, released: make(chan time.Duration, 1)}
	r := testRun(t, store, "true")
	r.Wait, r.OnlyWarn = -1, true
	if o := r.Do(); o.Kind != Interrupted {
		t.Errorf("outcome %+v", o)
	}
	if limit := <-store.released; leaveLimit+limit >= 100*time.Millisecond {
		t.Errorf("%v to leave the queue, and %v for the release", leaveLimit, limit)
	}
}

// slow is a store that answers after some time: that there is no slot.
type slow struct {
	locks.LeaseStore
	after time.Duration
}

func (slow) URL() string { return "slow" }

func (s slow) Join(ctx context.Context, r locks.Request) (locks.Ticket, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(s.after):
		return nil, &locks.BusyError{Name: r.Name}
	}
}

func (slow) Attach(locks.Ref) locks.RenewableLease {
	return silentLease{released: make(chan time.Duration, 1)}
}

func (slow) Entries(context.Context, string) iter.Seq2[locks.Entry, error] {
	return func(func(locks.Entry, error) bool) {}
}

// A store that answers later than --wait is slow, not unavailable.
func TestSlowStoreIsNotUnavailable(t *testing.T) {
	ran := filepath.Join(t.TempDir(), "ran")
	r := testRun(t, slow{after: 100 * time.Millisecond}, "touch", ran)
	r.Wait, r.OnlyWarn, r.Unavailable = 10*time.Millisecond, true, RunAnyway
	if o := r.Do(); o.Kind != Busy {
		t.Errorf("outcome %+v, want that it is busy", o)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the command ran without a slot")
	}
}
