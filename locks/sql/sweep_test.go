//go:build integration

package sql_test

import (
	"context"
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
		b.exec(t, "UPDATE golock SET ends=1 WHERE lock_key='"+locks.KeyOf("crashed").String()+"' AND state='H'")
		if n := sweep(time.Hour); n != 1 {
			t.Errorf("%d removed, want the entry that ended long ago", n)
		}
		// The name without entries goes, one that remembers who left stays.
		if n, names := sweep(0), rows("entry_id='' AND lock_key<>''"); n != 1 || names != 2 {
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

// A sweep is no use of a name: one that is swept all the time grows old too.
func TestSweepAgain(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		s := b.store(t)
		used, removed := time.Now(), 0
		Release(t, Take(t, s, "n"))
		b.exec(t, "DELETE FROM golock WHERE state='G'")
		for removed == 0 {
			n, err := s.Sweep(background, "", time.Second)
			testkit.Must(t, err)
			if removed += n; removed == 0 && time.Since(used) > testkit.Patience {
				t.Fatal("the name is still there")
			}
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(used); took < time.Second {
			t.Errorf("removed %v after it was used", took)
		}
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
		contend(t, b, 3)
		stop()
		sweepers.Wait()
	})
}
