package kernel

import (
	"testing"
	"time"
)

// What was started when the machine had been up for years was so.
func TestAfterBoot(t *testing.T) {
	const years = 10 * 365 * 24 * time.Hour
	if d := afterBoot(int64(years/time.Second) * ticksPerSecond); d != years {
		t.Errorf("%v, want %v", d, years)
	}
}
