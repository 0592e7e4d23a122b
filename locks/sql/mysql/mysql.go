// Package mysql is the dialect of MySQL 5.7 and 8, and of MariaDB 10.5 and
// later.
//
// A waiter sleeps in the server, in a statement that a DBA recognises in the
// process list. Who releases a slot commits first and then ends that statement.
package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	driverpkg "github.com/go-sql-driver/mysql"

	"golock/locks/lease"
	"golock/locks/network"
	"golock/locks/sql"
)

// Open understands mysql:// and mariadb:// URLs; see sql.Open.
func Open(address string) (*sql.Store, error) { return sql.Open(address, dialect{}) }

type dialect struct{}

// Schemes implements sql.Dialect.
func (dialect) Schemes() []string { return []string{"mysql", "mariadb"} }

// Port implements sql.Dialect.
func (dialect) Port() string { return "3306" }

// Quote implements sql.Dialect.
func (dialect) Quote(name string) string {
	return "`" + strings.ReplaceAll(name, ".", "`.`") + "`"
}

// session is what every connection is told before its first statement. The
// server closes one that says nothing for a second, in a transaction above all:
// its locks would hold up everybody. Limits that the administrator has set
// for statements must not end the sleep of a waiter; MariaDB reads the first
// comment, MySQL the second.
const session = "SET SESSION autocommit=1,time_zone='+00:00',wait_timeout=1,innodb_lock_wait_timeout=%d" +
	"/*M! ,max_statement_time=0*//*!50708 ,max_execution_time=0*/;"

// Begin implements sql.Dialect.
func (dialect) Begin(lockWait time.Duration) string {
	return fmt.Sprintf(session, int(lockWait.Seconds())) + "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;START TRANSACTION READ WRITE"
}

// Commit implements sql.Dialect. Whether the disk is waited for is a setting of
// the whole server. Nothing follows the COMMIT: a KILL QUERY that came late would
// hit that, and look as if nothing had been done.
func (dialect) Commit(bool) string { return "SET SESSION wait_timeout=60;COMMIT" }

// Clock implements sql.Dialect.
func (dialect) Clock() string { return "CAST(UNIX_TIMESTAMP(SYSDATE(6))*1000000 AS SIGNED)" }

// Facts implements sql.Dialect. UUID_SHORT holds the second in which the server
// was started; that counts as over. (It moves on by one when the function has
// been called 2^24 times: still before anything that happens then.)
func (dialect) Facts() string {
	return "UNIX_TIMESTAMP(SYSDATE(6)),CONCAT(@@hostname,':',@@port,':',@@server_id),((UUID_SHORT()>>24)&4294967295)+1,CONNECTION_ID(),CURRENT_USER(),LEAST(@@max_connections,COALESCE(NULLIF(@@max_user_connections,0),@@max_connections))"
}

// Listeners implements sql.Dialect: one that sleeps costs the server nothing.
func (dialect) Listeners() int { return 1 << 20 }

// Listen implements sql.Dialect.
func (dialect) Listen(string) string { return "" }

// Notify implements sql.Dialect.
func (dialect) Notify(string) string { return "" }

// readWrite is for a statement that is a transaction of its own; those of the
// session may only read.
const readWrite = "SET SESSION TRANSACTION READ WRITE;"

// Create implements sql.Dialect. The table and its row come into being as one,
// because nobody else can open the table before.
func (dialect) Create(table, values string) string {
	var row []string
	names := strings.Split(sql.TableNames, ",")
	for i, value := range strings.Split(values, ",") {
		row = append(row, value+" AS "+names[i])
	}
	return readWrite + create(table) + " AS SELECT " + strings.Join(row, ",")
}

// CreateByHand implements sql.Dialect.
func (dialect) CreateByHand(table, values string) string {
	return create(table) + ";\nINSERT INTO " + table + " (" + sql.TableNames + ") VALUES (" + values + ");"
}

func create(table string) string {
	text := func(size int) string { return fmt.Sprintf("VARCHAR(%d) NOT NULL DEFAULT ''", size) }
	return "CREATE TABLE " + table + " (\n" + sql.ColumnTypes(text) + ",\n  KEY queue (" + sql.QueueIndex + ")\n)" +
		" ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin"
}

// CreateMark implements sql.Dialect.
func (dialect) CreateMark(table string) string {
	return readWrite + "CREATE TABLE IF NOT EXISTS " + table + " (made BIGINT PRIMARY KEY) ENGINE=InnoDB"
}

// Connect implements sql.Dialect.
func (dialect) Connect(ctx context.Context, t *sql.Target, host string) (sql.Conn, error) {
	c := driverpkg.NewConfig()
	c.User, c.Passwd, c.DBName = t.User, t.Password, t.Database
	c.Net, c.Addr = "tcp", host
	if t.Unix() {
		c.Net = "unix"
	}
	var err error
	if c.TLS, err = t.Config(host); err != nil {
		return nil, err
	}
	c.MultiStatements = true
	c.CheckConnLiveness = false
	c.Logger = silent{}
	connector, err := driverpkg.NewConnector(c)
	if err != nil {
		return nil, err
	}
	raw, err := connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{raw: raw, run: raw.(driver.QueryerContext)}, nil
}

// silent is for the driver, which logs on standard error.
type silent struct{}

func (silent) Print(...any) {}

type conn struct {
	raw    driver.Conn
	run    driver.QueryerContext
	number int64 // at the server, once it is known
}

// Run implements sql.Conn.
func (c *conn) Run(ctx context.Context, text string) ([]sql.Rows, error) {
	rows, err := c.run.QueryContext(ctx, text, nil)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []sql.Rows
	for {
		if columns := len(rows.Columns()); columns > 0 {
			set, err := read(rows, columns)
			if err != nil {
				return nil, err
			}
			all = append(all, set)
		}
		more, ok := rows.(driver.RowsNextResultSet)
		if !ok || !more.HasNextResultSet() {
			return all, nil
		}
		if err := more.NextResultSet(); err == io.EOF {
			return all, nil
		} else if err != nil {
			return nil, err
		}
	}
}

func read(rows driver.Rows, columns int) (sql.Rows, error) {
	set := sql.Rows{}
	values := make([]driver.Value, columns)
	for {
		if err := rows.Next(values); err == io.EOF {
			return set, nil
		} else if err != nil {
			return nil, err
		}
		line := make([]string, columns)
		for i, v := range values {
			switch v := v.(type) {
			case []byte:
				line[i] = string(v)
			case nil:
			case int64:
				line[i] = strconv.FormatInt(v, 10)
			default:
				line[i] = fmt.Sprint(v)
			}
		}
		set = append(set, line)
	}
}

// Owns implements sql.Conn.
func (c *conn) Owns(number int64) bool {
	if c.number == 0 {
		c.number = number
	}
	return c.number == number
}

// Wait implements sql.Conn. SELECT ... INTO locks nothing; DO or SET with the same
// subquery would lock the row. The packet ends with the sleep: the server would also run
// what followed for a client that is gone.
func (c *conn) Wait(ctx context.Context, id, offered string, limit time.Duration) error {
	_, err := c.Run(ctx, fmt.Sprintf("%s INTO @golock;DO /* golock:wait:%s */ SLEEP(IF(@golock,0,%d.%06d))",
		offered, id, limit/time.Second, limit%time.Second/time.Microsecond))
	if number(err) == interrupted {
		return nil
	}
	return err
}

// Wake implements sql.Conn. What a connection runs is not looked at: sql has compared
// server and account, and a server uses no number twice while it runs. A wake-up that
// finds the waiter in another statement has that made again.
func (c *conn) Wake(ctx context.Context, sleepers []sql.Sleeper) (gone []sql.Sleeper, err error) {
	for _, w := range sleepers {
		switch _, err := c.Run(ctx, "KILL QUERY "+strconv.FormatInt(w.Conn, 10)); {
		case number(err) == noSuchThread:
			gone = append(gone, w)
		case err != nil:
			return nil, err
		}
	}
	return gone, nil
}

// Close implements sql.Conn.
func (c *conn) Close() { _ = c.raw.Close() }

// The server's error numbers that mean something to us.
const (
	interrupted  = 1317
	noSuchThread = 1094
)

func number(err error) uint16 {
	var said *driverpkg.MySQLError
	if errors.As(err, &said) {
		return said.Number
	}
	return 0
}

// Judge implements sql.Dialect.
func (dialect) Judge(err error) (v sql.Verdict, said bool, hint string) {
	switch number(err) {
	case 0:
		return judgeConnection(err)
	case interrupted, 1213, 1020: // killed, deadlock, record has changed
		return sql.AtOnce, true, ""
	case 1146:
		return sql.NoTable, true, ""
	case 1050, 1062:
		return sql.Exists, true, ""
	case 1054, 1136:
		return sql.OtherTable, true, ""
	case 1142, 1143, 1370, 1786: // the last: replication that forbids CREATE ... SELECT
		return sql.NoRight, true, ""
	case 1044, 1045, 1698, 1862, 1820, 3118:
		return sql.Refused, true, lease.LoginHint
	case 1049:
		return sql.Refused, true, "the database must exist"
	case 1129, 1130:
		return sql.Refused, true, ""
	case 3159:
		return sql.Refused, true, "the server wants TLS: ?tls=on, or its unix socket"
	case 4031: // it has closed a connection that nobody used
		return sql.Transient, false, ""
	case 1665:
		return sql.Refused, true, "golock needs binlog_format=ROW or MIXED"
	case 1021, 1041, 1114, 1037, 1038: // disk, memory, table full
		return sql.Temporary, true, ""
	case 1290, 1836: // read-only
		return sql.Temporary, true, sql.ReplicaHint
	case 1064, 1046, 1193, 1227, 1235, 1305, 1347, 1286:
		return sql.Refused, true, ""
	}
	return sql.Transient, true, ""
}

func judgeConnection(err error) (sql.Verdict, bool, string) {
	var opened *net.OpError
	switch {
	case errors.Is(err, driverpkg.ErrNoTLS):
		return sql.Refused, true, "the server does not speak TLS"
	case errors.Is(err, driverpkg.ErrCleartextPassword), errors.Is(err, driverpkg.ErrNativePassword), errors.Is(err, driverpkg.ErrOldPassword),
		errors.Is(err, driverpkg.ErrUnknownPlugin), errors.Is(err, driverpkg.ErrOldProtocol):
		return sql.Refused, true, ""
	case errors.As(err, &opened):
		return sql.Transient, false, ""
	}
	if hint, bad := network.TLSHint(err); bad {
		return sql.Refused, true, hint
	}
	return sql.Transient, false, ""
}
