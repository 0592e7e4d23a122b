package locktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golock/locks"
	"golock/test/testkit"
)

// The engines' own tests use these functions. Each function fails the test if the store does not do
// what its name says.

// LongTTL is a lease time that a test does not outlive, even on a slow machine: nothing renews such
// a lease.
const LongTTL = time.Minute

// Change changes a request that NewRequest makes.
type Change func(*locks.Request)

func NoWait(r *locks.Request) { r.NoWait = true }

func Limit(n int) Change { return func(r *locks.Request) { r.Claim.Max = n } }

func Weight(n int) Change { return func(r *locks.Request) { r.Claim.Weight = n } }

func Priority(n int) Change { return func(r *locks.Request) { r.Claim.Priority = n } }

func Note(text string) Change { return func(r *locks.Request) { r.Note = text } }

func TTL(d time.Duration) Change { return func(r *locks.Request) { r.TTL = d } }

// Within sets the runs that enclose the request.
func Within(refs ...locks.Ref) Change { return func(r *locks.Request) { r.Within = refs } }

func Hold(d time.Duration) Change { return func(r *locks.Request) { r.Hold = d } }

// HoldLater asks for a hold that begins with Lease.Hold.
func HoldLater(d time.Duration) Change {
	return func(r *locks.Request) { r.Hold, r.HoldsLater = d, true }
}

// Next names the lock that the run takes next.
func Next(name string) Change { return func(r *locks.Request) { r.Next = name } }

// MaxQueue sets how many waiters there may be.
func MaxQueue(n int) Change { return func(r *locks.Request) { r.MaxQueue = &n } }

func Replace(whom locks.Replacement) Change { return func(r *locks.Request) { r.Replace = whom } }

// NewRequest returns a request for the only slot of a lock, with the changes made to it.
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

// AcquireAtOnce acquires a slot without waiting. The lease is released when the test ends.
func AcquireAtOnce(t testing.TB, s locks.Store, name string, changes ...Change) locks.Lease {
	t.Helper()
	return AcquireAs[locks.Lease](t, s, name, append(changes, NoWait)...)
}

// Acquire acquires a slot and may wait for it, for example until the quarantine of a server that was
// just started is over.
func Acquire(t testing.TB, s locks.Store, name string, changes ...Change) locks.Lease {
	t.Helper()
	return AcquireAs[locks.Lease](t, s, name, changes...)
}

// AcquireAs is Acquire on a store whose leases have the type L.
func AcquireAs[L locks.Lease](t testing.TB, s locks.Store, name string, changes ...Change) L {
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

// TryPlain tries to lock a plain store, without waiting. limit is the number of units, or 0 for a
// shared lock. The lease is released when the test ends.
func TryPlain(t testing.TB, s locks.Store, limit int) (locks.Lease, error) {
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

// AcquirePlain is TryPlain on a store that has a free unit.
func AcquirePlain(t testing.TB, s locks.Store, limit int) locks.Lease {
	t.Helper()
	l, err := TryPlain(t, s, limit)
	testkit.Must(t, err)
	return l
}

// IsBusy reports whether an error says that others hold the lock.
func IsBusy(err error) bool { return errors.As(err, new(*locks.BusyError)) }

// ExpectBusy joins without waiting, and expects the store to answer that the lock is busy.
func ExpectBusy(t testing.TB, s locks.Store, name string, changes ...Change) *locks.BusyError {
	t.Helper()
	_, err := s.Join(context.Background(), NewRequest(t, name, append(changes, NoWait)...))
	var busy *locks.BusyError
	if !errors.As(err, &busy) {
		t.Fatalf("Join(%q) = %v, want a BusyError", name, err)
	}
	return busy
}

// ExpectQuarantine joins without waiting, and expects the store to answer that it is in its
// quarantine.
func ExpectQuarantine(t testing.TB, s locks.Store, name string, changes ...Change) *locks.QuarantineError {
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

// ExpectFinalError joins, and expects an error that no repetition of the request would mend.
func ExpectFinalError(t testing.TB, s locks.Store, name string, changes ...Change) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	_, err := s.Join(ctx, NewRequest(t, name, changes...))
	if err == nil || errors.As(err, new(*locks.OutageError)) {
		t.Fatalf("Join(%q) = %v, want an error that is final", name, err)
	}
	return err
}

// ExpectError expects an error whose text contains all of the words.
func ExpectError(t testing.TB, err error, words ...string) {
	t.Helper()
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%v, want an error with %q", err, word)
		}
	}
}

// ExpectJoinError joins, and expects any error within the time that a busy server may need to
// answer.
func ExpectJoinError(t testing.TB, s locks.Store, name string, changes ...Change) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	ticket, err := s.Join(ctx, NewRequest(t, name, changes...))
	if err == nil {
		t.Fatalf("Join(%q) succeeded, queued %v", name, ticket.Queued())
	}
	return err
}

// Release releases a lease, and expects it to succeed.
func Release(t testing.TB, l locks.Lease) {
	t.Helper()
	if err := ReleaseUntilAnswered(l); err != nil {
		t.Fatalf("Release: %v", err)
	}
}

// ReleaseUntilAnswered repeats a release until the store answers: on a busy machine the two seconds
// of one release may pass without an answer.
func ReleaseUntilAnswered(l locks.Lease) error {
	var outage *locks.OutageError
	for end := time.Now().Add(testkit.Patience); ; {
		err := l.Release(context.Background())
		if !errors.As(err, &outage) || time.Now().After(end) {
			return err
		}
	}
}

// Renew renews a lease, and expects it to succeed.
func Renew(t testing.TB, l locks.Lease) {
	t.Helper()
	if err := TryRenew(l); err != nil {
		t.Fatalf("Renew: %v", err)
	}
}

// TryRenew renews a lease. It repeats an attempt whose time has passed, as happens on a busy
// machine.
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

// ExpectLost expects that a lease is lost: it cannot be renewed any more.
func ExpectLost(t testing.TB, l locks.Lease) {
	t.Helper()
	if err := TryRenew(l); !errors.Is(err, locks.ErrLost) {
		t.Errorf("Renew = %v, want ErrLost", err)
	}
}

// ExpectRenewError expects that a renewal fails now, and that the lease is not lost by that.
func ExpectRenewError(t testing.TB, l locks.Lease) error {
	t.Helper()
	err := TryRenew(l)
	if err == nil || errors.Is(err, locks.ErrLost) {
		t.Fatalf("Renew = %v, want an error that is not final", err)
	}
	return err
}

// ExpectSwept sweeps all names, and expects that this removes as many records or files as wanted.
func ExpectSwept(t testing.TB, s locks.Queue, olderThan time.Duration, want int) {
	t.Helper()
	if n, err := s.Sweep(context.Background(), "", olderThan); n != want || err != nil {
		t.Fatalf("Sweep = %d, %v, want %d", n, err, want)
	}
}

// WaiterOf is a request that waits in a goroutine of its own, on a store whose leases have the type
// L.
type WaiterOf[L locks.Lease] struct {
	Ref    locks.Ref
	Cancel context.CancelFunc
	Done   chan struct{} // closed when Wait has returned
	Lease  L             // if Err is nil
	Err    error
	t      testing.TB
}

// Waiter is a WaiterOf for tests that need no more than the interface of a lease.
type Waiter = WaiterOf[locks.Lease]

// Enqueue joins a queue, and expects a place in it. The waiting goes on in the background.
func Enqueue(t testing.TB, s locks.Store, name string, changes ...Change) *Waiter {
	t.Helper()
	return EnqueueAs[locks.Lease](t, s, name, changes...)
}

// EnqueueAs is Enqueue on a store whose leases have the type L.
func EnqueueAs[L locks.Lease](t testing.TB, s locks.Store, name string, changes ...Change) *WaiterOf[L] {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	r := NewRequest(t, name, changes...)
	ticket, err := s.Join(ctx, r)
	if err != nil || !ticket.Queued() {
		cancel(nil)
		t.Fatalf("Join(%q) = %v, %v; want a place in the queue", name, ticket, err)
	}
	w := &WaiterOf[L]{t: t, Ref: r.Ref, Done: make(chan struct{})}
	w.Cancel = func() { cancel(errors.New("a cause of the caller's")) } // Wait does not look at the cause
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

// AwaitEnd waits until the waiting has ended, with a grant or an error.
func (w *WaiterOf[L]) AwaitEnd() {
	w.t.Helper()
	select {
	case <-w.Done:
	case <-time.After(testkit.Patience):
		w.t.Fatal("Wait does not return")
	}
}

// Leave leaves the queue, and expects that the waiting ends without a grant.
func (w *WaiterOf[L]) Leave() {
	w.t.Helper()
	w.Cancel()
	w.AwaitEnd()
	if !errors.Is(w.Err, context.Canceled) {
		w.t.Errorf("Wait = %v, %v, want context.Canceled", w.Lease, w.Err)
	}
}

// HasEnded reports whether the waiting has ended, with a grant or an error.
func (w *WaiterOf[L]) HasEnded() bool {
	select {
	case <-w.Done:
		return true
	default:
		return false
	}
}

// ExpectGrant waits for the grant, and returns the lease.
func (w *WaiterOf[L]) ExpectGrant() L {
	w.t.Helper()
	w.AwaitEnd()
	if w.Err != nil {
		w.t.Fatalf("Wait: %v", w.Err)
	}
	return w.Lease
}

// ExpectWaiting expects that w still waits.
func (w *WaiterOf[L]) ExpectWaiting() {
	w.t.Helper()
	if w.HasEnded() {
		w.t.Fatalf("Wait returned %v, %v out of turn", w.Lease, w.Err)
	}
}

// List returns the entries of a lock.
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

// Counts are the numbers of the holders and the waiters of a lock.
type Counts struct{ Holding, Waiting int }

// CountEntries counts the entries of a lock.
func CountEntries(t testing.TB, s locks.Store, name string) (c Counts) {
	t.Helper()
	for _, e := range List(t, s, name) {
		if e.State == locks.Holding {
			c.Holding++
		} else {
			c.Waiting++
		}
	}
	return c
}

// ExpectEntries expects that a lock has as many holders and waiters as wanted.
func ExpectEntries(t testing.TB, s locks.Store, name string, want Counts) {
	t.Helper()
	if got := CountEntries(t, s, name); got != want {
		t.Errorf("lock %q has %+v, want %+v", name, got, want)
	}
}

// AwaitEntries waits until a lock has as many holders and waiters as wanted.
func AwaitEntries(t testing.TB, s locks.Store, name string, want Counts) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("lock %q has %+v", name, want), func() bool {
		return CountEntries(t, s, name) == want
	})
}

// ExpectGrant expects that two grants have the same owner, slots and fence.
func ExpectGrant(t testing.TB, got, want locks.Grant) {
	t.Helper()
	if got.Ref != want.Ref || got.Fence != want.Fence || !slices.Equal(got.Slots, want.Slots) {
		t.Errorf("grant %+v, want %+v", got, want)
	}
}
