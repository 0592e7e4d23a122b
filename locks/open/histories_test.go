package open_test

import (
	"testing"

	"golock/locks"
	"golock/locks/locktest"
	"golock/locks/open"
)

// The plain stores in the suite of all stores, which asks them for what a store
// without a queue can promise.
func TestConformance(t *testing.T) {
	for name, fresh := range kinds() {
		t.Run(name, func(t *testing.T) {
			locktest.Run(t, locktest.Engine{
				Fresh: func(t *testing.T) string { return fresh(t) },
				Open:  func(url string) (locks.Store, error) { return open.Store(url) },
			})
		})
	}
}
