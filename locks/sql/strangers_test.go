//go:build integration

package sql_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

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
	behind := b.behind(t, p)
	for range slots {
		Queue(t, behind, "n", Limit(slots))
	}
	b.listening(t, slots)
	p.Refuse(true)
	b.server.Restart(t)

	var waiting []int64
	for _, row := range b.exec(t, "SELECT conn FROM golock WHERE state='W' AND conn<>0") {
		n, err := strconv.ParseInt(row[0], 10, 64)
		testkit.Must(t, err)
		waiting = append(waiting, n)
	}
	if len(waiting) != slots {
		t.Fatalf("%d places with a connection, want %d", len(waiting), slots)
	}
	var strangers []int64
	for len(strangers) == 0 || strangers[len(strangers)-1] < slices.Max(waiting) {
		strangers = append(strangers, b.stranger(t))
	}
	if !slices.ContainsFunc(waiting, func(n int64) bool { return slices.Contains(strangers, n) }) {
		t.Fatalf("none of the strangers %v has one of the numbers %v", strangers, waiting)
	}
	testkit.Eventually(t, "the strangers' statements run", func() bool { return b.sleeping(t) == len(strangers) })
	for _, l := range holders {
		Release(t, l)
	}
	// The last release is over, and so is all that it has ended.
	if n := b.sleeping(t); n != len(strangers) {
		t.Errorf("%d of %d strangers' statements run", n, len(strangers))
	}
}

// stranger opens a connection of the same user that has nothing to do with locks, begins
// a long statement, and gives the connection's number.
func (b *base) stranger(t testing.TB) (number int64) {
	t.Helper()
	db, err := sql.Open("mysql", fmt.Sprintf("golock:%s@unix(%s)/%s", sqltest.Password, b.server.Socket, b.name))
	testkit.Must(t, err)
	conn, err := db.Conn(background)
	testkit.Must(t, err)
	testkit.Must(t, conn.QueryRowContext(background, "SELECT CONNECTION_ID()").Scan(&number))
	ctx, cancel := context.WithCancel(background)
	go func() { _, _ = conn.ExecContext(ctx, "SELECT SLEEP(600)") }()
	t.Cleanup(func() {
		cancel()
		conn.Close()
		db.Close()
	})
	return number
}

// sleeping is how many strangers' statements the server executes.
func (b *base) sleeping(t testing.TB) (n int) {
	t.Helper()
	for _, c := range b.server.Connections(t, b.name) {
		if strings.Contains(c.Statement, "SLEEP(600)") {
			n++
		}
	}
	return n
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
