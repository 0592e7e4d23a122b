package local

import (
	"time"

	"golock/locks"
)

// A slot with a hold outlasts its holder: the record alone keeps it then, for
// the rest of the time, on CLOCK_BOOTTIME and for this boot only. This is the
// one case in which a record counts although nobody has locked its byte.

// left is how much of the hold is left.
func (r *record) left() time.Duration { return locks.Instant(r.until).Sub(locks.BootTime()) }

// stays reports whether the record keeps its slot without a process. An
// eviction takes that back.
func (r *record) stays() bool {
	return r.state == stateHolding && r.until != 0 && r.evictor == "" && r.left() > 0 && r.boot == thisBoot()
}
