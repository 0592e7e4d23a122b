//go:build integration

package sql_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"golock/locks"
	. "golock/locks/locktest"
	"golock/locks/sql"
	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

// Golocks that log in as different users keep the order, although they cannot see each
// other's connections. So do those of one user who come from different places, which are
// different accounts to MariaDB. None waits until it looks by itself.
func TestDifferentUsers(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.made(t)
		user := func() *sqltest.User { return b.server.NewUser(t, b.name, "SELECT", "INSERT", "UPDATE", "DELETE") }
		one, other := user(), user()
		var stores []*sql.Store
		for _, url := range []string{one.URL("quarantine=0"), one.TCPURL("quarantine=0"), other.URL("quarantine=0")} {
			stores = append(stores, f.openURL(t, url))
		}
		began := time.Now()
		holder := Take(t, stores[0], "n")
		var waiters []*Waiter
		for _, i := range []int{1, 0, 2, 0} {
			waiters = append(waiters, Queue(t, stores[i], "n"))
		}
		Release(t, holder)
		inTurn(t, waiters, func(int) {})
		if took := time.Since(began); took > LongTTL/3 {
			t.Errorf("all took %v", took)
		}
	})
}

// A newcomer is told who it is that it has replaced.
func TestReplacedIsNamed(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		s := f.fresh(t).store(t)
		Take(t, s, "n")
		Queue(t, s, "n", Replace(locks.ReplaceWaiting))
		ctx, cancel := context.WithCancel(background)
		ticket, err := s.Join(ctx, NewRequest(t, "n", Replace(locks.ReplaceWaiting)))
		testkit.Must(t, err)
		cancel()
		_, _ = ticket.Wait(ctx)
		if r := ticket.Replaced(); len(r) != 1 || r[0].PID != os.Getpid() || r[0].Name != "n" {
			t.Errorf("replaced: %+v, want a waiter of this process", r)
		}
	})
}

// Whatever is asked, an error of the server's says which store it is of.
func TestErrorsAreLocated(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		l := Take(t, b.store(t), "n")
		s := f.openURL(t, b.server.NewUser(t, b.name).URL())
		errs := map[string]error{
			"Join": Denied(t, s, "n"), "Evict": s.Evict(background, l.Grant().Ref, "x"), "Forget": s.Forget(background, "n"),
		}
		_, errs["Sweep"] = s.Sweep(background, "", 0)
		for _, err := range s.Entries(background, "n") {
			errs["Entries"] = err
		}
		for what, err := range errs {
			if err == nil || !strings.HasPrefix(err.Error(), s.URL()+": ") {
				t.Errorf("%s: %v, want an error that begins with %s", what, err, s.URL())
			}
		}
	})
}
