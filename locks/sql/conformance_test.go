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
func TestConformance(t *testing.T) {
	var stores atomic.Int64
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
			})
		})
	}
}
