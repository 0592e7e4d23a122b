//go:build integration

package sql_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"golock/locks"
	. "golock/locks/locktest"
	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

// Who stands far back looks without locking the name, comes in its turn, and learns of
// its eviction.
func TestFarWaitersOnlyLook(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		proxy := sqltest.NewProxy(t, b.server)
		direct, far := b.store(t, "waiters=16"), b.behind(t, proxy, "waiters=16")
		last := Take(t, direct, "n")
		var waiters []*Waiter
		for range 30 {
			waiters = append(waiters, Queue(t, direct, "n"))
		}
		one, other := Queue(t, far, "n"), Queue(t, far, "n")
		var mu sync.Mutex
		looks, steps := 0, 0
		proxy.Judge(func(statement string) sqltest.Verdict {
			mu.Lock()
			defer mu.Unlock()
			if strings.Contains(statement, "turn=") {
				steps++
			} else if strings.Contains(statement, "COUNT(*)-1") {
				looks++
			}
			return sqltest.Pass
		})
		testkit.Eventually(t, "they look", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return looks+steps >= 8
		})
		mu.Lock()
		if 2*steps > looks { // one may follow a look that a busy machine did not answer in time
			t.Errorf("%d steps and %d looks of waiters that stand far back", steps, looks)
		}
		mu.Unlock()
		testkit.Must(t, direct.Evict(background, other.Ref, "the test"))
		other.Ended()
		var evicted *locks.EvictedError
		if !errors.As(other.Err, &evicted) {
			t.Errorf("the evicted one: %v", other.Err)
		}
		proxy.Cut() // whoever looks just then comes again
		Release(t, last)
		inTurn(t, append(waiters, one), func(int) {})
	})
}
