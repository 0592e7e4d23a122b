package locks

import (
	"errors"
	"testing"
	"time"
)

// A renewal that takes longer than an attempt may loses every lease.
func TestTestLockFinding(t *testing.T) {
	for _, tt := range []struct {
		name        string
		join, renew time.Duration
		trip        time.Duration // six of them are a renewal that has to connect first
		err         error
		ttl         time.Duration
		want        Level
	}{
		{"quick", time.Millisecond, time.Millisecond, 0, nil, 30 * time.Second, OK},
		{"no leases", time.Second, 0, 0, nil, 0, OK},
		{"little room", time.Second, 300 * time.Millisecond, 0, nil, 30 * time.Second, Note},
		{"too slow", time.Second, 1100 * time.Millisecond, 0, nil, 30 * time.Second, Problem},
		{"too slow for a short lease", time.Second, 150 * time.Millisecond, 0, nil, time.Second, Problem},
		{"far away", time.Second, 400 * time.Millisecond, 200 * time.Millisecond, nil, 30 * time.Second, OK},
		{"far away, for a short lease", time.Second, 400 * time.Millisecond, 200 * time.Millisecond, nil, 3 * time.Second, Problem},
		{"failed", 0, 0, 0, errors.New("refused"), 30 * time.Second, Problem},
	} {
		tried := testLock{tt.join, tt.renew, Distance{tt.trip, 6}}
		if f := tried.finding(tt.err, tt.ttl); f.Level != tt.want || f.What == "" || f.Level != OK && f.Why == "" {
			t.Errorf("%s: %+v, want %s", tt.name, f, tt.want)
		}
	}
}
