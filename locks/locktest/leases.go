package locktest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"golock/locks"
	"golock/test/testkit"
)

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
	admission, err := s.Join(ctx, NewRequest(t, name, changes...))
	if err != nil {
		t.Fatalf("Join(%q): %v", name, err)
	}
	l, err := admission.Wait(ctx)
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
	admission, err := s.Join(context.Background(), NewRequest(t, "label", Limit(limit), NoWait))
	if err != nil {
		return nil, err
	}
	l, err := admission.Wait(context.Background())
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

// ExpectGrant expects that two grants have the same owner, slots and fence.
func ExpectGrant(t testing.TB, got, want locks.Grant) {
	t.Helper()
	if got.Ref != want.Ref || got.Fence != want.Fence || !slices.Equal(got.Slots, want.Slots) {
		t.Errorf("grant %+v, want %+v", got, want)
	}
}
