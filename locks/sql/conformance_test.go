//go:build integration

package sql_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/locktest"
)

// A process of the suite comes to one of the calls of Run and is whatever its URL
// says.
//
// The databases differ in their statements and in how a waiter is woken. So PostgreSQL, which starts a
// process for each connection, runs the tests of each kind of statement; the others are about what package
// queue decides. A deep run has all tests on both.
func TestConformance(t *testing.T) {
	var stores atomic.Int64
	only := map[string][]string{"postgres": {
		"FenceGrows", "FirstComeFirstServed", "LeaveQueue", "KilledHolder", "KilledWaiters", "Names", "Entries", "Find", "Attach",
		"Sweep", "Forget", "MaxQueue", "EvictWaiter", "EvictHolder", "ReplaceRunning", "Hold", "HoldOutlivesHolder", "Histories",
	}}
	for _, f := range families() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			database := sync.OnceValue(func() *base { return f.fresh(t) })
			locktest.Run(t, locktest.Engine{
				Fresh: func(*testing.T) string {
					b := database()
					return b.server.URL(b.name, "quarantine=0", fmt.Sprintf("table=store%d", stores.Add(1)))
				},
				Open: func(url string) (locks.Store, error) { return openAny(url) },
				TTL:  4 * time.Second,
				Only: only[f.name],
			})
		})
	}
}
