//go:build integration

package sql_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"golock/locks/locktest"
	"golock/locks/sql"
	"golock/locks/sql/mysql"
	"golock/locks/sql/postgres"
	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Library(m)) }

var background = context.Background()

// family is one of the two kinds of servers, with the store that uses it.
type family struct {
	name   string // the URL's scheme too
	open   func(url string) (*sql.Store, error)
	shared func(testing.TB) *sqltest.Server // by all tests
	start  func(t testing.TB, options ...string) *sqltest.Server
}

func mariadb() family {
	return family{"mariadb", mysql.Open, sqltest.Maria, sqltest.StartMaria}
}

func postgresql() family {
	return family{"postgres", postgres.Open, sqltest.Postgres, sqltest.StartPostgres}
}

func families() []family { return []family{mariadb(), postgresql()} }

// openAny opens what either family understands; what none does is for the first.
func openAny(url string) (*sql.Store, error) {
	if strings.HasPrefix(url, "postgres") {
		return postgresql().open(url)
	}
	return mariadb().open(url)
}

// both runs a test for each family.
func both(t *testing.T, test func(t *testing.T, f family)) {
	t.Parallel()
	each(t, func(t *testing.T, f family) {
		t.Parallel()
		test(t, f)
	})
}

type store = sql.Store

// onStore runs a test for each family, with a store in a fresh database.
func onStore(t *testing.T, test func(t *testing.T, b *base, s *store)) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		test(t, b, b.store(t))
	})
}

// each runs a test for each family, one after the other.
func each(t *testing.T, test func(t *testing.T, f family)) {
	for _, f := range families() {
		t.Run(f.name, func(t *testing.T) { test(t, f) })
	}
}

// base is a database on a server.
type base struct {
	family
	server *sqltest.Server
	name   string
}

// fresh makes a database on the shared server.
func (f family) fresh(t testing.TB) *base {
	t.Helper()
	server := f.shared(t)
	return &base{f, server, server.NewDatabase(t)}
}

// made makes one in which the table is there.
func (f family) made(t testing.TB) *base {
	t.Helper()
	b := f.fresh(t)
	locktest.Release(t, locktest.Acquire(t, b.store(t), "n")) // the server may have just been started
	return b
}

// alone makes one on a server of its own.
func (f family) alone(t testing.TB, options ...string) *base {
	t.Helper()
	server := f.start(t, options...)
	return &base{f, server, server.NewDatabase(t)}
}

// store opens the table of the database; without options there is no quarantine.
func (b *base) store(t testing.TB, options ...string) *sql.Store {
	t.Helper()
	return b.openURL(t, b.server.URL(b.name, append([]string{"quarantine=0"}, options...)...))
}

// behind opens it through a proxy.
func (b *base) behind(t testing.TB, p *sqltest.Proxy, options ...string) *sql.Store {
	t.Helper()
	return b.openURL(t, p.URL(b.name, append([]string{"quarantine=0"}, options...)...))
}

func (f family) openURL(t testing.TB, url string) *sql.Store {
	t.Helper()
	s, err := f.open(url)
	testkit.Must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// inTurn serves waiters for a free slot in their order, and has each looked at while it holds.
func inTurn(t testing.TB, waiters []*locktest.Waiter, look func(i int)) {
	t.Helper()
	var fence int64
	for i, w := range waiters {
		l := w.ExpectGrant()
		if f := l.Grant().Fence; f <= fence {
			t.Errorf("waiter %d has fence %d after %d", i, f, fence)
		} else {
			fence = f
		}
		for _, later := range waiters[i+1:] {
			later.ExpectWaiting()
		}
		look(i)
		locktest.Release(t, l)
	}
}

// exec runs statements as the administrator.
func (b *base) exec(t testing.TB, text string) [][]string {
	t.Helper()
	return b.server.Exec(t, b.name, text)
}

// listening waits until n waiters sleep at the server.
func (b *base) listening(t testing.TB, n int) {
	t.Helper()
	testkit.Eventually(t, "the waiters listen", func() bool { return len(b.sleepers(t)) >= n })
}

// sleepers are the connections of waiters that can be woken.
func (b *base) sleepers(t testing.TB) []sqltest.Connection {
	t.Helper()
	var named [][]string // in the rows; on PostgreSQL a sleeping connection has any last statement
	if b.family.name == "postgres" {
		named = b.exec(t, "SELECT conn FROM golock WHERE state='W' AND conn<>0")
	}
	return slices.DeleteFunc(b.server.Connections(t, b.name), func(c sqltest.Connection) bool {
		if b.family.name == "postgres" {
			return !slices.ContainsFunc(named, func(row []string) bool { return row[0] == c.ID })
		}
		return !strings.Contains(c.Statement, "golock:wait:")
	})
}
