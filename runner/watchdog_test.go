package runner

import (
	"context"
	"math"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/local"
	"golock/test/testkit"
)

// leasedStore makes a local store one with leases, so that golock has a watchdog. What the watchdog
// is for is tested from outside, in test/guard.
type leasedStore struct {
	*local.Store
	ttl   time.Duration
	age   time.Duration // of a lease when it is granted
	renew func() error

	release error // of each release
}

func (s leasedStore) Abilities() locks.Abilities {
	return locks.Abilities{Queue: s.Store, Leases: s, MaxUnits: locks.MaxUnits}
}

func (s leasedStore) Warnings(bool) []string { return nil }

func (s leasedStore) Attach(locks.Ref) locks.Lease { return &leasedLease{store: s} }

func (s leasedStore) Join(ctx context.Context, r locks.Request) (locks.Admission, error) {
	t, err := s.Store.Join(ctx, r)
	return leasedAdmission{t, s}, err
}

type leasedAdmission struct {
	locks.Admission
	store leasedStore
}

func (t leasedAdmission) Wait(ctx context.Context) (locks.Lease, error) {
	l, err := t.Admission.Wait(ctx)
	if err != nil {
		return nil, err
	}
	return &leasedLease{l, t.store, locks.Term{Asked: locks.BootTime().Add(-t.store.age), TTL: t.store.ttl}}, nil
}

type leasedLease struct {
	locks.Lease
	store leasedStore
	term  locks.Term
}

func (l *leasedLease) Files() []int { return nil }

func (l *leasedLease) Evicted() error { return nil }

func (l *leasedLease) Term() locks.Term { return l.term }

func (l *leasedLease) Confirm(ctx context.Context) error {
	_, err := l.Renew(ctx)
	return err
}

func (l *leasedLease) Renew(context.Context) (locks.Term, error) {
	if l.store.renew != nil {
		if err := l.store.renew(); err != nil {
			return locks.Term{}, err
		}
	}
	return locks.Term{Asked: locks.BootTime(), TTL: l.store.ttl}, nil
}

func (l *leasedLease) Events() <-chan struct{} { return nil }

func (l *leasedLease) Release(ctx context.Context) error {
	if l.Lease == nil {
		return nil
	}
	if err := l.Lease.Release(ctx); err != nil {
		return err
	}
	return l.store.release
}

func newLeasedStore(t *testing.T, ttl time.Duration) leasedStore {
	return leasedStore{Store: local.New(t.TempDir()), ttl: ttl}
}

// A command may have centuries to end, longer than the clock counts: it is not killed at once.
func TestKillAfterCenturies(t *testing.T) {
	store := newLeasedStore(t, 3*time.Second)
	store.renew = func() error { return &locks.EvictedError{} }
	r := testRun(t, store, "sleep", "1000")
	r.KillAfter = math.MaxInt64
	if o := r.Do(); o.Kind != Lost || o.Status.Signal() != unix.SIGTERM {
		t.Errorf("outcome %+v, want that the slot is lost and the command ended by SIGTERM", o)
	}
	s := &supervisor{Run: r, state: running, clock: locks.BootTime, signal: func(syscall.Signal) {}}
	if s.stop(math.MaxInt64); s.killAt <= s.clock() || s.wakeAt() <= s.clock() {
		t.Errorf("KILL at %v", s.killAt)
	}
}

// A run leaves no zombie: the process 1 of a container need not reap what comes to it.
func TestNoZombies(t *testing.T) {
	store := newLeasedStore(t, time.Minute)
	for range 10 {
		if o := testRun(t, store, "true").Do(); o.Kind != Ended {
			t.Errorf("outcome %+v", o)
		}
		if pid, err := syscall.Wait4(-1, nil, unix.WNOHANG, nil); err != unix.ECHILD {
			t.Errorf("a child is left: %d, %v", pid, err)
		}
	}
}

// A message that arrives during a call is received whole: a command that misses its variables does
// not know its slot.
func TestMessageArrivesMeanwhile(t *testing.T) {
	pair, err := socketPair()
	testkit.Must(t, err)
	defer unix.Close(pair[1])
	const many = 4_000
	text := func(i int) string {
		if i == 0 {
			return strings.Repeat("x", 100_000)
		}
		return "FENCE=1"
	}
	go func() {
		defer unix.Close(pair[0])
		for i := range many {
			for send(pair[0], msgStart, int64(i), "SLOT=0", text(i)) == unix.EAGAIN {
				runtime.Gosched()
			}
			for size := 1; size != 0; { // the next when this one was taken
				var err error
				if size, err = unix.IoctlGetInt(pair[0], unix.SIOCOUTQ); err != nil {
					return
				}
			}
		}
	}()
	for i := 0; i < many; {
		switch m, err := receive(pair[1]); {
		case err == unix.EAGAIN:
		case err != nil:
			t.Fatal(err)
		case m.number != int64(i) || len(m.texts) != 2 || m.texts[1] != text(i):
			t.Fatalf("message %d was received as %.100v", i, m)
		default:
			i++
		}
	}
}
