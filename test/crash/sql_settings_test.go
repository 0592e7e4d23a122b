//go:build integration

package crash_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

// Settings of servers that are made for other programs: time limits for connections and statements,
// few connections, poolers with another connection for each transaction.

func TestSQLHarshLimits(t *testing.T) {
	onSQL(t, func(t *testing.T, start sqlStarter) {
		s := sqlServer(t, start(t))
		statements := "max_statement_time=1"
		if sqltest.MySQL() {
			statements = "max_execution_time=1000"
		}
		s.sql.Exec(t, "", s.choose(
			"SET GLOBAL wait_timeout=1, interactive_timeout=1, net_read_timeout=1, net_write_timeout=1,"+
				"innodb_lock_wait_timeout=1, "+statements,
			"ALTER ROLE golock SET idle_session_timeout='1s'; ALTER ROLE golock SET statement_timeout='500ms';"+
				"ALTER ROLE golock SET idle_in_transaction_session_timeout='500ms'; ALTER ROLE golock SET lock_timeout='300ms'"))
		r := newRow(leasing(t, s.url(0, "0s"), longTTL), 3)
		time.Sleep(2500 * time.Millisecond) // longer than all of them
		r.served()
	})
}

// Other clients have all connections that a server allows. New runs end with 69, holders and waiters go
// on.
func TestSQLTooManyConnections(t *testing.T) {
	onSQL(t, func(t *testing.T, start sqlStarter) {
		options, all := []string{"max_connections=12"}, 12
		if strings.HasSuffix(t.Name(), "postgres") {
			options, all = append(options, "superuser_reserved_connections=3", "max_wal_senders=0"), 12-3
		}
		s := sqlServer(t, start(t, options...))
		db := s.sql.NewDatabase(t)
		r := newRow(leasing(t, s.sql.URL(db), longTTL), 3)
		u := s.sql.NewUser(t, db, "SELECT")
		var strangers []func()
		testkit.Eventually(t, "strangers have all connections", func() bool {
			kill, _ := s.sql.TryExec("", s.choose("SELECT GROUP_CONCAT('KILL ', id SEPARATOR ';') FROM information_schema.processlist WHERE user='golock'",
				"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename='golock'"))
			if s.sql.Kind != "postgres" && len(kill) == 1 {
				testkit.Within(time.Second, func() bool { // the operator may be one too many himself
					_, err := s.sql.TryExec("", kill[0][0])
					return err == nil
				})
			}
			for leave := s.stranger(u); leave != nil; leave = s.stranger(u) {
				strangers = append(strangers, leave)
			}
			return len(strangers) == all
		})
		r.refused(69, "-n")
		r.refused(69, "-w", "0.5")
		if !r.heard("oo many", "") && !r.heard("remaining connection slots", "") {
			t.Errorf("69 without the reason: %s", r.report())
		}
		r.undisturbed()
		r.holder.release() // it cannot say so yet
		r.awaitEnd(r.holder)
		for _, leave := range strangers {
			leave()
		}
		r.finishInOrder(append([]*proc{r.holder}, r.queue...)...)
	})
}

// stranger opens a connection of somebody else and returns what closes it; nil:
// the server has none.
func (s *server) stranger(u *sqltest.User) func() {
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	if s.sql.Kind == "postgres" {
		conn, err := pgconn.Connect(ctx, fmt.Sprintf("postgres://%s:%s@%s/%s?sslmode=disable",
			u.Name, sqltest.Password, s.sql.Addr(), u.Database))
		if err != nil {
			return nil
		}
		return func() { _ = conn.Close(context.Background()) }
	}
	db, err := sql.Open("mysql", fmt.Sprintf("%s:%s@tcp(%s)/%s", u.Name, sqltest.Password, s.sql.Addr(), u.Database))
	if err != nil {
		return nil
	}
	if db.PingContext(ctx) != nil {
		db.Close()
		return nil
	}
	return func() { db.Close() }
}

// Behind PgBouncer all works, but no waiter can be woken: it hides which connection belongs to whom,
// also in session mode. Each golock that waits warns once, and polls. The one that has never waited does not
// warn.
func TestSQLPooler(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{sqltest.Transaction, sqltest.Session} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			database := sqltest.StartPostgres(t)
			pooler := sqltest.StartBouncer(t, database, mode, "default_pool_size=20")
			r := newRow(leasing(t, pooler.URL(database.NewDatabase(t), "quarantine=0"), longTTL), 4)
			first := r.holder
			for i := range 5 { // the pooler loses its connections, or is away
				if mode == sqltest.Session && i == 2 {
					pooler.Restart(t)
				}
				testkit.Eventually(t, "connections are killed", func() bool { return database.KillConnections(t, "") > 0 })
			}
			r.served()
			for _, p := range r.procs {
				want := 1
				if p == first {
					want = 0
				}
				said := strings.Count(p.Stderr(), "there is a pooler or proxy between golock and the server that does not keep connections together")
				if said != want {
					t.Errorf("golock %d warns %d times, want %d: %s", p.token, said, want, p.Stderr())
				}
			}
		})
	}
}
