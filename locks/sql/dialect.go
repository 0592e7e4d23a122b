package sql

import (
	"context"
	"time"

	"golock/locks"
)

// Dialect is what one family of servers does in its own way. The rest, and all
// decisions, are the same for all.
//
// Statements are made of nothing but numbers and of texts of the letters
// A-Z a-z 0-9 - _ . ~ % & = , so none needs quoting: what could hold others is
// written as in a URL's query.
type Dialect interface {
	// Schemes are those of its URLs; the first is the one shown.
	Schemes() []string

	// Port is the one that a URL may leave out.
	Port() string

	// Connect opens a connection to one of the target's hosts ("HOST:PORT", or
	// the socket). An error is one of the connection or of the server; Judge
	// knows which.
	Connect(ctx context.Context, t *Target, host string) (Conn, error)

	// Quote writes an identifier, which may have one dot.
	Quote(name string) string

	// Begin is what opens a transaction that reads what others have committed
	// when each of its statements begins. The server ends it when a lock is not
	// to be had for the given time, or its client says nothing for longer.
	Begin(lockWait time.Duration) string

	// Commit ends it. The connection may then be silent for longer. What is not
	// lasting need not be on the disk when the server says that it is done, where
	// that can be said of one transaction.
	Commit(lasting bool) string

	// Clock is the server's clock as an expression, in us since 1970, as a whole
	// number. It must be read when its statement runs.
	Clock() string

	// Facts is six expressions: the server's clock in seconds since 1970 with
	// six digits after the point, which server this is, when it was started
	// (likewise in seconds), the number of the connection, and whose it is: what
	// decides which other connections it may see, and how many there may be. The clock
	// must be read when the statement runs.
	Facts() string

	// Listeners is how many waiters of a name are to be woken at most; the others look
	// now and then.
	Listeners() int

	// Listen is a statement, run in the transaction that queues an entry, after
	// which the connection hears what Notify, run in another transaction, says
	// to the entry. "" if the dialect wakes by Conn.Wake.
	Listen(id string) string
	Notify(id string) string

	// Create is the text that makes the table and its first row, so that nobody
	// sees one without the other. values are those of the first row. byHand is
	// the same for an administrator to run, in the plainest form.
	Create(table, values string) string
	CreateByHand(table, values string) string

	// CreateMark is the text that makes a table with one column, if it is not
	// there.
	CreateMark(table string) string

	// Judge says what an error means, be it the connection's (Transient, mostly) or
	// one that the server has said. hint is what the user can do, if there is
	// something.
	Judge(err error) (v Verdict, said bool, hint string)

	// Examine looks at what in the server's settings a promise hangs on.
	Examine(ctx context.Context, ask Ask, s Surroundings, found *locks.Findings)

	// MayCreate reports whether the user may make a table that does not exist,
	// without making it. The name is as in the URL.
	MayCreate(ctx context.Context, ask Ask, table string) (bool, error)
}

// Conn is one connection. It is used by one goroutine at a time. An error of
// any method leaves it in an unknown state: it must be closed.
type Conn interface {
	// Run sends a text of one or more statements and returns the rows of those
	// that have any. It ends when ctx does.
	Run(ctx context.Context, text string) ([]Rows, error)

	// Owns reports whether a number that Facts gave over this connection is that
	// of its own at the server, now as before. It is not if a pooler or a proxy
	// in between shares connections out; then nobody can be woken over it.
	Owns(number int64) bool

	// Wait sleeps until the entry is woken, for the given time at most, or until ctx
	// ends. offered is a statement that gives 1 if there is nothing to wait for, else 0.
	// What ended the sleep without an error has left the connection as good as before.
	Wait(ctx context.Context, id, offered string, limit time.Duration) error

	// Wake wakes those whose Wait runs, unless Notify has done so, after what they are
	// to see has been committed. It gives those whose connections the server has seen
	// end; it does not notice at once that a client has died.
	Wake(ctx context.Context, sleepers []Sleeper) (gone []Sleeper, err error)

	// Close ends the connection without waiting for the server.
	Close()
}

// Rows is what one statement gave. NULL is "".
type Rows [][]string

// Sleeper is a waiter that can be woken, and its connection.
type Sleeper struct {
	ID   string
	Conn int64
}

// ReplicaHint is for a server that refuses to write.
const ReplicaHint = "if it is a replica, name the primary: only that grants slots"

// Verdict is what an error of the server means.
type Verdict int

// The verdicts.
const (
	Transient  Verdict = iota // it may go away: another attempt is in order
	AtOnce                    // likewise, and there is nothing to wait for
	Refused                   // it does not go away by trying again
	Temporary                 // likewise, but may for who holds or waits already
	NoTable                   // the table does not exist
	OtherTable                // it has other columns
	Exists                    // what was to be made is there already
	NoRight                   // the user may not do this
)
