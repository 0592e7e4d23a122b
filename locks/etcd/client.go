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

// client is the way to a cluster: one connection to one of its members. If that fails, the next
// attempt uses the next member.
type client struct {
	target *target

	mu     sync.Mutex // guards what follows
	link   *link      // nil if there is none
	dials  chan struct{}
	at     int // the member that is tried next
	closed bool
}

// link is a connection to a member, where the user is logged in.
type link struct {
	*conn
	client *client
	host   string
	token  string
}

// dialLimit limits the time of connecting to one member: another one may answer.
const dialLimit = time.Second

func newClient(t *target) *client { return &client{target: t, dials: make(chan struct{}, 1)} }

var errClosed = errors.New("the store is closed")

// current returns the connection. If there is none it connects, and calls connected as soon as a member has
// taken the connection.
func (c *client) current(ctx context.Context, connected func()) (*link, error) {
	select {
	case c.dials <- struct{}{}:
		defer func() { <-c.dials }()
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
		c.at++
	case c.closed:
		l.fail(errClosed)
		return nil, errClosed
	default:
		c.link = l
	}
	return l, err
}

// connect connects to the member that is next, and logs in.
func (c *client) connect(ctx context.Context, connected func()) (*link, error) {
	c.mu.Lock()
	host := c.target.hosts[c.at%len(c.target.hosts)]
	c.mu.Unlock()
	config, err := c.target.Config(host)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 3 * time.Second, Interval: time.Second, Count: 3,
	}}
	dialing, cancel := context.WithTimeout(ctx, c.target.dialTimeout)
	defer cancel()
	raw, err := dialer.DialContext(dialing, "tcp", host)
	if err != nil {
		return nil, err
	}
	if connected != nil {
		connected()
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
		patience = lease.NewcomerAttempt
	}
	l := &link{conn: newConn(raw, patience), client: c, host: host}
	if err := l.login(ctx); err != nil {
		l.fail(err)
		return nil, err
	}
	return l, nil
}

// handshakeLimit bounds the TLS handshake, for which a crowd of clients may make the server slow.
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

// drop gives up a connection: the next attempt uses another member.
func (c *client) drop(l *link) {
	c.mu.Lock()
	if c.link == l {
		c.link = nil
		c.at++
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

// call makes one call. into reads the answer. A member that does not answer in time, or has no leader, is left
// for another one.
func (l *link) call(ctx context.Context, method string, m message, into func([]byte) error) error {
	answer, err := l.unary(ctx, method, m)
	if err == nil {
		err = into(answer)
		if err == nil {
			return nil
		}
		l.client.drop(l) // after a damaged answer the connection cannot be trusted
	}
	if leavesMember(err) {
		l.client.drop(l)
	}
	return err
}

// commit makes a transaction.
func (l *link) commit(ctx context.Context, t transaction) (o outcome, err error) {
	err = l.call(ctx, "KV/Txn", t.message(), o.read)
	return o, err
}

// ask reads several ranges at one moment.
func (l *link) ask(ctx context.Context, questions ...question) (outcome, error) {
	var t transaction
	for _, q := range questions {
		t.then = append(t.then, get(q))
	}
	o, err := l.commit(ctx, t)
	if err == nil && len(o.answers) != len(questions) {
		err = network.Damaged("%d answers to %d questions", len(o.answers), len(questions))
	}
	return o, err
}

// grant makes a lease of whole seconds. If the lease exists already, an answer was lost, and grant prolongs it.
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

// revoke ends a lease and removes its keys. existed reports that there was such a lease.
func (l *link) revoke(ctx context.Context, id int64) (existed bool, err error) {
	err = l.call(ctx, "Lease/LeaseRevoke", message(nil).number(1, id), func([]byte) error { return nil })
	if isStatus(err, noLease) {
		return false, nil
	}
	return true, err
}

// revokeSoon is revoke, but does not wait for the answer.
func (l *link) revokeSoon(id int64) {
	_, _ = l.begin("Lease/LeaseRevoke", message(nil).number(1, id), true)
}

// remaining asks how long a lease lasts.
func (l *link) remaining(ctx context.Context, id int64) (a leaseAnswer, err error) {
	err = l.call(ctx, "Lease/LeaseTimeToLive", message(nil).number(1, id), a.read)
	return a, err
}

// retryCall repeats a call until it is answered, for requests that concern no entry.
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
		return s.judge(err)
	})
	return answer, lease.Located(s.URL(), err)
}
