package leasefile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/leasefile"
)

var background = context.Background()

// patience bounds every wait for something that must happen. It is long: it
// ends a broken test, it is no measure of speed.
const patience = 30 * time.Second

// longTTL is for leases that nothing renews.
const longTTL = time.Minute

// keptTTL is for leases that are renewed, on a machine that may be busy.
const keptTTL = 6 * time.Second

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// onEach runs a test with a fresh directory for every primitive.
func onEach(t *testing.T, test func(t *testing.T, url string)) {
	t.Parallel()
	for _, scheme := range leasefile.Schemes() {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			test(t, scheme+"://"+memory(t))
		})
	}
}

// memory is a fresh directory in memory if there is room for one: a disk that is
// busy with something else holds up a renaming for seconds.
func memory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "golock-leasefile-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func open(t testing.TB, url string) *leasefile.Store {
	t.Helper()
	s, err := leasefile.Open(url)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// change makes a request special.
type change func(*locks.Request)

func noWait(r *locks.Request)               { r.NoWait = true }
func limit(n int) change                    { return func(r *locks.Request) { r.Claim.Max = n } }
func weight(n int) change                   { return func(r *locks.Request) { r.Claim.Weight = n } }
func priority(n int) change                 { return func(r *locks.Request) { r.Claim.Priority = n } }
func ttl(d time.Duration) change            { return func(r *locks.Request) { r.TTL = d } }
func hold(d time.Duration) change           { return func(r *locks.Request) { r.Hold = d } }
func maxQueue(n int) change                 { return func(r *locks.Request) { r.MaxQueue = &n } }
func replace(what locks.Replacement) change { return func(r *locks.Request) { r.Replace = what } }

func request(t testing.TB, name string, changes ...change) locks.Request {
	t.Helper()
	ref, err := locks.NewRef(name)
	if err != nil {
		t.Fatal(err)
	}
	r := locks.Request{Ref: ref, Name: name, Claim: locks.Claim{Weight: 1, Max: 1}, TTL: longTTL, Command: []string{"job"}}
	for _, c := range changes {
		c(&r)
	}
	return r
}

// take joins and must be granted at once.
func take(t testing.TB, s *leasefile.Store, name string, changes ...change) locks.Leased {
	t.Helper()
	return get(t, s, name, append(changes, noWait)...)
}

// get joins and waits for as long as it takes. (A busy machine may take so long
// for the join that a short lease in its way is over by then.)
func get(t testing.TB, s *leasefile.Store, name string, changes ...change) locks.Leased {
	t.Helper()
	ticket, err := s.Join(background, request(t, name, changes...))
	if err != nil {
		t.Fatalf("Join(%q): %v", name, err)
	}
	l, err := ticket.Wait(background)
	if err != nil {
		t.Fatalf("Wait(%q): %v", name, err)
	}
	t.Cleanup(func() { _ = l.Release(background) })
	return l.(locks.Leased)
}

// refused joins without waiting and must be told that the name is busy.
func refused(t testing.TB, s *leasefile.Store, name string, changes ...change) *locks.BusyError {
	t.Helper()
	ticket, err := s.Join(background, request(t, name, append(changes, noWait)...))
	var busy *locks.BusyError
	if !errors.As(err, &busy) {
		t.Fatalf("Join(%q) = %v, %v; want busy", name, ticket, err)
	}
	return busy
}

// waiter is a queued request whose Wait runs.
type waiter struct {
	t      testing.TB
	cancel context.CancelFunc
	done   chan struct{}
	lease  locks.Lease
	err    error
}

func queue(t testing.TB, s *leasefile.Store, name string, changes ...change) *waiter {
	t.Helper()
	ticket, err := s.Join(background, request(t, name, changes...))
	if err != nil || !ticket.Queued() {
		t.Fatalf("Join(%q) = %+v, %v; want a place in the line", name, ticket, err)
	}
	ctx, cancel := context.WithCancel(background)
	w := &waiter{t: t, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.lease, w.err = ticket.Wait(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-w.done
		if w.lease != nil {
			_ = w.lease.Release(background)
		}
	})
	return w
}

func (w *waiter) ended() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

func (w *waiter) granted() locks.Leased {
	w.t.Helper()
	select {
	case <-w.done:
	case <-time.After(patience):
		w.t.Fatal("not granted")
	}
	if w.err != nil {
		w.t.Fatalf("Wait: %v", w.err)
	}
	return w.lease.(locks.Leased)
}

// release gives a slot back, however long a busy machine takes for it.
func release(l locks.Lease) error {
	for {
		if err := l.Release(background); !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
}

func list(t testing.TB, s *leasefile.Store, name string) (entries []locks.Entry) {
	t.Helper()
	for e, err := range s.Entries(background, name) {
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	return entries
}

// keep renews a lease until the test ends or stop is called.
func keep(t testing.TB, l locks.Leased) (stop func()) {
	ctx, cancel := context.WithCancel(background)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(l.Term().TTL / 5); ; {
			select {
			case <-tick.C:
				if _, err := l.Renew(ctx); err != nil && ctx.Err() == nil {
					t.Errorf("Renew: %v", err)
					return
				}
			case <-ctx.Done():
				tick.Stop()
				return
			}
		}
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

// orderVariable tells a process of these tests what to do.
const orderVariable = "GOLOCK_LEASEFILE_ORDER"

type order struct {
	URL     string
	Do      string // "once", "use" or "sweep"
	Step    int    // once: the step before which it kills itself; 0: never
	Witness string // use: a file that only one may have locked
	For     time.Duration
	TTL     time.Duration
}

func process(t testing.TB, o order) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), orderVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	return cmd
}

func obey(text string) {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		fail(err)
	}
	s, err := leasefile.Open(o.URL)
	if err != nil {
		fail(err)
	}
	switch o.Do {
	case "once":
		n := 0
		s.At(func(string) {
			if n++; n == o.Step {
				killSelf()
			}
		})
		if err := o.use(s, 0); err != nil {
			fail(err)
		}
	case "use":
		s.At(func(string) {
			if rand.IntN(300) == 0 {
				killSelf()
			}
		})
		for end := time.Now().Add(o.For); time.Now().Before(end); {
			if err := o.use(s, time.Duration(rand.IntN(3))*time.Millisecond); err != nil {
				fail(err)
			}
		}
	case "sweep":
		for end := time.Now().Add(o.For); time.Now().Before(end); {
			ctx, cancel := context.WithDeadline(background, end)
			if _, err := s.Sweep(ctx, 0); err != nil && ctx.Err() == nil {
				fail(err)
			}
			cancel()
		}
	}
}

func killSelf() {
	_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	select {}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// use takes the slot, is alone in it for a moment, and gives it back.
func (o order) use(s *leasefile.Store, d time.Duration) error {
	ref, err := locks.NewRef("n")
	if err != nil {
		return err
	}
	ticket, err := s.Join(background, locks.Request{Ref: ref, Name: "n", Claim: locks.Claim{Weight: 1, Max: 1}, TTL: o.TTL})
	if err != nil {
		return err
	}
	l, err := ticket.Wait(background)
	if err != nil {
		return err
	}
	lease := l.(locks.Leased)
	if o.Witness != "" && lease.Term().End().Sub(locks.BootTime()) > o.TTL/2 {
		fd, err := unix.Open(o.Witness, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil && locks.BootTime() < lease.Term().End() {
			return fmt.Errorf("two hold at once: %w", err)
		}
		time.Sleep(d)
		unix.Close(fd)
	}
	if err := release(lease); err != nil && !errors.Is(err, locks.ErrLost) {
		return err
	}
	return nil
}

// directory is where the store of a URL is.
func directory(t testing.TB, url string) string {
	t.Helper()
	_, dir, ok := strings.Cut(url, "://")
	if !ok {
		t.Fatal(url)
	}
	return dir
}
