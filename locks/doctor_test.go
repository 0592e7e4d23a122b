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
		err         error
		ttl         time.Duration
		want        Level
	}{
		{"quick", time.Millisecond, time.Millisecond, nil, 30 * time.Second, OK},
		{"no leases", time.Second, 0, nil, 0, OK},
		{"little room", time.Second, 300 * time.Millisecond, nil, 30 * time.Second, Note},
		{"too slow", time.Second, 1100 * time.Millisecond, nil, 30 * time.Second, Problem},
		{"too slow for a short lease", time.Second, 150 * time.Millisecond, nil, time.Second, Problem},
		{"failed", 0, 0, errors.New("refused"), 30 * time.Second, Problem},
	} {
		if f := judgeTestLock(tt.join, tt.renew, tt.err, tt.ttl); f.Level != tt.want || f.What == "" || f.Level != OK && f.Why == "" {
			t.Errorf("%s: %+v, want %s", tt.name, f, tt.want)
		}
	}
}
