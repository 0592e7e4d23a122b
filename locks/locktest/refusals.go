package locktest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"golock/locks"
	"golock/test/testkit"
)

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
	admission, err := s.Join(ctx, NewRequest(t, name, append(changes, NoWait)...))
	if err == nil {
		cancel()
		_, err = admission.Wait(ctx)
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
	admission, err := s.Join(ctx, NewRequest(t, name, changes...))
	if err == nil {
		t.Fatalf("Join(%q) succeeded, queued %v", name, admission.Queued())
	}
	return err
}
