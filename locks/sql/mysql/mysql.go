// Package mysql is the dialect of MySQL 5.7 and 8, and of MariaDB 10.5 and
// later.
//
// A waiter sleeps in the server, in a statement that a DBA recognises in the
// process list. The releaser of a slot commits first and then ends that statement.
package mysql

import (
	"context"
	dbdriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"golock/locks/lease"
	"golock/locks/network"
	"golock/locks/sql"
)

// Open parses a mysql:// or mariadb:// URL; see sql.Open.
func Open(address string) (*sql.Store, error) { return sql.Open(address, dialect()) }

// settings replace what the administrator has set for other programs, because each of these settings changes
// what golock's statements mean. A COMMIT must not end the connection (completion_type), a SELECT must
// give all rows, and the empty text is not NULL. They are sent at the beginning of a connection (conn.Run), and
// again with each transaction (Begin) and each write outside of one (Single), because a proxy may have changed
// the connection. Without time_zone the clock (Clock) goes back by an hour where the server's time zone has
// summer time and this ends. Limits that the administrator has set for statements must not end the sleep of a
// waiter; MariaDB reads the first comment, MySQL the second.
const settings = "SET SESSION autocommit=1,completion_type=0,sql_mode='STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'," +
	"sql_select_limit=18446744073709551615,sql_safe_updates=0,sql_big_selects=1,unique_checks=1," +
	"time_zone='+00:00',innodb_lock_wait_timeout=2/*M! ,max_statement_time=0*//*!50708 ,max_execution_time=0*/"

// started is an expression for the time when the server was started, in us. UUID_SHORT holds the second, rounded
// up here. (After 2^24 calls UUID_SHORT has the next second; they take longer than a second.)
const started = "(((UUID_SHORT()>>24)&4294967295)+1)*1000000"

func dialect() sql.Dialect {
	return sql.Dialect{
		Schemes: []string{"mysql", "mariadb"},
		Port:    "3306",
		Quote:   "`",

		Begin: settings + ",wait_timeout=1;" +
			"SET TRANSACTION ISOLATION LEVEL READ COMMITTED;START TRANSACTION READ WRITE",
		// Nothing follows the COMMIT: a late KILL QUERY would hit it, and the error would look as if
		// nothing had been committed. Later is empty, because only a setting of the whole server says
		// what a COMMIT waits for.
		Commit: "SET SESSION wait_timeout=60;COMMIT",

		// A table of another engine, without transactions, can be damaged by a crash.
		Single: settings + ",default_storage_engine=InnoDB;SET SESSION TRANSACTION READ WRITE;",
		Text:   "VARCHAR(%d) NOT NULL DEFAULT ''",
		Table: "CREATE TABLE %[1]s (\n%[2]s,\n  KEY queue (%[3]s)\n) " +
			"ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin",
		CreateAsSelect: true,
		// The server checks the right to make a table, and whether it replicates such a statement,
		// before it finds that %[2]s does not exist.
		TryCreate: "CREATE TABLE %[1]s AS SELECT 1 FROM %[2]s",

		NotHex: "%s REGEXP '[^0-9a-f]'",
		Clock:  "CAST(UNIX_TIMESTAMP(SYSDATE(6))*1000000 AS SIGNED)",
		Facts: "CONCAT(@@hostname,':',@@port,':',@@server_id)," + started + ",CONNECTION_ID()," +
			"CURRENT_USER(),LEAST(@@max_connections,COALESCE(NULLIF(@@max_user_connections,0),@@max_connections))",

		InUse:   "SHOW GLOBAL STATUS LIKE 'Threads_connected'",
		Release: release,
		IsServer: func(conn, start int64) string {
			return fmt.Sprintf("CONNECTION_ID()=%d AND %s=%d", conn, started, start)
		},
		Listeners: 1 << 20, // one that sleeps costs the server nothing
		Code:      code,
		Connect:   connect,
		Examine:   examine,

		Errors: meanings(),
	}
}

// meanings says what the server's errors mean.
func meanings() []sql.Meaning {
	return []sql.Meaning{
		sql.Errors(sql.AtOnce, "", interrupted, "1213", "1020"), // killed, deadlock, record has changed
		sql.Errors(sql.NoTable, "", "1146"),
		sql.Errors(sql.Exists, "", "1050", "1062"),
		sql.Errors(sql.OtherTable, "", "1054", "1136"),
		sql.Errors(sql.NoRight, "", "1142", "1143", "1370", "1786"), // the last: replication that forbids CREATE ... SELECT
		sql.Errors(sql.Refused, lease.LoginHint, "1044", "1045", "1698", "1862", "1820", "3118"),
		sql.Errors(sql.Refused, "the database must exist", "1049"),
		sql.Errors(sql.Refused, "the server wants TLS: ?tls=on, or its unix socket", "3159"),
		sql.Errors(sql.Refused, "golock needs binlog_format=ROW or MIXED", "1665"),
		sql.Errors(sql.Refused, "", "1064", "1046", "1129", "1130", "1193", "1227", "1235", "1305", "1347", "1286"),
		sql.Errors(sql.ForNewcomers, "", "1021", "1041", "1114", "1037", "1038"), // disk, memory, table full
		sql.Errors(sql.Standby, sql.ReplicaHint, "1290", "1836"),                 // read-only
		sql.Errors(sql.Passing, "", "1040", "1203", "1226", "1135"),              // connections, threads
		sql.Errors(sql.Passing, "", "1205", "1206", "1637"),                      // locks, transactions
		// It starts, stops, has no quorum (Galera, 1047), or has closed the connection.
		sql.Errors(sql.Passing, "", "1047", "1053", "1077", "1079", "1927", "3032", "3168",
			mysql.ErrInvalidConn.Error(), dbdriver.ErrBadConn.Error()),
		sql.Errors(sql.Refused, "the server does not speak TLS", mysql.ErrNoTLS.Error()),
		sql.Errors(sql.Refused, "", mysql.ErrCleartextPassword.Error(), mysql.ErrNativePassword.Error(),
			mysql.ErrOldPassword.Error(), mysql.ErrUnknownPlugin.Error(), mysql.ErrOldProtocol.Error()),
	}
}

func connect(ctx context.Context, t *sql.Target, host string, connected func()) (sql.Conn, int64, error) {
	c := mysql.NewConfig()
	c.User, c.Passwd, c.DBName = t.User, t.Password, t.Database
	c.Net, c.Addr = "tcp", host
	if t.Socket != "" {
		c.Net = "unix"
	}
	var err error
	if c.TLS, err = t.Config(host); err != nil {
		return nil, 0, err
	}
	c.MultiStatements = true
	c.CheckConnLiveness = false
	c.Logger = &mysql.NopLogger{} // without it the library would log on standard error
	conn, err := connectBy(ctx, c, t.Trips, func(ctx context.Context, transport, address string) (net.Conn, error) {
		return network.Reach(ctx, (&net.Dialer{}).DialContext, transport, address, connected)
	})
	return conn, 0, err // this driver does not tell the number
}

// dialer connects to an address.
type dialer = func(ctx context.Context, transport, address string) (net.Conn, error)

// connectBy connects with a function that dials. It sets the DialFunc of the configuration itself.
func connectBy(ctx context.Context, c *mysql.Config, trips *network.Trips, dial dialer) (_ *conn, err error) {
	conn := &conn{trips: trips}
	c.DialFunc = func(ctx context.Context, transport, address string) (net.Conn, error) {
		raw, err := dial(ctx, transport, address)
		if err != nil {
			return nil, err
		}
		conn.socket = network.Watch(raw, &packets{}, conn.trips)
		return conn.socket, nil
	}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	defer func() {
		err = conn.explain(err)
		if err != nil && conn.socket != nil { // the library does not close it if it panics
			conn.socket.Close()
		}
	}()
	defer network.Recover(&err)
	conn.raw, err = connector.Connect(ctx)
	if err == nil && c.TLS != nil {
		err = conn.watchDecrypted()
	}
	return conn, err
}

// conn implements sql.Conn.
type conn struct {
	raw    dbdriver.Conn
	socket *network.Conn
	isSet  bool // a statement with the settings was sent
	trips  *network.Trips
}

func (c *conn) Close() { _ = c.raw.Close() }

// explain gives the cause of an error. The library says "invalid connection" if it cannot read.
func (c *conn) explain(err error) error {
	if err != nil && c.socket != nil && c.socket.Fault() != nil {
		return c.socket.Fault()
	}
	return err
}

func (c *conn) Run(ctx context.Context, text string) ([]sql.Rows, error) {
	if !c.isSet && !strings.HasPrefix(text, settings) {
		text = settings + ";" + text
	}
	c.isSet = true
	answers, err := c.run(ctx, text)
	return answers, c.explain(err)
}

func (c *conn) run(ctx context.Context, text string) (answers []sql.Rows, err error) {
	defer network.Recover(&err)
	answer, err := c.raw.(dbdriver.QueryerContext).QueryContext(ctx, text, nil)
	if err != nil {
		return nil, err
	}
	rows := answer.(dbdriver.RowsNextResultSet)
	defer rows.Close()
	var all sql.Collector
	for {
		if columns := len(rows.Columns()); columns > 0 {
			if err := read(rows, columns, &all); err != nil {
				return nil, err
			}
		}
		err := rows.NextResultSet()
		if err == io.EOF { // no other statement of the text gives rows
			return all.Answers, nil
		}
		if err != nil {
			return all.Answers, err
		}
	}
}

func read(rows dbdriver.Rows, columns int, all *sql.Collector) error {
	all.Begin()
	values := make([]dbdriver.Value, columns)
	for {
		if err := rows.Next(values); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		row, err := all.Row(columns)
		if err != nil {
			return err
		}
		for i, v := range values {
			if text, ok := v.([]byte); ok {
				row[i] = string(text)
			} else if v != nil {
				row[i] = fmt.Sprint(v)
			}
		}
	}
}

// Wait implements sql.Conn. It uses SELECT ... INTO, which locks nothing; DO or SET with the same subquery
// would lock the row. Nothing follows the sleep: the server would run it even for a client that is gone.
// A KILL between the two statements is lost: the waker repeats it (session.watch).
func (c *conn) Wait(ctx context.Context, id, offered string, limit time.Duration) error {
	_, err := c.Run(ctx, fmt.Sprintf("%s INTO @golock;DO /* golock:wait:%s */ SLEEP(IF(@golock,0,%d.%06d))",
		offered, id, limit/time.Second, limit%time.Second/time.Microsecond))
	if code(err) == interrupted {
		return nil
	}
	return err
}

// Wake implements sql.Conn. It does not check what a connection runs: package sql has compared server and
// account, and a running server uses no number twice. If the KILL hits another statement, the waiter repeats that.
func (c *conn) Wake(ctx context.Context, numbers []string) (gone []string, err error) {
	for _, n := range numbers {
		_, err := c.Run(ctx, "KILL QUERY "+n)
		switch {
		case code(err) == noSuchThread:
			gone = append(gone, n)
		case err != nil:
			return nil, err
		}
	}
	return gone, nil
}

// The numbers of the server's errors on which golock acts.
const (
	interrupted  = "1317"
	noSuchThread = "1094"
)

// code returns the number of a server's error, or the text of another error.
func code(err error) string {
	var said *mysql.MySQLError
	switch {
	case errors.As(err, &said):
		return strconv.Itoa(int(said.Number))
	case err != nil:
		return err.Error()
	}
	return ""
}
