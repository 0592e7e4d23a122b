//go:build integration

package sqltest_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

// kinds are the two servers: a test of what both promise runs for each.
func kinds(t *testing.T, test func(t *testing.T, start func(testing.TB, ...string) *sqltest.Server)) {
	t.Run("mariadb", func(t *testing.T) { t.Parallel(); test(t, sqltest.StartMaria) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); test(t, sqltest.StartPostgres) })
}

// client is one connection, as the URL says.
type client struct {
	maria    *sql.Conn
	postgres *pgconn.PgConn
}

func dial(t testing.TB, address string) (*client, error) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	password, _ := u.User.Password()
	database, socket := strings.TrimPrefix(u.Path, "/"), u.Query().Get("socket")
	if u.Scheme == "postgres" {
		host := u.Hostname()
		if socket != "" {
			host = socket
		}
		text := fmt.Sprintf("host=%s port=%s user=%s password='%s' database=%s", host, u.Port(), u.User.Username(), password, database)
		text += " sslmode=disable"
		conn, err := pgconn.Connect(ctx, text)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { conn.Conn().Close() })
		return &client{postgres: conn}, nil
	}
	c := mysql.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr, c.DBName = u.User.Username(), password, "tcp", u.Host, database
	c.MultiStatements, c.Logger = true, &mysql.NopLogger{}
	if socket != "" {
		c.Net, c.Addr = "unix", socket
	}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { conn.Close() }) // before the pool, which does not close what is in use
	return &client{maria: conn}, nil
}

func open(t testing.TB, address string) *client {
	t.Helper()
	c, err := dial(t, address)
	if err != nil {
		t.Fatalf("%s: %v", address, err)
	}
	return c
}

// try runs statements and gives the last value of their results.
func (c *client) try(text string) (last string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	if c.postgres != nil {
		results, err := c.postgres.Exec(ctx, text).ReadAll()
		for _, r := range results {
			for _, row := range r.Rows {
				last = string(row[len(row)-1])
			}
		}
		return last, err
	}
	rows, err := c.maria.QueryContext(ctx, text)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	for {
		for rows.Next() {
			if err := rows.Scan(&last); err != nil {
				return "", err
			}
		}
		if !rows.NextResultSet() {
			return last, rows.Err()
		}
	}
}

func (c *client) do(t testing.TB, text string) string {
	t.Helper()
	last, err := c.try(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return last
}

// me is a query for the server's number of the own connection.
func (c *client) me() string {
	if c.postgres != nil {
		return "SELECT pg_backend_pid()"
	}
	return "SELECT CONNECTION_ID()"
}

// table makes one with a row of n = 0 in a new database, as golock.
func table(t testing.TB, s *sqltest.Server) (database string, c *client) {
	t.Helper()
	database = s.NewDatabase(t)
	c = open(t, s.URL(database))
	c.do(t, "CREATE TABLE t (n INT); INSERT INTO t VALUES (0)")
	return database, c
}

func value(t testing.TB, s *sqltest.Server, database string) string {
	t.Helper()
	return s.Exec(t, database, "SELECT n FROM t")[0][0]
}

// What was committed is there after a clean end, and after kill -9; options
// come through.
func TestRestart(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, start func(testing.TB, ...string) *sqltest.Server) {
		s := start(t, "max_connections=17")
		query := "SELECT @@max_connections"
		if s.Kind == "postgres" {
			query = "SHOW max_connections"
		}
		if got := s.Exec(t, "", query)[0][0]; got != "17" {
			t.Errorf("max_connections %s", got)
		}
		database, c := table(t, s)
		c.do(t, "UPDATE t SET n = 1")
		port := s.Port
		s.Stop()
		if s.Running() {
			t.Fatal("stopped and runs")
		}
		if _, err := c.try("SELECT 1"); err == nil {
			t.Fatal("a stopped server answers")
		}
		s.Restart(t)
		if got := value(t, s, database); got != "1" {
			t.Errorf("after a stop: %s", got)
		}
		c = open(t, s.URL(database))
		c.do(t, "UPDATE t SET n = 2")
		s.Kill()
		if _, err := c.try("SELECT 1"); err == nil {
			t.Fatal("a killed server answers")
		}
		s.Restart(t)
		if got := value(t, s, database); got != "2" {
			t.Errorf("after kill -9: %s", got)
		}
		if s.Port != port {
			t.Errorf("port %d was %d", s.Port, port)
		}
	})
}

// A paused server answers nothing, and then does.
func TestPause(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, start func(testing.TB, ...string) *sqltest.Server) {
		s := start(t)
		_, c := table(t, s)
		s.Pause()
		answer := make(chan error, 1)
		go func() {
			_, err := c.try("UPDATE t SET n = 1")
			answer <- err
		}()
		select {
		case err := <-answer:
			t.Fatalf("a paused server has answered: %v", err)
		case <-time.After(300 * time.Millisecond):
		}
		s.Resume()
		if err := <-answer; err != nil {
			t.Error(err)
		}
		s.Pause() // and the end of the test ends it
	})
}
