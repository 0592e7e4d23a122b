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
	"golock/test/testkit"
)

// A sweep takes what is dead, and what is used by nobody, and nothing else.
func TestSweep(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		s := b.store(t)
		sweep := func(olderThan time.Duration) int {
			n, err := s.Sweep(background, "", olderThan)
			testkit.Must(t, err)
			return n
		}
		if n := sweep(0); n != 0 {
			t.Errorf("%d removed where nothing ever was", n)
		}
		rows := func(where string) int {
			return len(b.exec(t, "SELECT lock_key FROM golock WHERE "+where))
		}
		lease := Take(t, s, "live")
		Release(t, Take(t, s, "over"))
		Take(t, s, "crashed")
		crashed := " WHERE lock_key='" + locks.KeyOf("crashed").String() + "'"
		b.exec(t, "UPDATE golock SET ends=1"+crashed+" AND state='H'")
		if n := sweep(time.Hour); n != 1 {
			t.Errorf("%d removed, want the entry that ended long ago", n)
		}
		// The name without entries goes when nobody has used it for so long, and a sweep is no
		// use. One that remembers who left stays.
		const twoHours = 2 * time.Hour
		b.exec(t, fmt.Sprintf("UPDATE golock SET counter=counter-%d", twoHours.Microseconds())+crashed)
		if n := sweep(2 * twoHours); n != 0 {
			t.Errorf("%d removed after two hours, want none", n)
		}
		if n, names := sweep(twoHours/2), rows("entry_id='' AND lock_key<>''"); n != 1 || names != 2 {
			t.Errorf("%d removed, %d names are left", n, names)
		}
		b.exec(t, "UPDATE golock SET ends=1 WHERE state='G'")
		if n := sweep(0); n != 1 || rows("state='G'") != 0 {
			t.Errorf("%d removed, %d are remembered", n, rows("state='G'"))
		}
		if n := sweep(0); n != 0 {
			t.Errorf("%d removed of what is in use", n)
		}
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
