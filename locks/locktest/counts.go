package locktest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"golock/locks"
	"golock/test/testkit"
)

// List returns the entries of a lock.
func List(t testing.TB, s locks.Store, name string) []locks.Entry {
	t.Helper()
	all, err := entriesOf(s, name)
	testkit.Must(t, err)
	return all
}

// entriesOf asks a store for its entries. It asks again if a busy machine did not answer in time.
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
