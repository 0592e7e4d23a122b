//go:build integration

package sql_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"golock/locks"
	. "golock/locks/locktest"
)

// Many come to a name that nobody has used before, at the same moment: one of
// them makes its row, and nobody decides anything without having locked it.
func TestFirstUse(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		const clients = 5
		for round := range rounds(9) {
			// The table is new too, now and then.
			table := fmt.Sprintf("table=t%d", round/3)
			name := fmt.Sprint("n", round)
			var inside atomic.Int64
			var mu sync.Mutex
			fences := map[int64]bool{}
			var all sync.WaitGroup
			begin := make(chan struct{})
			for range clients {
				s := b.store(t, table)
				all.Go(func() {
					<-begin
					lease, err := enter(t, s, name, false)
					if err != nil {
						t.Error(err)
						return
					}
					if n := inside.Add(1); n != 1 {
						t.Errorf("round %d: %d are inside", round, n)
					}
					mu.Lock()
					if fence := lease.Grant().Fence; fence == 0 || fences[fence] {
						t.Errorf("round %d: fence %d a second time", round, fence)
					} else {
						fences[fence] = true
					}
					mu.Unlock()
					inside.Add(-1)
					if err := GiveBack(lease.(locks.RenewableLease)); err != nil {
						t.Errorf("Release: %v", err)
					}
				})
			}
			close(begin)
			all.Wait()
		}
	})
}
