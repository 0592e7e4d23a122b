//go:build integration

package sql_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"golock/locks"
	. "golock/locks/locktest"
)

// A sweep takes what is dead, and what is used by nobody, and nothing else.
func TestSweep(t *testing.T) {
	onStore(t, func(t *testing.T, b *base, s *store) {
		Sweep(t, s, 0, 0) // nothing ever was there
		rows := func(where string) int {
			return len(b.exec(t, "SELECT lock_key FROM golock WHERE "+where))
		}
		lease := Take(t, s, "live")
		Release(t, Take(t, s, "over"))
		Take(t, s, "crashed")
		crashed := " WHERE lock_key='" + locks.KeyOf("crashed").String() + "'"
		b.exec(t, "UPDATE golock SET ends=1"+crashed+" AND state='H'")
		Sweep(t, s, time.Hour, 1) // the entry that ended long ago
		// The name without entries goes when nobody has used it for so long, and a sweep is no
		// use. One that remembers who left stays.
		const twoHours = 2 * time.Hour
		b.exec(t, fmt.Sprintf("UPDATE golock SET counter=counter-%d", twoHours.Microseconds())+crashed)
		Sweep(t, s, 2*twoHours, 0)
		Sweep(t, s, twoHours/2, 1)
		if names := rows("entry_id='' AND lock_key<>''"); names != 2 {
			t.Errorf("%d names are left", names)
		}
		b.exec(t, "UPDATE golock SET ends=1 WHERE state='G'")
		Sweep(t, s, 0, 1)
		if n := rows("state='G'"); n != 0 {
			t.Errorf("%d are remembered", n)
		}
		Sweep(t, s, 0, 0)
		Renew(t, lease)
	})
}

// Sweepers take the rows of names away under those who are about to use them.
func TestSweepUnderUse(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		ctx, stop := context.WithCancel(background)
		var sweepers sync.WaitGroup
		for range 2 {
			s := b.store(t)
			sweepers.Go(func() {
				for ctx.Err() == nil {
					if _, err := s.Sweep(background, "", 0); err != nil {
						t.Errorf("Sweep: %v", err)
						return
					}
					b.server.TryExec(b.name, "DELETE FROM golock WHERE state='G'") // so that names have nothing left
				}
			})
		}
		Chaos(t, func() locks.Store { return neverRefusing{b.store(t), t} }, nil)
		stop()
		sweepers.Wait()
	})
}
