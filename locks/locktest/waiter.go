package locktest

import (
	"context"
	"errors"
	"testing"
	"time"

	"golock/locks"
	"golock/test/testkit"
)

// WaiterOf is a request that waits in a goroutine of its own, on a store whose leases have the type
// L.
type WaiterOf[L locks.Lease] struct {
	Ref    locks.Ref
	Cancel context.CancelFunc
	Done   chan struct{} // closed when Wait has returned
	Lease  L             // the lease; only if Err is nil
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
	admission, err := s.Join(ctx, r)
	if err != nil || !admission.Queued() {
		cancel(nil)
		t.Fatalf("Join(%q) = %v, %v; want a place in the queue", name, admission, err)
	}
	w := &WaiterOf[L]{t: t, Ref: r.Ref, Done: make(chan struct{})}
	w.Cancel = func() { cancel(errors.New("a cause of the caller's")) } // Wait does not look at the cause
	go func() {
		defer close(w.Done)
		var l locks.Lease
		if l, w.Err = admission.Wait(ctx); w.Err == nil {
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
