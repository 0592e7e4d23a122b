//go:build integration

package sqltest_test

import (
	"testing"

	"golock/locks/sql/sqltest"
)

// In transaction mode two clients have the same connection to the server, one
// after the other; in session mode each has its own.
// Slow: a pooler keeps its connections to a server for seconds.
func TestBouncer(t *testing.T) {
	t.Parallel()
	s := sqltest.Postgres(t)
	for mode, same := range map[string]bool{sqltest.Transaction: true, sqltest.Session: false} {
		b := sqltest.StartBouncer(t, s, mode)
		database, _ := table(t, s)
		one, two := open(t, b.URL(database)), open(t, b.TCPURL(database))
		first, second := one.do(t, one.me()), two.do(t, two.me())
		if (first == second) != same {
			t.Errorf("%s: backends %s and %s", mode, first, second)
		}
	}
}

// A pooler has options, and comes again after kill -9.
func TestBouncerRestart(t *testing.T) {
	t.Parallel()
	s := sqltest.Postgres(t)
	b := sqltest.StartBouncer(t, s, sqltest.Session, "max_client_conn=2")
	database, _ := table(t, s)
	c := open(t, b.URL(database))
	open(t, b.URL(database))
	if _, err := dial(t, b.URL(database)); err == nil {
		t.Error("three clients")
	}
	b.Kill()
	if _, err := c.try("SELECT 1"); err == nil {
		t.Error("a killed pooler answers")
	}
	b.Restart(t)
	open(t, b.TCPURL(database)).do(t, "SELECT 1")
}
