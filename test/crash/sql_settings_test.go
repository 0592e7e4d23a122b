package crash_test

import (
	"context"
	"database/sql"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"golock/locks/sql/sqltest"
)

// This file pins that servers set up for other programs, and poolers, do no
// harm: time limits for connections and statements, few connections, a
// connection that is another one after each transaction.

// lateHandOff is longer than a slot takes to change hands, and shorter than the
// third of a TTL after which waiters look by themselves.
const lateHandOff = 5 * time.Second

func TestSQLHarshLimits(t *testing.T) {
	onSQL(t, func(t *testing.T, start starter) {
		server := start(t)
		limits := "SET GLOBAL " + strings.Join([]string{"wait_timeout=1", "interactive_timeout=1", "max_statement_time=1", "net_read_timeout=1", "net_write_timeout=1", "innodb_lock_wait_timeout=1"}, ", ")
		if server.Kind == "postgres" {
			limits = ""
			for _, one := range []string{"idle_session_timeout='1s'", "statement_timeout='500ms'", "idle_in_transaction_session_timeout='500ms'", "lock_timeout='300ms'"} {
				limits += "ALTER ROLE golock SET " + one + ";"
			}
		}
		server.Exec(t, "", limits)
		rs := rows(t, sqlWorlds(t, server, 2, time.Minute), 3)
		time.Sleep(2500 * time.Millisecond) // longer than all of them
		for _, r := range rs {
			r.undisturbed()
			from := monotonic()
			r.release()
			took := r.queue[0].since(from)
			if took > lateHandOff {
				t.Errorf("the next one ran after %v", took)
			}
			t.Logf("the next one ran after %v", took)
			r.drain()
			r.check()
			inOrder(t, append([]*proc{r.holder}, r.queue...), "fence", func(p *proc) int64 { return p.fence })
			r.nothingLeft()
		}
	})
}

// Strangers have all connections that a server allows. Who begins is told so
// with 69; who holds goes on, who waits goes on waiting.
func TestSQLTooManyConnections(t *testing.T) {
	onSQL(t, func(t *testing.T, start starter) {
		options, all := []string{"max_connections=12"}, 12
		if strings.HasSuffix(t.Name(), "postgres") {
			options, all = append(options, "superuser_reserved_connections=3", "max_wal_senders=0"), 12-3
		}
		server := start(t, options...)
		db := server.NewDatabase(t)
		w := worldsAt(t, 1, 20*time.Second, func(table string) string { return server.URL(db, table) })[0]
		r := rows(t, []*world{w}, 3)[0]
		stranger := server.NewUser(t, db, "SELECT")
		crowd := &strangers{}
		defer crowd.leave()
		await(t, "strangers have all connections", func() bool {
			// The operator may be one too many himself.
			_, _ = server.TryExec("", sqlOf(server, "KILL USER golock", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename='golock'"))
			for crowd.come(server, stranger) {
			}
			return len(crowd.open) == all
		})
		for _, flags := range [][]string{{"-n"}, {"-w", "0.5"}} {
			p := w.start(spec{max: 1, flags: flags})
			if code := p.code(); code != 69 {
				t.Errorf("%v without a connection: %v", flags, p.state)
			}
			p.killed = true // judged here
		}
		if !within(limit, func() bool {
			return w.heard("", sqlOf(server, "Too many connections", "remaining connection slots")) || w.heard("", "too many clients")
		}) {
			t.Errorf("69 without the reason:\n%s", w.report())
		}
		r.undisturbed()
		from := monotonic()
		r.release() // it cannot say so yet
		time.Sleep(500 * time.Millisecond)
		crowd.leave()
		t.Logf("the next one ran after %v", r.queue[0].since(from))
		r.drain()
		r.check()
		inOrder(t, append([]*proc{r.holder}, r.queue...), "fence", func(p *proc) int64 { return p.fence })
		r.nothingLeft()
	})
}

// strangers are connections of somebody else.
type strangers struct{ open []io.Closer }

type closer func()

func (c closer) Close() error {
	c()
	return nil
}

// come opens one more and reports whether it could.
func (s *strangers) come(server *sqltest.Server, u *sqltest.User) bool {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if server.Kind == "postgres" {
		c, err := pgconn.ParseConfig("sslmode=disable")
		if err != nil {
			return false
		}
		c.Host, c.Port, c.User, c.Password, c.Database = server.Host, uint16(server.Port), u.Name, sqltest.Password, u.Database
		conn, err := pgconn.ConnectConfig(ctx, c)
		if err != nil {
			return false
		}
		s.open = append(s.open, closer(func() { _ = conn.Close(context.Background()) }))
		return true
	}
	c := mysql.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr, c.DBName, c.Logger = u.Name, sqltest.Password, "tcp", server.Addr(), u.Database, &mysql.NopLogger{}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return false
	}
	db := sql.OpenDB(connector)
	if db.PingContext(ctx) != nil {
		db.Close()
		return false
	}
	s.open = append(s.open, db)
	return true
}

func (s *strangers) leave() {
	for _, c := range s.open {
		c.Close()
	}
	s.open = nil
}

// Behind PgBouncer all works as without, but it hides which connection is
// whose, in its session mode too: nobody can be woken. Each golock that waits
// says so once, and they look by themselves.
func TestSQLPooler(t *testing.T) {
	t.Parallel()
	const warning = "does not keep connections together"
	for _, mode := range []string{sqltest.Transaction, sqltest.Session} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			server := sqltest.StartPostgres(t)
			pooler := sqltest.StartBouncer(t, server, mode, "default_pool_size=20")
			db := server.NewDatabase(t)
			all := worldsAt(t, 3, 30*time.Second, func(table string) string { return pooler.URL(db, "quarantine=0", table) })
			rs := rows(t, all[:2], 5)
			for i := range 5 { // the pooler loses its connections, or is away
				if mode == sqltest.Session && i == 2 {
					pooler.Restart(t)
				}
				server.KillConnections(t, "")
				time.Sleep(100 * time.Millisecond)
			}
			for _, r := range rs {
				r.undisturbed()
				from := monotonic()
				r.release()
				took := r.queue[0].since(from)
				t.Logf("the next one ran after %v", took)
				if took > lateHandOff {
					t.Errorf("the next one ran after %v", took)
				}
				r.drain()
				r.check()
				inOrder(t, append([]*proc{r.holder}, r.queue...), "fence", func(p *proc) int64 { return p.fence })
				r.nothingLeft()
				r.mu.Lock()
				said := 0
				for _, line := range r.lines {
					if strings.Contains(line, warning) {
						said++
					}
				}
				r.mu.Unlock()
				if said < len(r.queue) || said > len(r.procs) {
					t.Errorf("%d golocks, %d warnings:\n%s", len(r.procs), said, r.report())
				}
			}
			c := newCampaignOn(t, all[2], strategies[1])
			for end := time.Now().Add(campaign / 20); len(c.procs) < 30 || time.Now().Before(end); {
				c.always[1] = "2"
				c.populate(6)
				c.attack()
			}
			c.finish()
		})
	}
}
