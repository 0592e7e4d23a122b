package runner

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
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
	locks.QueueStore
	ttl   time.Duration
	renew func() error
}

func (s leasedStore) Warnings() []string { return nil }

func (s leasedStore) Attach(locks.Ref) locks.RenewableLease { return &leasedLease{store: s} }

func (s leasedStore) Join(ctx context.Context, r locks.Request) (locks.Ticket, error) {
	t, err := s.QueueStore.Join(ctx, r)
	return leasedTicket{t, s}, err
}

type leasedTicket struct {
	locks.Ticket
	store leasedStore
}

func (t leasedTicket) Wait(ctx context.Context) (locks.Lease, error) {
	l, err := t.Ticket.Wait(ctx)
	if err != nil {
		return nil, err
	}
	return &leasedLease{l, t.store, locks.Term{Asked: locks.BootTime(), TTL: t.store.ttl}}, nil
}

type leasedLease struct {
	locks.Lease
	store leasedStore
	term  locks.Term
}

func (l *leasedLease) Files() []int { return nil }

func (l *leasedLease) Evicted() error { return nil }

func (l *leasedLease) Term() locks.Term { return l.term }

func (l *leasedLease) Renew(context.Context) (locks.Term, error) {
	if l.store.renew != nil {
		if err := l.store.renew(); err != nil {
			return locks.Term{}, err
		}
	}
	return locks.Term{Asked: locks.BootTime(), TTL: l.store.ttl}, nil
}

func (l *leasedLease) Events() <-chan locks.Event { return nil }

func (l *leasedLease) Release(ctx context.Context) error {
	if l.Lease == nil {
		return nil
	}
	return l.Lease.Release(ctx)
}

func newLeasedStore(t *testing.T, ttl time.Duration) leasedStore {
	return leasedStore{QueueStore: local.New(filepath.Join(t.TempDir(), "locks")), ttl: ttl}
}

func TestWatched(t *testing.T) {
	store := newLeasedStore(t, 30*time.Second)
	for _, c := range []struct {
		argv []string
		want Kind
		code int
	}{
		{[]string{"true"}, Ended, 0},
		{[]string{"sh", "-c", "exit 9"}, Ended, 9},
		{[]string{"golock-no-such-program"}, NotFound, 0},
		{[]string{"/"}, NotExecutable, 0},
	} {
		o := testRun(t, store, c.argv...).Do()
		if o.Kind != c.want || (o.Kind == Ended && o.Status.ExitStatus() != c.code) {
			t.Errorf("%q: %+v, want kind %d, code %d", c.argv, o, c.want, c.code)
		}
	}
	noChildren(t)
	free(t, store.QueueStore)
}

// A renewal that is refused, fails, or panics.
func TestRenewals(t *testing.T) {
	for _, c := range []struct {
		what string
		err  error
		want Kind
	}{
		{"refused", locks.ErrLost, Lost},
		{"failing", errors.New("a fault made by the test"), Lost},
		{"panic", nil, Fault},
	} {
		store := newLeasedStore(t, 3*time.Second)
		store.renew = func() error {
			if c.err == nil {
				panic("a fault made by the test")
			}
			return c.err
		}
		argv, pidFile := sleepCommand(t)
		o := testRun(t, store, argv...).Do()
		if o.Kind != c.want || (c.err != nil && !errors.Is(o.Err, c.err)) {
			t.Errorf("%s: outcome %+v", c.what, o)
		}
		allGone(t, pidFile, store.QueueStore)
	}
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
	if s.stop(math.MaxInt64); s.killAt <= s.clock() || s.untilNext() <= 0 {
		t.Errorf("KILL at %v", s.killAt)
	}
}

// With OnlyWarn a lost slot costs one line.
func TestOnlyWarns(t *testing.T) {
	store := newLeasedStore(t, 300*time.Millisecond)
	store.renew = func() error { return locks.ErrLost }
	r := testRun(t, store, "sleep", "1")
	r.OnlyWarn = true
	var warnings atomic.Int32
	r.Log = func(warn bool, _ string, _ ...any) {
		if warn {
			warnings.Add(1)
		}
	}
	if o := r.Do(); o.Kind != Ended || o.Status != 0 || warnings.Load() != 1 {
		t.Errorf("outcome %+v with %d warnings", o, warnings.Load())
	}
}

// One side receives what the other has sent, and its end after that.
func TestMessages(t *testing.T) {
	pair, err := socketPair()
	testkit.Must(t, err)
	sent := []message{
		{kind: msgLeaseRef, texts: []string{"redis://host/?a=b", "id"}},
		{kind: msgStart, number: -1, texts: []string{"A=", "B=" + strings.Repeat("x", 100_000)}},
		{kind: msgChildless},
	}
	if _, err := receive(pair[1]); err != unix.EAGAIN {
		t.Errorf("nothing was sent: %v", err)
	}
	for _, m := range sent {
		testkit.Must(t, m.sendTo(pair[0]))
	}
	unix.Close(pair[0])
	for _, want := range sent {
		got, err := receive(pair[1])
		if err != nil || got.kind != want.kind || got.number != want.number || strings.Join(got.texts, "|") != strings.Join(want.texts, "|") {
			t.Errorf("received %.100v, %v; want %.100v", got, err, want)
		}
	}
	if _, err := receive(pair[1]); err != unix.EPIPE {
		t.Errorf("the other side is gone: %v", err)
	}
	unix.Close(pair[1])
}

// A message that arrives during a call is received whole: a command that misses its variables does
// not know its slot.
func TestMessageArrivesMeanwhile(t *testing.T) {
	pair, err := socketPair()
	testkit.Must(t, err)
	defer unix.Close(pair[1])
	const many = 4_000
	go func() {
		defer unix.Close(pair[0])
		for i := range many {
			m := message{kind: msgStart, number: int64(i), texts: []string{"SLOT=0", "FENCE=1"}}
			for m.sendTo(pair[0]) == unix.EAGAIN {
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
		case m.number != int64(i) || len(m.texts) != 2:
			t.Fatalf("message %d was received as %+v", i, m)
		default:
			i++
		}
	}
}
