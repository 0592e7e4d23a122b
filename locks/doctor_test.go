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
		r    rehearsal
		ttl  time.Duration
		want Level
	}{
		{"quick", rehearsal{join: time.Millisecond, renew: time.Millisecond}, 30 * time.Second, OK},
		{"no leases", rehearsal{join: time.Second}, 0, OK},
		{"little room", rehearsal{join: time.Second, renew: 300 * time.Millisecond}, 30 * time.Second, Note},
		{"too slow", rehearsal{join: time.Second, renew: 1100 * time.Millisecond}, 30 * time.Second, Problem},
		{"too slow for a short lease", rehearsal{join: time.Second, renew: 150 * time.Millisecond}, time.Second, Problem},
		{"failed", rehearsal{failed: errors.New("refused")}, 30 * time.Second, Problem},
	} {
		if f := tt.r.finding(tt.ttl); f.Level != tt.want || f.What == "" || f.Level != OK && f.Why == "" {
			t.Errorf("%s: %+v, want %s", tt.name, f, tt.want)
		}
	}
}
