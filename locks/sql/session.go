package sql

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"golock/locks"
	"golock/locks/lease"
)

// session has at most one connection. It opens the connection when it needs one, and closes it after an
// error. One goroutine at a time uses the session; others wait.
type session struct {
	store *Store

	hooks locks.Hooks // the request's hooks; the login is the first answer

	mu     sync.Mutex
	conn   Conn
	host   int64 // the host that conn leads to, or that could not be connected to last; as Store.host
	number int64 // the number of the connection at the server; 0 if it is not known yet
	facts  facts // the answer of the server when it was last asked over this connection
}

// disconnect closes the connection until the session is used again.
func (c *session) disconnect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeConn()
}

func (c *session) closeConn() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// shape is what the rows of a statement must look like.
type shape struct {
	columns int
	least   int // the smallest number of rows
}

func (want shape) fits(rows Rows) bool {
	isOther := func(line []string) bool { return len(line) != want.columns }
	return len(rows) >= want.least && !slices.ContainsFunc(rows, isOther)
}

// ask sends statements. want has one shape for each statement that gives rows. After an error ask closes the
// connection.
func (c *session) ask(ctx context.Context, text string, want ...shape) ([]Rows, error) {
	answers, err := c.askAny(ctx, text)
	if err == nil && !slices.EqualFunc(want, answers, shape.fits) {
		c.closeConn()
		// This counts as an outage, not as a refusal: another server may answer at the moment.
		err = fmt.Errorf("the server answers something else than it was asked: %.200q", fmt.Sprint(answers))
	}
	return answers, err
}

// askAny is ask without a check of the shapes. It opens a connection if there is none.
func (c *session) askAny(ctx context.Context, text string) (answers []Rows, err error) {
	if err = c.open(ctx); err == nil {
		answers, err = c.conn.Run(ctx, text)
	}
	if err != nil {
		c.closeConn()
	}
	return answers, err
}

// guard runs f with the session locked. After an error it closes the connection.
func (c *session) guard(f func() error) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() {
		if err != nil {
			c.closeConn()
		}
	}()
	defer locks.Recover(&err)
	return f()
}

// retryCall repeats an operation until it succeeds, fails for good, or its time is over. It also succeeds if
// there is no table.
func (c *session) retryCall(ctx context.Context, do func(context.Context) error) error {
	s := c.store
	ctx, cancel := context.WithTimeout(ctx, lease.ListLimit)
	defer cancel()
	return lease.Located(s.URL(), lease.Retry(ctx, s.URL(), func() error {
		// An answer of the largest size may take seconds. A server that says nothing is asked twice.
		ctx, cancel := context.WithTimeout(ctx, lease.ListLimit/2)
		defer cancel()
		err := c.guard(func() error { return do(ctx) })
		if s.kindOf(err) == NoTable {
			return nil
		}
		return s.asRefusal(err, lease.ForGood)
	}))
}

// observe keeps what the server says of itself. If the number of the connection at the server has changed, a
// pooler or proxy shares its connections among clients: no waiter can be woken over them.
func (c *session) observe(f *facts) {
	c.store.maxConns.Store(f.maxConns)
	c.facts = *f
	if c.number == 0 {
		c.number = f.conn
	}
	if c.number != f.conn && c.store.target.waiters != 0 {
		c.store.noNotify.Store(true)
	}
}

// isDirect reports whether the session has made a step over its connection, and the connection is not a pooler's.
func (c *session) isDirect() bool {
	return c.conn != nil && c.facts.conn != 0 && c.facts.conn == c.number
}

// open connects to one of the hosts, beginning with the one that worked last.
func (c *session) open(ctx context.Context) error {
	if c.conn != nil {
		return nil
	}
	s := c.store
	hosts := s.target.hosts
	c.host = s.host.Load()
	ctx, cancel := context.WithTimeout(ctx, s.target.connectTimeout)
	defer cancel()
	host := hosts[int(c.host)%len(hosts)]
	onConnect := c.hooks.Connected
	if s.target.isOnThisMachine(host) {
		onConnect = func() {}
	}
	conn, number, err := s.dialect.Connect(ctx, s.target, host, onConnect)
	if err != nil {
		s.useNextHost(c.host)
		return err
	}
	c.conn, c.number, c.facts = conn, number, facts{}
	c.hooks.Answered()
	return nil
}
