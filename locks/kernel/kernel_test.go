package kernel

import (
	"testing"
	"time"

	"golock/internal/procfs"
)

// What was started when the machine had been up for years was so.
func TestAfterBoot(t *testing.T) {
	const years = 10 * 365 * 24 * time.Hour
	if d := AfterBoot(int64(years/time.Second) * procfs.TicksPerSecond); d != years {
		t.Errorf("%v, want %v", d, years)
	}
}
