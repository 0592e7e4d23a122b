// Package postgres is the dialect of PostgreSQL 12 and later.
//
// A waiter listens on a channel of its own; who gives a slot back notifies it
// in the same transaction. Behind a pooler that gives every transaction another
// connection no notification would come; the server's number of the connection
// shows it.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"golock/locks/lease"
	"golock/locks/network"
	"golock/locks/sql"
)

// Open understands postgres:// and postgresql:// URLs; see sql.Open.
func Open(address string) (*sql.Store, error) { return sql.Open(address, dialect{}) }

type dialect struct{}

// Schemes implements sql.Dialect.
func (dialect) Schemes() []string { return []string{"postgres", "postgresql"} }

// Port implements sql.Dialect.
func (dialect) Port() string { return "5432" }

// Quote implements sql.Dialect.
func (dialect) Quote(name string) string {
	return `"` + strings.ReplaceAll(name, ".", `"."`) + `"`
}

// Begin implements sql.Dialect. Limits that the administrator has set for
// statements give way to ours.
func (dialect) Begin(lockWait time.Duration) string {
	ms := lockWait.Milliseconds()
	return fmt.Sprintf("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;SET LOCAL synchronous_commit=on;SET LOCAL lock_timeout=%d;"+
		"SET LOCAL statement_timeout=%d;SET LOCAL idle_in_transaction_session_timeout=%d", ms, 2*ms, ms/2)
}

// Commit implements sql.Dialect.
func (dialect) Commit(lasting bool) string {
	if lasting {
		return "COMMIT"
	}
	return "SET LOCAL synchronous_commit=off;COMMIT"
}

// Clock implements sql.Dialect. Only clock_timestamp is read when its statement
// runs.
func (dialect) Clock() string { return "(extract(epoch FROM clock_timestamp())*1000000)::bigint" }

// Facts implements sql.Dialect. No two servers start in the same microsecond.
func (dialect) Facts() string {
	return "extract(epoch FROM clock_timestamp()),extract(epoch FROM pg_postmaster_start_time())," +
		"extract(epoch FROM pg_postmaster_start_time()),pg_backend_pid(),current_user,current_setting('max_connections')"
}

func channel(id string) string { return "golock_" + id }

// Listeners implements sql.Dialect: a notification wakes all of a database's.
func (dialect) Listeners() int { return 32 }

// Listen implements sql.Dialect. It takes effect when the transaction commits.
func (dialect) Listen(id string) string { return "LISTEN " + channel(id) }

// Notify implements sql.Dialect.
func (dialect) Notify(id string) string { return "NOTIFY " + channel(id) }

// inOne makes one transaction of a text. Those of the session may only read.
func inOne(text string) string { return "START TRANSACTION READ WRITE;" + text + ";COMMIT" }

// Create implements sql.Dialect.
func (dialect) Create(table, values string) string { return inOne(create(table, values)) }

func create(table, values string) string {
	text := func(size int) string { return fmt.Sprintf(`VARCHAR(%d) COLLATE "C" NOT NULL DEFAULT ''`, size) }
	index := strings.Trim(table[strings.LastIndexByte(table, '.')+1:], `"`) + "_queue"
	return "CREATE TABLE " + table + " (\n" + sql.ColumnTypes(text) + "\n) WITH (fillfactor=60);\n" +
		`CREATE INDEX "` + index + `" ON ` + table + " (" + sql.QueueIndex + ");\n" +
		"INSERT INTO " + table + " (" + sql.TableNames + ") VALUES (" + values + ")"
}

// CreateByHand implements sql.Dialect.
func (dialect) CreateByHand(table, values string) string { return create(table, values) + ";" }

// CreateMark implements sql.Dialect.
func (dialect) CreateMark(table string) string {
	return inOne("CREATE TABLE IF NOT EXISTS " + table + " (made BIGINT PRIMARY KEY)")
}

// Connect implements sql.Dialect. Nothing but the URL decides: the variables
// that other programs read (PGHOST, PGOPTIONS and so on) would make a cron job
// and a login shell go to different places.
func (dialect) Connect(ctx context.Context, t *sql.Target, host string) (sql.Conn, error) {
	name, port := host, t.Port()
	if !t.Unix() {
		name, port, _ = net.SplitHostPort(host)
	} else if base := path.Base(host); strings.HasPrefix(base, ".s.PGSQL.") {
		name, port = path.Dir(host), strings.TrimPrefix(base, ".s.PGSQL.")
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("port %q: want a number", port)
	}
	c, err := plainConfig()
	if err != nil {
		return nil, err
	}
	c.Host, c.Port, c.User, c.Password, c.Database = name, uint16(number), t.User, t.Password, t.Database
	c.Fallbacks, c.RuntimeParams, c.ValidateConnect, c.AfterConnect = nil, map[string]string{}, nil, nil
	if t.Application != "" {
		c.RuntimeParams["application_name"] = t.Application
	}
	if c.TLSConfig, err = t.Config(host); err != nil {
		return nil, err
	}
	if c.TLSConfig == nil && !t.Unix() && !isLoopback(name) {
		c.RequireAuth = "!password" // the server may ask for it in the clear, and so may who sits in between
	}
	conn := &conn{}
	c.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { conn.notified = true }
	if conn.raw, err = pgconn.ConnectConfig(ctx, c); err != nil {
		return nil, err
	}
	return conn, nil
}

// environment is the process's own, and there is only one.
var environment sync.Mutex

// plainConfig is a configuration in which no variable has a part: the library
// looks at those that psql knows, and takes what is not said here from them. One
// cannot be overridden: a name of PGSERVICE is looked up in a file.
func plainConfig() (*pgconn.Config, error) {
	const service = "PGSERVICE"
	environment.Lock()
	defer environment.Unlock()
	if was, set := os.LookupEnv(service); set {
		_ = os.Unsetenv(service)
		defer func() { _ = os.Setenv(service, was) }()
	}
	return pgconn.ParseConfig("host=localhost port=5432 user=x password=x dbname=x sslmode=disable sslnegotiation=postgres sslcertmode=allow " +
		"connect_timeout=0 target_session_attrs=any min_protocol_version=3.0 max_protocol_version=3.0 channel_binding=prefer require_auth=''")
}

// isLoopback reports whether nothing leaves this machine on the way to a host.
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && ip.IsLoopback())
}

type conn struct {
	raw      *pgconn.PgConn
	notified bool // since the last Wait: the statements that come between must not swallow it
}

// Run implements sql.Conn.
func (c *conn) Run(ctx context.Context, text string) ([]sql.Rows, error) {
	results := c.raw.Exec(ctx, text)
	var all []sql.Rows
	for results.NextResult() {
		r := results.ResultReader()
		set := sql.Rows{}
		for r.NextRow() {
			line := make([]string, len(r.Values()))
			for i, v := range r.Values() {
				line[i] = string(v)
			}
			set = append(set, line)
		}
		if len(r.FieldDescriptions()) > 0 {
			all = append(all, set)
		}
	}
	if err := results.Close(); err != nil {
		return nil, err
	}
	return all, nil
}

// Owns implements sql.Conn. A pooler has told us a number of its own.
func (c *conn) Owns(number int64) bool { return int64(c.raw.PID()) == number }

// Wait implements sql.Conn.
func (c *conn) Wait(ctx context.Context, _, _ string, limit time.Duration) error {
	defer func() { c.notified = false }()
	if c.notified {
		return nil
	}
	bound, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := c.raw.WaitForNotification(bound); err != nil && (bound.Err() == nil || c.raw.IsClosed()) {
		return err
	}
	return nil
}

// Wake implements sql.Conn. Notify has woken them. The backend of a client that has died
// ends when it comes to read.
func (c *conn) Wake(ctx context.Context, sleepers []sql.Sleeper) (gone []sql.Sleeper, err error) {
	fields := make([]string, len(sleepers))
	for i, w := range sleepers {
		fields[i] = fmt.Sprintf("(SELECT count(*) FROM pg_stat_get_activity(%d))", w.Conn)
	}
	rows, err := c.Run(ctx, "SELECT "+strings.Join(fields, ","))
	if err != nil {
		return nil, err
	}
	for i, w := range sleepers {
		if rows[0][0][i] == "0" {
			gone = append(gone, w)
		}
	}
	return gone, nil
}

// closeLimit bounds how long it takes to say good-bye.
const closeLimit = 50 * time.Millisecond

// Close implements sql.Conn.
func (c *conn) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	_ = c.raw.Close(ctx)
}

// Judge implements sql.Dialect. The codes are those of PostgreSQL's manual,
// appendix A.
func (dialect) Judge(err error) (v sql.Verdict, said bool, hint string) {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		if hint, bad := network.TLSHint(err); bad {
			return sql.Refused, true, hint
		}
		if strings.Contains(err.Error(), "server refused TLS connection") {
			return sql.Refused, true, "the server does not speak TLS"
		}
		if strings.Contains(err.Error(), "authentication method requirement") {
			return sql.Refused, true, "it wants the password in the clear, which is not sent over an open network: ?tls=on"
		}
		return sql.Transient, false, ""
	}
	switch e.Code {
	case "40001", "40P01":
		return sql.AtOnce, true, ""
	case "42P01":
		return sql.NoTable, true, ""
	case "42P07", "23505", "42710":
		return sql.Exists, true, ""
	case "42703":
		return sql.OtherTable, true, ""
	case "42501":
		return sql.NoRight, true, ""
	case "28000", "28P01":
		return sql.Refused, true, lease.LoginHint
	case "3D000":
		return sql.Refused, true, "the database must exist"
	case "3F000":
		return sql.Refused, true, "the schema must exist"
	case "0A000", "25006": // in recovery a transaction cannot be READ WRITE
		return sql.Temporary, true, sql.ReplicaHint
	}
	switch e.Code[:2] {
	case "53": // short of disk, memory or connections
		if e.Code == "53300" {
			return sql.Transient, true, ""
		}
		return sql.Temporary, true, ""
	case "22", "42":
		return sql.Refused, true, ""
	}
	return sql.Transient, e.Code[:2] != "57" && e.Code[:2] != "08" && e.Code != "25P03", ""
}
