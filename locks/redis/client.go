package redis

import (
	"context"
	"fmt"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/network"
)

// connection is the store's client. It is made when it is first needed.
type connection struct {
	target *target

	mu     sync.Mutex
	client goredis.UniversalClient
}

func (c *connection) use(ttl time.Duration) (goredis.UniversalClient, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client == nil {
		client, err := c.target.connect(lease.AttemptLimit(ttl))
		if err != nil {
			return nil, err
		}
		c.client = client
	}
	return c.client, nil
}

func (c *connection) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client == nil {
		return nil
	}
	return c.client.Close()
}

// connect makes the client that the URL asks for. It does no I/O but to read the
// certificates.
//
// The library does not retry: it would repeat what is already bounded. At most one
// connection is kept idle, so that an attempt after a failed one never gets another
// connection that may have died with it.
func (t *target) connect(attempt time.Duration) (goredis.UniversalClient, error) {
	goredis.SetLogger(&logging.VoidLogger{}) // it would log on standard error
	config, err := t.Config("")
	if err != nil {
		return nil, err
	}
	o := goredis.UniversalOptions{
		Addrs: t.hosts, MasterName: t.master, SentinelUsername: t.sentinelUser, SentinelPassword: t.sentinelPassword,
		Username: t.user, Password: t.password, DB: t.db, TLSConfig: config, Protocol: 2, DisableIdentity: true,
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: network.Bounded(attempt, t.dialTimeout), ReadTimeout: network.Bounded(attempt, t.readTimeout), WriteTimeout: network.Bounded(attempt, t.writeTimeout),
		PoolSize: 8, MaxIdleConns: 1, PoolTimeout: attempt, PipelinePoolSize: -1, ReadBufferSize: 4 << 10, WriteBufferSize: 4 << 10,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if config != nil {
		o.Dialer = dialTLS(config, o.DialTimeout)
	}
	switch t.kind {
	case sentinel:
		return goredis.NewFailoverClient(o.Failover()), nil
	case cluster:
		return goredis.NewClusterClient(o.Cluster()), nil
	case unixSocket:
		simple := o.Simple()
		simple.Network = "unix"
		return goredis.NewClient(simple), nil
	}
	return goredis.NewClient(o.Simple()), nil
}

// once is one attempt to run the script. It ends when ctx does; what is still under
// way then ends by itself within the limit of an attempt.
func (s *Store) once(ctx context.Context, ttl time.Duration, k call) (reply, error) {
	client, err := s.connection.use(ttl)
	if err != nil {
		return reply{}, err
	}
	type result struct {
		reply reply
		err   error
	}
	got := make(chan result, 1)
	bound, cancel := context.WithTimeout(ctx, lease.AttemptLimit(ttl))
	go func() {
		var r result
		defer cancel()
		defer func() {
			if v := recover(); v != nil {
				r = result{err: &lease.Refusal{Err: locks.NewPanicError(v)}}
			}
			got <- r
		}()
		r.reply, r.err = s.send(bound, client, k)
	}()
	select {
	case r := <-got:
		return r.reply, s.judge(r.err)
	case <-ctx.Done():
		return reply{}, lease.NoAnswer{Cause: context.Cause(ctx)}
	}
}

// send runs the script. A grant counts only when enough replicas have it, if the URL
// says so.
func (s *Store) send(ctx context.Context, client goredis.UniversalClient, k call) (reply, error) {
	if s.target.replicas == 0 || k.step != string(lease.Join) {
		return s.script.run(ctx, client, k)
	}
	node, ok := client.(*goredis.Client)
	if !ok {
		var err error
		if node, err = client.(*goredis.ClusterClient).MasterForKey(ctx, k.keys[0]); err != nil {
			return reply{}, err
		}
	}
	conn := node.Conn()
	defer conn.Close()
	a, err := s.script.run(ctx, conn, k)
	if err != nil || a.Verdict != lease.Granted {
		return a, err
	}
	limit := lease.LongestAttempt
	if end, ok := ctx.Deadline(); ok {
		limit = max(time.Until(end)*3/4, 10*time.Millisecond)
	}
	n, err := conn.Wait(ctx, s.target.replicas, limit).Result()
	switch {
	case err != nil:
		return reply{}, err
	case n < int64(s.target.replicas):
		return reply{}, fmt.Errorf("only %d of %d replicas have the grant", n, s.target.replicas)
	}
	return a, nil
}

// try runs one command of the library's until it is answered or ctx ends.
func (s *Store) try(ctx context.Context, command func(context.Context, goredis.UniversalClient) error) error {
	client, err := s.connection.use(lease.DefaultTTL)
	if err != nil {
		return lease.Located(s.URL(), err)
	}
	ctx, cancel := context.WithTimeout(ctx, lease.ListLimit)
	defer cancel()
	err = lease.Retry(ctx, s.URL(), func() error {
		bound, cancel := context.WithTimeout(ctx, lease.LongestAttempt)
		defer cancel()
		return s.judge(command(bound, client))
	})
	return lease.Located(s.URL(), err)
}
