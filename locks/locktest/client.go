package locktest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"golock/locks"
	"golock/test/testkit"
)

// What the engines' own tests do with a store with leases. Everything here fails the
// test when the store does something else.

// LongTTL is for leases that nothing renews, also on a slow machine.
const LongTTL = time.Minute

// Change makes a request special.
type Change func(*locks.Request)

func NoWait(r *locks.Request) { r.NoWait = true }

func Limit(n int) Change { return func(r *locks.Request) { r.Claim.Max = n } }

func Weight(n int) Change { return func(r *locks.Request) { r.Claim.Weight = n } }

func Priority(n int) Change { return func(r *locks.Request) { r.Claim.Priority = n } }

func TTL(d time.Duration) Change { return func(r *locks.Request) { r.TTL = d } }

// Within sets the enclosing runs.
func Within(refs ...locks.Ref) Change { return func(r *locks.Request) { r.Within = refs } }

func Hold(d time.Duration) Change { return func(r *locks.Request) { r.Hold = d } }

// MaxQueue sets how many may wait.
func MaxQueue(n int) Change { return func(r *locks.Request) { r.MaxQueue = &n } }

func Replace(whom locks.Replacement) Change { return func(r *locks.Request) { r.Replace = whom } }

// NewRequest is for one slot of a lock with one.
func NewRequest(t testing.TB, name string, changes ...Change) locks.Request {
	t.Helper()
	ref, err := locks.NewRef(name)
	if err != nil {
		t.Fatal(err)
	}
	r := locks.Request{Ref: ref, Name: name, Claim: locks.Claim{Weight: 1, Max: 1}, TTL: LongTTL, Command: []string{"job", "of a test"}}
	for _, c := range changes {
		c(&r)
	}
	return r
}

// Take is granted at once. The test's end releases it.
func Take(t testing.TB, s locks.Store, name string, changes ...Change) locks.Lease {
	t.Helper()
	return GetOf[locks.Lease](t, s, name, append(changes, NoWait)...)
}

// Get waits for the grant, as for the quarantine of a server that was just started.
func Get(t testing.TB, s locks.Store, name string, changes ...Change) locks.Lease {
	t.Helper()
	return GetOf[locks.Lease](t, s, name, changes...)
}

// GetOf is Get on a store whose leases are of type L.
func GetOf[L locks.Lease](t testing.TB, s locks.Store, name string, changes ...Change) L {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	ticket, err := s.Join(ctx, NewRequest(t, name, changes...))
	if err != nil {
		t.Fatalf("Join(%q): %v", name, err)
	}
	l, err := ticket.Wait(ctx)
	if err != nil {
		t.Fatalf("Wait(%q): %v", name, err)
	}
	t.Cleanup(func() { _ = l.Release(context.Background()) })
	return l.(L)
}

// Try asks a plain store, whose lock has no name, for one of limit units, 0 for a shared
// lock. It does not wait. The test's end releases what it gets.
func Try(t testing.TB, s locks.Store, limit int) (locks.Lease, error) {
	t.Helper()
	ticket, err := s.Join(context.Background(), NewRequest(t, "label", Limit(limit), NoWait))
	if err != nil {
		return nil, err
	}
	l, err := ticket.Wait(context.Background())
	testkit.Must(t, err)
	t.Cleanup(func() { _ = l.Release(context.Background()) })
	return l, nil
}

// TakeUnit is Try that is granted.
func TakeUnit(t testing.TB, s locks.Store, limit int) locks.Lease {
	t.Helper()
	l, err := Try(t, s, limit)
	testkit.Must(t, err)
	return l
}

// IsBusy reports whether a request was refused because others hold.
func IsBusy(err error) bool { return errors.As(err, new(*locks.BusyError)) }

// Refused does not wait, and is told that the lock is busy.
func Refused(t testing.TB, s locks.Store, name string, changes ...Change) *locks.BusyError {
	t.Helper()
	_, err := s.Join(context.Background(), NewRequest(t, name, append(changes, NoWait)...))
	var busy *locks.BusyError
	if !errors.As(err, &busy) {
		t.Fatalf("Join(%q) = %v, want a BusyError", name, err)
	}
	return busy
}

// Quarantined does not wait for others, and gives what the store says of its
// quarantine.
func Quarantined(t testing.TB, s locks.Store, name string, changes ...Change) *locks.QuarantineError {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ticket, err := s.Join(ctx, NewRequest(t, name, append(changes, NoWait)...))
	if err == nil {
		cancel()
		_, err = ticket.Wait(ctx)
	}
	var outage *locks.OutageError
	var quarantine *locks.QuarantineError
	if !errors.As(err, &outage) || !outage.Answered || !errors.As(err, &quarantine) {
		t.Fatalf("Join(%q) = %v, want a quarantine", name, err)
	}
	return quarantine
}

// Denied is told at once, and for good, why the request cannot be.
func Denied(t testing.TB, s locks.Store, name string, changes ...Change) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	_, err := s.Join(ctx, NewRequest(t, name, changes...))
	if err == nil || errors.As(err, new(*locks.OutageError)) {
		t.Fatalf("Join(%q) = %v, want an error that is final", name, err)
	}
	return err
}

// Says demands an error that contains all of the words.
func Says(t testing.TB, err error, words ...string) {
	t.Helper()
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%v, want an error with %q", err, word)
		}
	}
}

// Fails joins for as long as a busy server may need to answer, and gives the error.
func Fails(t testing.TB, s locks.Store, name string, changes ...Change) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	ticket, err := s.Join(ctx, NewRequest(t, name, changes...))
	if err == nil {
		t.Fatalf("Join(%q) succeeded, queued %v", name, ticket.Queued())
	}
	return err
}

func Release(t testing.TB, l locks.Lease) {
	t.Helper()
	if err := GiveBack(l); err != nil {
		t.Fatalf("Release: %v", err)
	}
}

// GiveBack releases, again and again: the two seconds of one release may pass on a
// machine that is busy with other tests.
func GiveBack(l locks.Lease) error {
	var outage *locks.OutageError
	for end := time.Now().Add(testkit.Patience); ; {
		err := l.Release(context.Background())
		if !errors.As(err, &outage) || time.Now().After(end) {
			return err
		}
	}
}

func Renew(t testing.TB, l locks.Lease) {
	t.Helper()
	if err := TryRenew(l); err != nil {
		t.Fatalf("Renew: %v", err)
	}
}

// TryRenew is one attempt of a renewal, and another one where a busy machine has let
// the time of that pass.
func TryRenew(l locks.Lease) error {
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	for {
		_, err := l.Renew(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
	}
}

// Lost demands that a lease cannot be renewed any more.
func Lost(t testing.TB, l locks.Lease) {
	t.Helper()
	if err := TryRenew(l); !errors.Is(err, locks.ErrLost) {
		t.Errorf("Renew = %v, want ErrLost", err)
	}
}

// NotRenewed demands that a lease cannot be renewed now, and is not lost by that.
func NotRenewed(t testing.TB, l locks.Lease) error {
	t.Helper()
	err := TryRenew(l)
	if err == nil || errors.Is(err, locks.ErrLost) {
		t.Fatalf("Renew = %v, want an error that is not final", err)
	}
	return err
}

// Sweep demands that a sweep of all names removes so many things.
func Sweep(t testing.TB, s locks.Queue, olderThan time.Duration, want int) {
	t.Helper()
	if n, err := s.Sweep(context.Background(), "", olderThan); n != want || err != nil {
		t.Fatalf("Sweep = %d, %v, want %d", n, err, want)
	}
}

// WaiterOf is a queued request in a goroutine of its own, on a store whose leases are of type L.
type WaiterOf[L locks.Lease] struct {
	Ref    locks.Ref
	Cancel context.CancelFunc
	Done   chan struct{} // closed when Wait has returned
	Lease  L             // if Err is nil
	Err    error
	t      testing.TB
}

// Waiter is one on a store with leases.
type Waiter = WaiterOf[locks.Lease]

// Queue joins and has to wait. The waiting goes on in the background.
func Queue(t testing.TB, s locks.Store, name string, changes ...Change) *Waiter {
	t.Helper()
	return QueueOf[locks.Lease](t, s, name, changes...)
}

// QueueOf is Queue on a store whose leases are of type L.
func QueueOf[L locks.Lease](t testing.TB, s locks.Store, name string, changes ...Change) *WaiterOf[L] {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	r := NewRequest(t, name, changes...)
	ticket, err := s.Join(ctx, r)
	if err != nil || !ticket.Queued() {
		cancel(nil)
		t.Fatalf("Join(%q) = %v, %v; want a place in the queue", name, ticket, err)
	}
	w := &WaiterOf[L]{t: t, Ref: r.Ref, Done: make(chan struct{})}
	w.Cancel = func() { cancel(errors.New("a cause of the caller's")) } // which is nothing to Wait
	go func() {
		defer close(w.Done)
		var l locks.Lease
		if l, w.Err = ticket.Wait(ctx); w.Err == nil {
			w.Lease = l.(L)
		}
	}()
	t.Cleanup(func() {
		w.Cancel()
		<-w.Done
		if w.Err == nil {
			_ = w.Lease.Release(context.Background())
		}
	})
	return w
}

func (w *WaiterOf[L]) Ended() {
	w.t.Helper()
	select {
	case <-w.Done:
	case <-time.After(testkit.Patience):
		w.t.Fatal("Wait does not return")
	}
}

// Leave gives up, and demands that the waiting ends without a grant.
func (w *WaiterOf[L]) Leave() {
	w.t.Helper()
	w.Cancel()
	w.Ended()
	if !errors.Is(w.Err, context.Canceled) {
		w.t.Errorf("Wait = %v, %v, want context.Canceled", w.Lease, w.Err)
	}
}

func (w *WaiterOf[L]) IsOver() bool {
	select {
	case <-w.Done:
		return true
	default:
		return false
	}
}

func (w *WaiterOf[L]) Granted() L {
	w.t.Helper()
	w.Ended()
	if w.Err != nil {
		w.t.Fatalf("Wait: %v", w.Err)
	}
	return w.Lease
}

// Waits fails if w does not wait any more by now.
func (w *WaiterOf[L]) Waits() {
	w.t.Helper()
	if w.IsOver() {
		w.t.Fatalf("Wait returned %v, %v out of turn", w.Lease, w.Err)
	}
}

func List(t testing.TB, s locks.Store, name string) []locks.Entry {
	t.Helper()
	all, err := entriesOf(s, name)
	testkit.Must(t, err)
	return all
}

// entriesOf asks a store for its entries, and again where a busy machine has let the time of a question
// pass.
func entriesOf(s locks.Store, name string) ([]locks.Entry, error) {
	var outage *locks.OutageError
	for end := time.Now().Add(testkit.Patience); ; {
		all, err := s.Entries(context.Background(), name)
		if !errors.As(err, &outage) || time.Now().After(end) {
			return all, err
		}
	}
}

func Count(t testing.TB, s locks.Store, name string) (holding, waiting int) {
	t.Helper()
	for _, e := range List(t, s, name) {
		if e.State == locks.Holding {
			holding++
		} else {
			waiting++
		}
	}
	return holding, waiting
}

// Has demands that a lock has that many holders and waiters now.
func Has(t testing.TB, s locks.Store, name string, holding, waiting int) {
	t.Helper()
	if h, w := Count(t, s, name); h != holding || w != waiting {
		t.Errorf("%d hold and %d wait, want %d and %d", h, w, holding, waiting)
	}
}

// Becomes waits until a lock has that many holders and waiters.
func Becomes(t testing.TB, s locks.Store, name string, holding, waiting int) {
	t.Helper()
	testkit.Eventually(t, "the entries are as they should be", func() bool {
		h, w := Count(t, s, name)
		return h == holding && w == waiting
	})
}

// Same fails unless two grants are one.
func Same(t testing.TB, got, want locks.Grant) {
	t.Helper()
	if got.Ref != want.Ref || got.Fence != want.Fence || !slices.Equal(got.Slots, want.Slots) {
		t.Errorf("grant %+v, want %+v", got, want)
	}
}
