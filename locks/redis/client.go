package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"golock/locks"
)

// Bounds of one attempt to get one answer, connecting included.
const (
	shortestAttempt = 300 * time.Millisecond
	longestAttempt  = 2 * time.Second
)

// attemptLimit is how long an attempt may take for an entry of that TTL: one
// that hangs must leave time for others.
func attemptLimit(ttl time.Duration) time.Duration {
	return min(max(ttl/3, shortestAttempt), longestAttempt)
}

// connection is the store's client. It is made when it is first needed and
// closed when the store is, and nothing that was got from the store needs it
// any more.
type connection struct {
	target *target

	mu     sync.Mutex
	client goredis.UniversalClient
	users  int
	closed bool
}

var errClosed = errors.New("the store is closed")

// use gives the client for as long as done is not called.
func (c *connection) use(ttl time.Duration) (goredis.UniversalClient, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client == nil {
		if c.closed {
			return nil, errClosed
		}
		client, err := c.target.connect(attemptLimit(ttl))
		if err != nil {
			return nil, err
		}
		c.client = client
	}
	c.users++
	return c.client, nil
}

func (c *connection) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users--
	c.closeUnused()
}

func (c *connection) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.closeUnused()
}

func (c *connection) closeUnused() {
	if c.closed && c.users == 0 && c.client != nil {
		_ = c.client.Close()
		c.client = nil
	}
}

// silence is for go-redis, which logs on standard error through one logger for
// the whole process.
var silence sync.Once

// connect makes the client that the URL asks for. It does no I/O but to read
// the certificates.
//
// Retrying is our own business: the library's would send again what is already
// bounded, and dial five times before it says that nobody is there. At most one
// connection is kept idle, so that an attempt after a failed one never gets
// another connection that may have died with it.
func (t *target) connect(attempt time.Duration) (goredis.UniversalClient, error) {
	silence.Do(func() { goredis.SetLogger(&logging.VoidLogger{}) })
	secure, err := t.tlsConfig()
	if err != nil {
		return nil, err
	}
	const (
		protocol = 2
		pool     = 8
		idle     = 1
		buffer   = 4 << 10
	)
	switch t.kind {
	case sentinel:
		return goredis.NewFailoverClient(&goredis.FailoverOptions{
			MasterName: t.master, SentinelAddrs: t.hosts, SentinelUsername: t.sentinelUser, SentinelPassword: t.sentinelPassword,
			Username: t.user, Password: t.password, DB: t.db, TLSConfig: secure, Protocol: protocol,
			MaxRetries: -1, DialerRetries: 1, DialTimeout: attempt, ReadTimeout: attempt, WriteTimeout: attempt, ContextTimeoutEnabled: true,
			PoolSize: pool, MaxIdleConns: idle, PoolTimeout: attempt, PipelinePoolSize: -1,
			ReadBufferSize: buffer, WriteBufferSize: buffer, DisableIdentity: true,
		}), nil
	case cluster:
		return goredis.NewClusterClient(&goredis.ClusterOptions{
			Addrs: t.hosts, Username: t.user, Password: t.password, TLSConfig: secure, Protocol: protocol,
			MaxRetries: -1, DialerRetries: 1, DialTimeout: attempt, ReadTimeout: attempt, WriteTimeout: attempt, ContextTimeoutEnabled: true,
			PoolSize: pool, MaxIdleConns: idle, PoolTimeout: attempt, PipelinePoolSize: -1,
			ReadBufferSize: buffer, WriteBufferSize: buffer, DisableIdentity: true,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		}), nil
	}
	network := "tcp"
	if t.kind == unixSocket {
		network = "unix"
	}
	return goredis.NewClient(&goredis.Options{
		Network: network, Addr: t.hosts[0], Username: t.user, Password: t.password, DB: t.db, TLSConfig: secure, Protocol: protocol,
		MaxRetries: -1, DialerRetries: 1, DialTimeout: attempt, ReadTimeout: attempt, WriteTimeout: attempt, ContextTimeoutEnabled: true,
		PoolSize: pool, MaxIdleConns: idle, PoolTimeout: attempt, PipelinePoolSize: -1,
		ReadBufferSize: buffer, WriteBufferSize: buffer, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}), nil
}

// tlsConfig verifies the server against the system's authorities or the given
// one, and its name.
func (t *target) tlsConfig() (*tls.Config, error) {
	if !t.tls {
		return nil, nil
	}
	c := &tls.Config{ServerName: t.serverName, MinVersion: tls.VersionTLS12}
	if t.ca != "" {
		text, err := os.ReadFile(t.ca)
		if err != nil {
			return nil, fmt.Errorf("option ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("option ca: %s holds no certificate", t.ca)
		}
	}
	if t.cert != "" {
		pair, err := tls.LoadX509KeyPair(t.cert, t.key)
		if err != nil {
			return nil, fmt.Errorf("options cert and key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// once is one attempt to run the script. It ends when ctx does; what is still
// under way then ends by itself within the limit of an attempt.
func (s *Store) once(ctx context.Context, ttl time.Duration, k call) (answer, error) {
	client, err := s.connection.use(ttl)
	if err != nil {
		return answer{}, &refusal{err: err}
	}
	type result struct {
		reply any
		err   error
	}
	got := make(chan result, 1)
	bound, cancel := context.WithTimeout(ctx, attemptLimit(ttl))
	go func() {
		var r result
		defer s.connection.done()
		defer cancel()
		defer func() {
			if v := recover(); v != nil {
				r = result{err: &refusal{err: locks.NewPanicError(v)}}
			}
			got <- r
		}()
		r.reply, r.err = s.send(bound, client, k)
	}()
	select {
	case r := <-got:
		if r.err != nil {
			return answer{}, s.judge(r.err)
		}
		a, err := k.read(r.reply)
		if err != nil {
			return a, &refusal{err: err}
		}
		return a, nil
	case <-ctx.Done():
		return answer{}, noAnswer{context.Cause(ctx)}
	}
}

// noAnswer is an attempt that ctx ended.
type noAnswer struct{ cause error }

func (noAnswer) Error() string   { return "no answer in time" }
func (e noAnswer) Unwrap() error { return e.cause }

// send runs the script by its hash, and with its text if the server does not
// know it. A grant counts only when enough replicas have it, if the URL says so.
func (s *Store) send(ctx context.Context, client goredis.UniversalClient, k call) (any, error) {
	if s.target.replicas == 0 || k.mode != join {
		return s.script.run(ctx, client, k)
	}
	node, ok := client.(*goredis.Client)
	if !ok {
		var err error
		if node, err = client.(*goredis.ClusterClient).MasterForKey(ctx, k.keys[0]); err != nil {
			return nil, err
		}
	}
	conn := node.Conn()
	defer conn.Close()
	reply, err := s.script.run(ctx, conn, k)
	if err != nil || !isGrant(reply) {
		return reply, err
	}
	limit := longestAttempt
	if end, ok := ctx.Deadline(); ok {
		limit = max(time.Until(end)*3/4, 10*time.Millisecond)
	}
	n, err := conn.Wait(ctx, s.target.replicas, limit).Result()
	switch {
	case err != nil:
		return nil, err
	case n < int64(s.target.replicas):
		return nil, fmt.Errorf("only %d of %d replicas have the grant", n, s.target.replicas)
	}
	return reply, nil
}

// retryPause lies between two attempts.
const retryPause = 200 * time.Millisecond

// insist repeats attempts until one is answered, fails for good, or ctx ends.
func (s *Store) insist(ctx context.Context, attempt func() error) error {
	var last error
	for {
		err := attempt()
		if err == nil || isFinal(err) {
			return err
		}
		if last == nil || (ctx.Err() == nil && !isTimeout(err)) { // the last attempt is often cut short
			last = err
		}
		pause(ctx, retryPause)
		if ctx.Err() != nil {
			return &locks.OutageError{Store: s.URL(), Err: last}
		}
	}
}

// pause sleeps, not longer than ctx lasts.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
