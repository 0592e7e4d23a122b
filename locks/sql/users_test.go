//go:build integration

package sql_test

import (
	. "golock/locks/locktest"
	"strings"
	"testing"
	"time"

	"golock/locks/sql"
)

// Golocks that log in as different users keep the order, although they cannot
// see each other's connections.
func TestDifferentUsers(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		Release(t, Take(t, b.store(t), "n")) // the table is there
		var stores []*sql.Store
		for range 2 {
			user := b.server.NewUser(t, b.name, "SELECT", "INSERT", "UPDATE", "DELETE")
			stores = append(stores, f.openURL(t, user.URL("quarantine=0")))
		}
		inTurn(t, stores)
	})
}

// So do those of one user who come from different places, if these are different
// accounts to MariaDB.
func TestOneUserFromTwoPlaces(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		Release(t, Take(t, b.store(t), "n"))
		user := b.server.NewUser(t, b.name, "SELECT", "INSERT", "UPDATE", "DELETE")
		inTurn(t, []*sql.Store{f.openURL(t, user.URL("quarantine=0")), f.openURL(t, user.TCPURL("quarantine=0"))})
	})
}

// inTurn has waiters of two stores wait for each other; none waits until it
// looks by itself.
func inTurn(t *testing.T, stores []*sql.Store) {
	began := time.Now()
	holder := Take(t, stores[0], "n")
	var waiters []*Waiter
	for i := range 5 {
		waiters = append(waiters, Queue(t, stores[(i+1)%2], "n"))
	}
	Release(t, holder)
	for i, w := range waiters {
		l := w.Granted()
		for _, later := range waiters[i+1:] {
			later.Waits()
		}
		Release(t, l)
	}
	if took := time.Since(began); took > LongTTL/3 {
		t.Errorf("all took %v", took)
	}
}

// Whatever is asked, an error of the server's says which store it is of.
func TestErrorsAreLocated(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		l := Take(t, b.store(t), "n")
		s := f.openURL(t, b.server.NewUser(t, b.name).URL())
		_, swept := s.Sweep(background, "", 0)
		var listed error
		for _, err := range s.Entries(background, "n") {
			listed = err
		}
		for what, err := range map[string]error{"Join": Denied(t, s, "n"), "Evict": s.Evict(background, l.Grant().Ref, "x"), "Sweep": swept, "Entries": listed} {
			if err == nil || !strings.HasPrefix(err.Error(), s.URL()+": ") {
				t.Errorf("%s: %v, want an error that begins with %s", what, err, s.URL())
			}
		}
	})
}
