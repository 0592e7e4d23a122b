package locks

import (
	"errors"
	"testing"
	"time"
)

// A renewal that takes longer than an attempt may loses every lease.
func TestRehearsalFinding(t *testing.T) {
	for _, tt := range []struct {
		name string
		r    Rehearsal
		ttl  time.Duration
		want Level
	}{
		{"quick", Rehearsal{Join: time.Millisecond, Renew: time.Millisecond}, 30 * time.Second, OK},
		{"no leases", Rehearsal{Join: time.Second}, 0, OK},
		{"little room", Rehearsal{Join: time.Second, Renew: 300 * time.Millisecond}, 30 * time.Second, Note},
		{"too slow", Rehearsal{Join: time.Second, Renew: 1100 * time.Millisecond}, 30 * time.Second, Problem},
		{"too slow for a short lease", Rehearsal{Join: time.Second, Renew: 150 * time.Millisecond}, time.Second, Problem},
		{"failed", Rehearsal{Failed: errors.New("refused")}, 30 * time.Second, Problem},
	} {
		if f := tt.r.Finding(tt.ttl); f.Level != tt.want || f.What == "" || f.Level != OK && f.Why == "" {
			t.Errorf("%s: %+v, want %s", tt.name, f, tt.want)
		}
	}
}
