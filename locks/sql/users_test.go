package sql_test

import (
	"testing"

	"golock/locks/sql"
)

// Golocks that log in as different users keep the order, although they cannot
// see each other's connections.
func TestDifferentUsers(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		release(t, take(t, b.store(t), "n")) // the table is there
		var stores []*sql.Store
		for range 2 {
			user := b.server.NewUser(t, b.name, "SELECT", "INSERT", "UPDATE", "DELETE")
			stores = append(stores, f.openURL(t, user.URL("quarantine=0")))
		}
		holder := take(t, stores[0], "n")
		var waiters []*waiter
		for i := range 5 {
			waiters = append(waiters, queue(t, stores[(i+1)%2], "n"))
		}
		release(t, holder)
		for i, w := range waiters {
			l := w.granted()
			for _, later := range waiters[i+1:] {
				later.waits()
			}
			release(t, l)
		}
	})
}
