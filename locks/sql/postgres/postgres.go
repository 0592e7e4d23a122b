// Package postgres is the dialect of PostgreSQL 12 and later.
//
// A waiter listens on a channel of its own; the releaser of a slot notifies it
// in the same transaction. Behind a pooler that gives every transaction another
// connection no notification would come: the connection's number at the server
// shows that.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"golock/locks/lease"
	"golock/locks/network"
	"golock/locks/sql"
)

// Open parses a postgres:// or postgresql:// URL; see sql.Open.
func Open(address string) (*sql.Store, error) { return sql.Open(address, dialect()) }

// begin replaces limits that the administrator has set for other programs.
const begin = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;SET LOCAL synchronous_commit=on;" +
	"SET LOCAL lock_timeout=2000;SET LOCAL statement_timeout=4000;SET LOCAL idle_in_transaction_session_timeout=1000"

func dialect() sql.Dialect {
	return sql.Dialect{
		Schemes: []string{"postgres", "postgresql"},
		Port:    "5432",
		Quote:   `"`,

		Begin:     begin,
		Commit:    commit,
		Later:     "SET LOCAL synchronous_commit=off;",
		Single:    "SET LOCAL transaction_read_only=off;SET LOCAL synchronous_commit=off;", // a text is one transaction
		Text:      `VARCHAR(%d) COLLATE "C" NOT NULL DEFAULT ''`,
		Table:     "CREATE TABLE %[1]s (\n%[2]s\n) WITH (fillfactor=60);\nCREATE INDEX ON %[1]s (%[3]s)",
		TryCreate: "BEGIN READ WRITE;CREATE TABLE %[1]s ();ROLLBACK",

		NotHex: "%s ~ '[^0-9a-f]'",
		Clock:  micros("clock_timestamp()"), // now() would be the time when the transaction began
		// No two servers start in the same microsecond.
		Facts: "extract(epoch FROM pg_postmaster_start_time())," + micros("pg_postmaster_start_time()") +
			",pg_backend_pid(),current_user,current_setting('max_connections')",

		InUse:     inUse,
		Release:   release,
		IsServer:  isServer,
		Listeners: 32, // a notification wakes the backends of all listeners of the database
		Notifies:  true,
		Code:      code,
		Connect:   connect,
		Examine:   examine,

		// Their codes are in PostgreSQL's manual, appendix A.
		Errors: []sql.Meaning{
			sql.Errors(sql.AtOnce, "", "40001", "40P01"),
			sql.Errors(sql.NoTable, "", "42P01"),
			sql.Errors(sql.Exists, "", "42P07", "23505", "42710"),
			sql.Errors(sql.OtherTable, "", "42703"),
			sql.Errors(sql.NoRight, "", "42501"),
			sql.Errors(sql.Refused, lease.LoginHint, "28000", "28P01"),
			sql.Errors(sql.Refused, "the database must exist", "3D000"),
			sql.Errors(sql.Refused, "the schema must exist", "3F000"),
			sql.Errors(sql.Refused, "", "22", "42"),
			sql.Errors(sql.Standby, sql.ReplicaHint, recovery, "25006"), // in recovery a transaction cannot be READ WRITE
			sql.Errors(sql.Refused, "", "0A"),                           // the server lacks a feature of PostgreSQL
			sql.Errors(sql.Passing, "", "53300", "53400"),               // too few connections
			sql.Errors(sql.ForNewcomers, "", "53"),                      // the disk or the memory is full
			sql.Errors(sql.Refused, "", "57P04"),                        // the database has been dropped
			sql.Errors(sql.Refused, lease.LoginHint, bouncer+" no such user", bouncer+" password authentication failed",
				bouncer+" SASL authentication failed", bouncer+" certificate authentication failed",
				bouncer+" bouncer config error", bouncer+" unix socket login rejected"),
			sql.Errors(sql.Refused, "the pooler wants TLS: ?tls=on", bouncer+" SSL required"),
			sql.Errors(sql.Refused, "the database must exist", bouncer+" no such database"),
			// The transaction lost a race (40), timed out (25P03, 55P03), the server starts or stops (57),
			// its files cannot be read (58), or a pooler has no connection left (08).
			sql.Errors(sql.Passing, "", "40", "25P", "55", "57", "58", "08"),
			sql.Errors(sql.Refused, "the server does not speak TLS", noTLS),
			sql.Errors(sql.Refused, "it wants the password in the clear, which is not sent over an open network: ?tls=on",
				clearText),
		},
	}
}

// micros returns an expression for the us since 1970 at a timestamp.
func micros(timestamp string) string {
	return "(extract(epoch FROM " + timestamp + ")*1000000)::bigint"
}

// connect implements sql.Dialect.Connect. It ignores the variables that other programs read (PGHOST, PGOPTIONS
// and so on): they would make a cron job and a login shell go to different places.
func connect(ctx context.Context, t *sql.Target, host string, connected func()) (_ sql.Conn, pid int64, err error) {
	defer network.Recover(&err)
	name, port := host, t.Port
	if t.Socket == "" {
		name, port, _ = net.SplitHostPort(host)
	}
	number, _ := strconv.ParseUint(port, 10, 16) // network.Hosts has checked the port
	c, err := plainConfig()
	if err != nil {
		return nil, 0, err
	}
	c = c.Copy()
	c.Host, c.Port, c.User, c.Password, c.Database = name, uint16(number), t.User, t.Password, t.Database
	c.Fallbacks, c.RuntimeParams, c.ValidateConnect, c.AfterConnect = nil, map[string]string{}, nil, nil
	if t.Application != "" {
		c.RuntimeParams["application_name"] = t.Application
	}
	if c.TLSConfig, err = t.Config(host); err != nil {
		return nil, 0, err
	}
	if c.TLSConfig == nil && t.Socket == "" && !network.IsLoopback(name) {
		c.RequireAuth = "!password" // an attacker in between could ask for the password in the clear
	}
	dial := network.Dial(c.DialFunc)
	c.DialFunc = func(ctx context.Context, transport, address string) (net.Conn, error) {
		return network.Reach(ctx, dial, transport, address, connected)
	}
	conn := &conn{}
	c.AfterNetConnect = func(_ context.Context, _ *pgconn.Config, raw net.Conn) (net.Conn, error) {
		conn.socket = network.Watch(raw, &messages{}, t.Trips) // TLS has begun
		return conn.socket, nil
	}
	c.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { conn.notified = true }
	c.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if n.Code == generalWarning {
			conn.warning = n
		}
	}
	conn.raw, err = pgconn.ConnectConfig(ctx, c)
	if err != nil {
		return nil, 0, conn.explain(err)
	}
	return conn, int64(conn.raw.PID()), nil // a pooler tells a PID that it has made up
}

// plainConfig returns a configuration that does not depend on variables. It sets everything that the library
// would otherwise take from a variable. Only PGSERVICE, which names a section of a file, cannot be overridden.
var plainConfig = sync.OnceValues(func() (*pgconn.Config, error) {
	const service = "PGSERVICE"
	if was, set := os.LookupEnv(service); set {
		_ = os.Unsetenv(service)
		defer func() { _ = os.Setenv(service, was) }()
	}
	return pgconn.ParseConfig("host=localhost port=5432 user=x password=x dbname=x connect_timeout=0 " +
		"target_session_attrs=any sslmode=disable sslnegotiation=postgres sslcertmode=allow channel_binding=prefer " +
		"min_protocol_version=3.0 max_protocol_version=3.0 require_auth=''")
})

// conn implements sql.Conn.
type conn struct {
	raw      *pgconn.PgConn
	socket   *network.Conn
	notified bool           // a notification has come since the last Wait, perhaps during another statement
	warning  *pgconn.Notice // the warning of the last Run; nil if there was none
}

// generalWarning is the code of the warning that somebody has cancelled the wait of a commit for a standby. The
// server reports success, although only this server has the commit.
// https://www.postgresql.org/docs/current/warm-standby.html#SYNCHRONOUS-REPLICATION-HA
const generalWarning = "01000"

// commit ends every text of which the commit must be safe before anybody relies on it.
const commit = "COMMIT"

// explain returns the cause of an error. The library may say only that the connection is closed.
func (c *conn) explain(err error) error {
	if err != nil && c.socket != nil && c.socket.Fault() != nil {
		return c.socket.Fault()
	}
	return err
}

func (c *conn) Run(ctx context.Context, text string) ([]sql.Rows, error) {
	answers, err := c.run(ctx, text)
	return answers, c.explain(err)
}

func (c *conn) run(ctx context.Context, text string) (answers []sql.Rows, err error) {
	defer network.Recover(&err)
	c.warning = nil
	results := c.raw.Exec(ctx, text)
	var all sql.Collector
	for results.NextResult() {
		if err := read(results.ResultReader(), &all); err != nil {
			return nil, err // the caller closes the connection
		}
	}
	if err := results.Close(); err != nil {
		return nil, err
	}
	if c.warning != nil && strings.HasSuffix(text, commit) {
		return nil, fmt.Errorf("the server warns of its commit: %s", c.warning.Message)
	}
	return all.Answers, nil
}

func read(r *pgconn.ResultReader, all *sql.Collector) error {
	if len(r.FieldDescriptions()) > 0 {
		all.Begin()
	}
	for r.NextRow() {
		values := r.Values()
		row, err := all.Row(len(values))
		if err != nil {
			return err
		}
		for i, v := range values {
			row[i] = string(v)
		}
	}
	return nil
}

func (c *conn) Wait(ctx context.Context, _, _ string, limit time.Duration) (err error) {
	defer network.Recover(&err)
	defer func() { c.notified = false }()
	if c.notified {
		return nil
	}
	bound, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := c.raw.WaitForNotification(bound); err != nil && (bound.Err() == nil || c.raw.IsClosed()) {
		return c.explain(err)
	}
	return nil
}

// Wake implements sql.Conn. NOTIFY has woken the waiters, so Wake only finds out which of them are gone. The
// backend of a client that has died ends at its next read.
func (c *conn) Wake(ctx context.Context, numbers []string) (gone []string, err error) {
	answers, err := c.Run(ctx, "SELECT n FROM (VALUES ("+strings.Join(numbers, "),(")+")) AS waiters (n)"+
		" WHERE NOT EXISTS (SELECT FROM pg_stat_get_activity(n))")
	if err != nil {
		return nil, err
	}
	for _, rows := range answers {
		for _, f := range rows {
			gone = append(gone, f[0])
		}
	}
	return gone, nil
}

func (c *conn) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond) // for the last message
	defer cancel()
	_ = c.raw.Close(ctx)
}

// bouncer is the code of every error of PgBouncer itself. Only the text of the error tells what it means.
const bouncer = "08P01"

// These are texts in errors of the client library when it refuses to connect.
const (
	noTLS     = "server refused TLS connection"
	clearText = "authentication method requirement"
)

// recovery is the code of a server that refuses BEGIN READ WRITE because it is in recovery. It has only the
// code of all features that are not supported, and the text may be translated; but the function that checks
// the setting transaction_read_only refuses that for no other reason.
const recovery = "0A000 in recovery"

const settingCheck = "call_bool_check_hook"

func code(err error) string {
	var e *pgconn.PgError
	switch {
	case errors.As(err, &e) && e.Code == "0A000" && (e.Routine == settingCheck || strings.Contains(e.Message, "recovery")):
		return recovery
	case errors.As(err, &e) && e.Code == bouncer:
		return e.Code + " " + e.Message
	case errors.As(err, &e):
		return e.Code
	case strings.Contains(err.Error(), noTLS):
		return noTLS
	case strings.Contains(err.Error(), clearText):
		return clearText
	}
	return ""
}
