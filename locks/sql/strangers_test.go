//go:build integration

package sql_test

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"golock/locks"
	. "golock/locks/locktest"
	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

// The numbers of connections begin anew when MariaDB is restarted. Waiters of
// before have gone, their places are still in the table with their connections'
// numbers, and those are strangers' now.
func TestStrangersAfterRestart(t *testing.T) {
	t.Parallel()
	b := mariadb().alone(t)
	s := b.store(t)
	const slots = 6
	var holders []locks.RenewableLease
	for range slots {
		holders = append(holders, Take(t, s, "n", Limit(slots)))
	}
	for range 40 { // so many may be used up before there are strangers
		b.exec(t, "SELECT 1")
	}
	p := sqltest.NewProxy(t, b.server)
	behind := b.openURL(t, p.URL(b.name, "quarantine=0"))
	for range slots {
		Queue(t, behind, "n", Limit(slots))
	}
	b.listening(t, slots)
	p.Refuse(true)
	b.server.Restart(t)

	waiting := b.waiting(t)
	if len(waiting) != slots {
		t.Fatalf("%d places with a connection, want %d", len(waiting), slots)
	}
	var strangers []*stranger
	for len(strangers) == 0 || strangers[len(strangers)-1].number < slices.Max(waiting) {
		strangers = append(strangers, b.stranger(t))
	}
	for _, s := range strangers {
		s.begin("SELECT SLEEP(600)")
	}
	b.busy(t, strangers)
	hits := 0
	for _, n := range waiting {
		if slices.ContainsFunc(strangers, func(s *stranger) bool { return s.number == n }) {
			hits++
		}
	}
	if hits == 0 {
		t.Fatalf("none of %d strangers has one of the numbers %v", len(strangers), waiting)
	}
	for _, l := range holders {
		Release(t, l)
	}
	// The last release is over, and so is all that it has ended.
	b.undisturbed(t, strangers)
}

// A waiter whose statement is ended by somebody else looks, and waits on.
func TestWaiterDisturbed(t *testing.T) {
	t.Parallel()
	b := mariadb().fresh(t)
	s := b.store(t)
	holder := Take(t, s, "n")
	w := Queue(t, s, "n")
	for range 20 {
		b.listening(t, 1)
		for _, c := range b.sleepers(t) {
			_, _ = b.server.TryExec("", "KILL QUERY "+c.ID)
		}
	}
	b.listening(t, 1)
	w.Waits()
	Release(t, holder)
	w.Granted()
}

// waiting are the connections of waiters, as the table has them.
func (b *base) waiting(t testing.TB) []int64 {
	t.Helper()
	var all []int64
	for _, r := range b.exec(t, "SELECT conn FROM golock WHERE state='W' AND conn<>0") {
		n, err := strconv.ParseInt(r[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, n)
	}
	return all
}

// stranger is a connection of the same user that has nothing to do with locks.
type stranger struct {
	conn      *sql.Conn
	ctx       context.Context
	number    int64
	statement string
	ended     chan error
}

func (b *base) stranger(t testing.TB) *stranger {
	t.Helper()
	c := mysql.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr, c.DBName, c.Logger = "golock", sqltest.Password, "unix", b.server.Socket, b.name, &mysql.NopLogger{}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	conn, err := db.Conn(background)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(background)
	t.Cleanup(func() {
		cancel()
		conn.Close()
		db.Close()
	})
	s := &stranger{conn: conn, ctx: ctx, ended: make(chan error, 1)}
	if err := conn.QueryRowContext(background, "SELECT CONNECTION_ID()").Scan(&s.number); err != nil {
		t.Fatal(err)
	}
	return s
}

// begin begins a long statement.
func (s *stranger) begin(statement string) {
	s.statement = statement
	go func() {
		_, err := s.conn.ExecContext(s.ctx, statement)
		s.ended <- err
	}()
}

// busy waits until the server executes the statements of all.
func (b *base) busy(t testing.TB, strangers []*stranger) {
	t.Helper()
	testkit.Eventually(t, "the strangers' statements run", func() bool {
		running := b.running(t)
		return !slices.ContainsFunc(strangers, func(s *stranger) bool { return !slices.Contains(running, s.number) })
	})
}

// running are the connections that execute a stranger's statement.
func (b *base) running(t testing.TB) []int64 {
	t.Helper()
	var all []int64
	for _, c := range b.server.Connections(t, b.name) {
		if n, err := strconv.ParseInt(c.ID, 10, 64); err == nil && strings.Contains(c.Statement, "SLEEP(600)") {
			all = append(all, n)
		}
	}
	return all
}

func (b *base) undisturbed(t testing.TB, strangers []*stranger) {
	t.Helper()
	running := b.running(t)
	for _, s := range strangers {
		select {
		case err := <-s.ended:
			t.Errorf("connection %d: %q was ended: %v", s.number, s.statement, err)
			continue
		default:
		}
		if !slices.Contains(running, s.number) {
			t.Errorf("connection %d: %q does not run any more", s.number, s.statement)
		}
	}
}
