package sql

import (
	"context"
	"time"

	"golock/locks/network"
)

// Dialect is what one family of servers does in its own way. Everything else, and all decisions, are the
// same for all servers.
//
// Statements consist of numbers and of texts of the letters A-Z a-z 0-9 - _ . ~ % & = +,
// so none needs quoting: other letters are escaped as in a URL's query.
type Dialect struct {
	Schemes []string // the schemes of its URLs; messages show the first one
	Port    string   // the port of a URL that has none
	Quote   string   // stands before and after an identifier

	// Begin opens a transaction in which each statement reads what others have committed
	// before it. The server ends the transaction if it does not get a lock within 2 s, or if
	// the client says nothing for 1 s: the name's row is locked for a few round trips only, and
	// a release, which may take 2 s, must succeed after a client that stalls.
	Begin string

	// Commit ends the transaction; the connection may then be silent for longer. Later comes before Commit: it
	// lets the server answer before the transaction is on the disk. Later is empty if the server has no such
	// setting for one transaction.
	Commit, Later string

	// Single comes before a text that writes outside a step, without Begin. It permits writing,
	// even where transactions are read-only by default. A crash may undo what the text has
	// written, until a later Commit.
	Single string

	// Table makes the table %[1]s with the columns %[2]s, and its index of the columns %[3]s. Text
	// is the type of a column of letters, %d its size.
	Table, Text string

	// CreateAsSelect says that only one statement makes the table and its first row so that
	// nobody sees one without the other. Otherwise a transaction does.
	CreateAsSelect bool

	// TryCreate tries whether the user may make the table %[1]s, and makes none. %[2]s is the
	// name of a table that does not exist.
	TryCreate string

	// Clock is the server's clock as an expression: an integer, in us since 1970, read
	// when its statement runs.
	Clock string

	// NotHex is the condition that a text %s has other characters than the digits 0-9 and a-f.
	NotHex string

	// Facts is five expressions: which server this is, when it was started (us since
	// 1970), the number of the connection, its account (which decides what other
	// connections it may wake), and how many connections the server allows.
	Facts string

	// InUse is a statement that gives a row of two columns. The first is the number of connections that the
	// user may have; any other text says that the user has no such limit. The second is the number of
	// connections that the server has.
	InUse string

	// Release writes the text that gives up an exclusive slot in one round trip. IsServer returns the condition
	// that the connection has the number conn, at a server that was started at that time (see Facts).
	Release  func(r Release) string
	IsServer func(conn, start int64) string

	// Listeners is how many waiters of a name can be woken at most; the others poll.
	Listeners int

	// Notifies says that the server has LISTEN, for the transaction that queues an entry, and
	// NOTIFY. Otherwise only Conn.Wake wakes.
	Notifies bool

	// Errors are the meanings of the server's errors. The first one that fits counts; an error that no
	// meaning fits is Transient.
	Errors []Meaning

	// Code returns the server's code of an error, or a text that stands for an error of the client library.
	Code func(err error) string

	// Connect opens a connection to one of the target's hosts ("HOST:PORT", or the socket).
	// number is the number of the connection, as the server told it at the login; 0 if it did
	// not. Behind a pooler or proxy Facts gives another number. Connect calls connected when the
	// server can be reached, before the login (network.Reach).
	Connect func(ctx context.Context, t *Target, host string, connected func()) (c Conn, number int64, err error)

	// Examine looks at the settings of the server that a promise depends on.
	Examine func(ctx context.Context, x *Examination)
}

// Conn is one connection. It is used by one goroutine at a time. After an error of
// any method it must be closed.
type Conn interface {
	// Run sends one or more statements and returns the rows of those that have any. It
	// ends when ctx does.
	Run(ctx context.Context, text string) ([]Rows, error)

	// Wait sleeps until the entry is woken, for the given time at most, or until ctx
	// ends. offered is a statement that gives 1 if there is nothing to wait for, else 0.
	Wait(ctx context.Context, id, offered string, limit time.Duration) error

	// Wake wakes the waiters that Wait on the connections with these numbers, unless NOTIFY has woken them.
	// It is called after the commit of what they are to see. It returns the numbers of the connections of
	// which the server knows that they have ended; the server may notice late that a client has died.
	Wake(ctx context.Context, numbers []string) (gone []string, err error)

	// Release sends the text of a Release. It is no error that the connection to which the slot was offered
	// has ended.
	Release(ctx context.Context, text string) (answers []Rows, err error)

	// Close ends the connection without waiting for the server.
	Close()
}

// Rows are the rows that one statement gave. NULL is the empty text.
type Rows [][]string

// maxFields is the largest number of fields and rows of an answer. 10,000 entries have a third of that.
const maxFields = 1 << 19

// Collector collects the answer to Run. It limits the number of fields and rows, because each of them takes
// memory even if it is empty.
type Collector struct {
	Answers []Rows
	size    int // the number of fields and rows so far
}

// Begin begins the rows of another statement.
func (c *Collector) Begin() { c.Answers = append(c.Answers, Rows{}) }

// Row makes room for a row of the last statement.
func (c *Collector) Row(fields int) ([]string, error) {
	c.size += fields + 1
	if c.size > maxFields {
		return nil, network.TooLong("more than %d fields and rows", maxFields)
	}
	row := make([]string, fields)
	last := &c.Answers[len(c.Answers)-1]
	*last = append(*last, row)
	return row, nil
}

// ReplicaHint is the hint about a server that refuses to write.
const ReplicaHint = "if it is a replica, name the primary: only that grants slots"

// ErrorKind says what an error of the server means for the next attempt.
type ErrorKind int

// The kinds of errors.
const (
	Transient    ErrorKind = iota // another attempt may succeed
	AtOnce                        // another attempt may succeed without a pause
	Refused                       // another attempt fails too
	Passing                       // the server answers, and another attempt may succeed after a pause
	ForNewcomers                  // another attempt may succeed, but not soon: only holders and waiters try again
	Standby                       // the server may not write: another one may be the primary
	NoTable                       // the table does not exist
	OtherTable                    // the table has other columns
	Exists                        // what the statement was to make exists already
	NoRight                       // the user may not do this
)

// Meaning gives a kind, and a hint for the user, to the errors whose codes begin with one of some texts.
type Meaning struct {
	kind  ErrorKind
	hint  string
	codes []string
}

// Errors makes a Meaning. Each of codes is the beginning of a code (Dialect.Code). The hint may be empty.
func Errors(kind ErrorKind, hint string, codes ...string) Meaning { return Meaning{kind, hint, codes} }
