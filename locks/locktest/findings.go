package locktest

import (
	"context"
	"strings"
	"testing"
	"time"

	"golock/locks"
	"golock/test/testkit"
)

// Examine returns the findings of a store by their subjects. It expects that none contains a secret.
func Examine(t testing.TB, s locks.Store, secrets ...string) map[string]locks.Finding {
	t.Helper()
	found, err := s.Examine(context.Background(), 30*time.Second)
	testkit.Must(t, err)
	by := map[string]locks.Finding{}
	for _, f := range found {
		by[f.Subject] = f
		if f.What == "" || f.Subject == "" || (f.Level != locks.OK && f.Why == "") {
			t.Errorf("says too little: %+v", f)
		}
		for _, secret := range secrets {
			if strings.Contains(f.What+f.Why+f.Fix+f.Text, secret) {
				t.Errorf("tells a secret: %+v", f)
			}
		}
	}
	return by
}

// ExpectFinding fails unless the finding has that level and contains these words.
func ExpectFinding(t testing.TB, found map[string]locks.Finding, subject string, want locks.Level, says ...string) {
	t.Helper()
	timed := subject == "test lock" || subject == "wake-up"
	if timed && len(says) == 0 && want == locks.OK && found[subject].Level == locks.Note {
		return // on a busy machine doctor notes that a renewal is slow
	}
	if f, ok := found[subject]; !ok || f.Level != want || !strings.Contains(f.What, strings.Join(says, "")) {
		t.Errorf("%s: %+v, want %s %q", subject, f, want, says)
	}
}
