package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golock/locks/lease"
	"golock/locks/network"
)

// client keeps one connection to one member of a cluster. If that fails, the next attempt uses the next
// member.
type client struct {
	target  *target
	dialing chan struct{} // a semaphore: one goroutine at a time connects

	mu     sync.Mutex // guards the fields below
	link   *link      // nil if there is no connection
	next   int        // the index of the host that the next attempt uses, modulo the number of hosts
	closed bool
}

// link is a connection to a member, where the user is logged in.
type link struct {
	*conn
	client *client
	host   string // HOST:PORT of the member
	token  string // proves the login; "" without a user
}

// dialLimit limits the time of connecting to one member, because another one may answer.
const dialLimit = time.Second

func newClient(t *target) *client { return &client{target: t, dialing: make(chan struct{}, 1)} }

var errClosed = errors.New("the store is closed")

// current returns the connection. If there is none it connects, and calls connected as soon as a member has
// sent something: the kernel takes connections for a member that is stopped, too.
func (c *client) current(ctx context.Context, connected func()) (*link, error) {
	select {
	case c.dialing <- struct{}{}:
		defer func() { <-c.dialing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c.mu.Lock()
	l, closed := c.link, c.closed
	c.mu.Unlock()
	switch {
	case closed:
		return nil, errClosed
	case l != nil && l.failure() == nil:
		return l, nil
	case l != nil:
		c.drop(l)
	}
	l, err := c.connect(ctx, connected)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil:
		c.next++
	case c.closed:
		l.fail(errClosed)
		return nil, errClosed
	default:
		c.link = l
	}
	return l, err
}

// connect connects to the next member, and logs in.
func (c *client) connect(ctx context.Context, connected func()) (*link, error) {
	c.mu.Lock()
	host := c.target.hosts[c.next%len(c.target.hosts)]
	c.mu.Unlock()
	config, err := c.target.Config(host)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 3 * time.Second, Interval: time.Second, Count: 3,
	}}
	limited, cancel := context.WithTimeout(ctx, c.target.dialTimeout)
	defer cancel()
	raw, err := dialer.DialContext(limited, "tcp", host)
	if err != nil {
		return nil, err
	}
	if connected != nil {
		raw = &hearing{Conn: raw, heard: sync.OnceFunc(connected)}
	}
	if config != nil {
		config.NextProtos = []string{"h2"}
		secure := tls.Client(raw, config)
		if err := handshake(ctx, secure); err != nil {
			_ = raw.Close()
			if errors.Is(err, io.EOF) {
				err = fmt.Errorf("%w: %w", errNoTLS, err)
			}
			return nil, err
		}
		raw = secure
	}
	patience := silence
	if len(c.target.hosts) == 1 {
		patience = lease.FirstAnswer
	}
	l := &link{conn: newConn(raw, patience), client: c, host: host}
	if err := l.login(ctx); err != nil {
		l.fail(err)
		return nil, err
	}
	return l, nil
}

// hearing is a connection that calls a function when the first bytes have come.
type hearing struct {
	net.Conn
	heard func()
}

func (c *hearing) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.heard()
	}
	return n, err
}

// handshakeLimit limits the time of the TLS handshake. It is long, because a crowd of clients makes a server
// slow at handshakes.
const handshakeLimit = lease.ShortAttempt

func handshake(ctx context.Context, secure *tls.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, handshakeLimit)
	defer cancel()
	return secure.HandshakeContext(ctx)
}

// login gets the token of the user. A cluster that has authentication switched off needs none.
func (l *link) login(ctx context.Context) error {
	t := l.client.target
	if t.user == "" {
		return nil
	}
	answer, err := l.unary(ctx, "Auth/Authenticate", message(nil).text(1, t.user).text(2, t.password))
	if err != nil {
		if isStatus(err, noAuth) {
			return nil
		}
		return err
	}
	return read(answer, func(field fieldNumber, _ int64, b []byte) error {
		if field == 2 {
			l.token = string(b)
		}
		return nil
	})
}

// isConnected reports whether there is a connection to a member.
func (c *client) isConnected() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.link != nil
}

// drop closes a connection. The next attempt uses another member.
func (c *client) drop(l *link) {
	c.mu.Lock()
	if c.link == l {
		c.link = nil
		c.next++
	}
	c.mu.Unlock()
	l.fail(errSilent)
}

// close closes the connection.
func (c *client) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.link != nil {
		c.link.fail(errClosed)
	}
}

// call makes one call. into reads the answer. If the member does not answer in time, has no leader, or sends a
// damaged answer, call drops the connection, so that the next attempt uses another member.
func (l *link) call(ctx context.Context, method string, m message, into func([]byte) error) error {
	answer, err := l.unary(ctx, method, m)
	mustDrop := shouldLeaveMember(err)
	if err == nil {
		err = into(answer)
		mustDrop = err != nil // the answer is damaged, so the connection cannot be trusted
	}
	if mustDrop {
		l.client.drop(l)
	}
	return err
}

// commit makes a transaction.
func (l *link) commit(ctx context.Context, t transaction) (o txnAnswer, err error) {
	err = l.call(ctx, "KV/Txn", t.message(), o.read)
	return o, err
}

// readRanges reads several ranges at one moment.
func (l *link) readRanges(ctx context.Context, requests ...rangeRequest) (txnAnswer, error) {
	var t transaction
	for _, q := range requests {
		t.then = append(t.then, get(q))
	}
	o, err := l.commit(ctx, t)
	if err == nil && len(o.answers) != len(requests) {
		err = network.Damaged("%d answers to %d questions", len(o.answers), len(requests))
	}
	return o, err
}

// grant makes a lease of whole seconds. If the lease exists already, the answer to an earlier request was lost,
// and grant prolongs it.
func (l *link) grant(ctx context.Context, id int64, ttl time.Duration) (a leaseAnswer, err error) {
	m := message(nil).number(1, int64(ttl/time.Second)).number(2, id)
	err = l.call(ctx, "Lease/LeaseGrant", m, a.read)
	if isStatus(err, leaseExists) {
		return l.keepAlive(ctx, id)
	}
	return a, err
}

// keepAlive prolongs a lease. Its answer has no TTL if there is no such lease.
func (l *link) keepAlive(ctx context.Context, id int64) (a leaseAnswer, err error) {
	err = l.call(ctx, "Lease/LeaseKeepAlive", message(nil).number(1, id), a.read)
	return a, err
}

// revoke ends a lease and removes its keys. existed reports whether there was such a lease.
func (l *link) revoke(ctx context.Context, id int64) (existed bool, err error) {
	err = l.call(ctx, "Lease/LeaseRevoke", message(nil).number(1, id), func([]byte) error { return nil })
	if isStatus(err, noLease) {
		return false, nil
	}
	return true, err
}

// revokeSoon is like revoke, but does not wait for the answer.
func (l *link) revokeSoon(id int64) {
	_, _ = l.begin("Lease/LeaseRevoke", message(nil).number(1, id), lastMessage)
}

// remaining asks how long a lease lasts.
func (l *link) remaining(ctx context.Context, id int64) (a leaseAnswer, err error) {
	err = l.call(ctx, "Lease/LeaseTimeToLive", message(nil).number(1, id), a.read)
	return a, err
}

// retryCall repeats a call of a request without an entry until the cluster answers.
func retryCall[T any](ctx context.Context, s *Store, do func(context.Context, *link) (T, error)) (answer T, err error) {
	ctx, cancel := context.WithTimeout(ctx, lease.ListLimit)
	defer cancel()
	err = lease.Retry(ctx, s.URL(), func() error {
		bound, cancel := context.WithTimeout(ctx, lease.ShortAttempt)
		defer cancel()
		l, err := s.client.current(bound, nil)
		if err == nil {
			answer, err = do(bound, l)
		}
		return s.asRefusal(err)
	})
	return answer, lease.Located(s.URL(), err)
}
