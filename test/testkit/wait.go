package testkit

import (
	"testing"
	"time"
)

// Patience bounds every wait for something that must happen. It is no measure
// of speed: only a hang or a lost event uses it up, also on a busy machine.
const Patience = 60 * time.Second

// Eventually returns as soon as ok reports true and fails the test if it never
// does.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	if !Within(Patience, ok) {
		t.Fatalf("not in %v: %s", Patience, what)
	}
}

// Within reports whether ok became true before d was over.
func Within(d time.Duration, ok func() bool) bool {
	pause := 200 * time.Microsecond
	for end := time.Now().Add(d); !ok(); time.Sleep(pause) {
		if time.Now().After(end) {
			return ok()
		}
		pause = min(2*pause, 10*time.Millisecond)
	}
	return true
}

// Must fails the test if there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
