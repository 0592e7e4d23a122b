package redis

import (
	"context"
	"net"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"golock/internal/procfs"
	"golock/locks/lease"
	"golock/locks/network"
	"golock/locks/queue"
)

// clientOptions returns the options that all clients have.
//
// The library does not retry, because golock limits its attempts itself. The library keeps at most
// one idle connection: after a failed attempt, the next attempt must not get another connection
// that died with the first. PoolSize is high, because after that many refused connections the
// library would try only once a second.
func clientOptions() goredis.UniversalOptions {
	return goredis.UniversalOptions{
		Protocol: 2, DisableIdentity: true,
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: lease.LongestAttempt, ReadTimeout: lease.LongestAttempt, WriteTimeout: lease.LongestAttempt,
		PoolSize: 64, MaxIdleConns: 1, PoolTimeout: lease.LongestAttempt, PipelinePoolSize: -1,
		ReadBufferSize: 4 << 10, WriteBufferSize: 4 << 10,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// connect makes the client that the URL asks for. Its only I/O is to read the certificates.
func (t *target) connect() (goredis.UniversalClient, error) {
	goredis.SetLogger(&logging.VoidLogger{}) // the library would log on standard error
	config, err := t.Config("")
	if err != nil {
		return nil, err
	}
	o := t.client
	if !t.hasTimeouts {
		limit := newcomerAttempt()
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = limit, limit, limit, limit
	}
	o.IsClusterMode = t.kind == cluster
	// With keepalive probes the kernel soon notices that the server is out of reach, on idle connections too.
	plain := &net.Dialer{Timeout: o.DialTimeout, KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 3 * time.Second, Interval: time.Second, Count: 3,
	}}
	dial := plain.DialContext
	if config != nil {
		o.TLSConfig, dial = config, dialTLS(config, plain)
	}
	if !t.hasTimeouts {
		dial = limited(dial)
	}
	o.Dialer = watched(dial, t.Trips)
	client := goredis.NewUniversalClient(&o)
	skipGreeting(client, &o)
	return client, nil
}

// newcomerAttempt limits an attempt of an entry that is not in the queue yet. Among hundreds of processes that
// were started at the same moment this one may not get to run for seconds.
func newcomerAttempt() time.Duration { return lease.SlowedAttempt(procfs.Slowdown()) }

// limited returns a dialer that limits each connection by what it may take at its time: a machine that was busy
// when this process began may be idle when the entry connects to the next master.
func limited(dial dialer) dialer {
	return func(ctx context.Context, transport, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, newcomerAttempt())
		defer cancel()
		return dial(ctx, transport, address)
	}
}

// command is a call of a command of the server.
type command[T any] func(context.Context, goredis.UniversalClient) (T, error)

// attempt runs a command once. If ctx ends, attempt returns at once, but the library does not notice that: the
// command goes on in the background until limit is over.
func attempt[T any](ctx context.Context, s *Store, limit time.Duration, ask command[T]) (answer T, err error) {
	client, err := s.client()
	if err != nil {
		return answer, err
	}
	bound, cancel := context.WithTimeout(ctx, limit)
	answer, err = lease.Await(ctx, func() (answer T, err error) {
		defer cancel()
		defer network.Recover(&err)
		return ask(bound, client)
	})
	return answer, s.asRefusal(err)
}

// attemptLimit returns the limit of an attempt for an entry with that TTL.
func (s *Store) attemptLimit(ttl time.Duration) time.Duration {
	return lease.AttemptLimit(ttl, s.distance())
}

// ask repeats attempts until the server answers. It is for commands that concern no entry.
func ask[T any](ctx context.Context, s *Store, c command[T]) (answer T, err error) {
	ctx, cancel := context.WithTimeout(ctx, lease.ListLimit)
	defer cancel()
	err = lease.Retry(ctx, s.URL(), func() (err error) {
		answer, err = attempt(ctx, s, s.attemptLimit(lease.DefaultTTL), c)
		return err
	})
	return answer, lease.Located(s.URL(), err)
}

// runScript returns the command that runs the script. If the URL asks for replicas, a lease begins
// or goes on only when enough replicas have it.
func (s *Store) runScript(c call) command[reply] {
	return func(ctx context.Context, client goredis.UniversalClient) (reply, error) {
		if s.target.replicas == 0 {
			return s.run(ctx, client, c)
		}
		switch queue.Step(c.Mode) {
		case queue.Join, queue.Renew, queue.Hold:
			return s.runReplicated(ctx, client, c)
		default: // the other modes neither grant a slot nor prolong a lease
			return s.run(ctx, client, c)
		}
	}
}
