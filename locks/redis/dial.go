package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"golock/locks"
	"golock/locks/lease"
)

// handshakePatience is the time after which a TLS handshake takes suspiciously long.
const handshakePatience = 300 * time.Millisecond

// dialTLS connects with TLS. A server without TLS takes the handshake for the beginning of a
// command, and waits for the rest of it. So, if the handshake takes long, dialTLS tests whether the
// server answers without TLS.
func dialTLS(config *tls.Config, plain *net.Dialer) dialer {
	secure := &tls.Dialer{NetDialer: plain, Config: config}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, giveUp := context.WithCancelCause(ctx)
		defer giveUp(nil)
		probe := time.AfterFunc(handshakePatience, func() {
			defer locks.Recover(new(error))
			if speaksRedis(ctx, plain, addr) {
				giveUp(&lease.Refusal{
					Err:  fmt.Errorf("no TLS answer from %s: it speaks Redis without TLS", addr),
					Hint: "did you mean redis:// instead of rediss://?",
				})
			}
		})
		defer probe.Stop()
		conn, err := secure.DialContext(ctx, network, addr)
		if cause := context.Cause(ctx); err != nil && lease.IsFinal(cause) {
			err = cause
		}
		return conn, err
	}
}

// speaksRedis reports whether a server answers without TLS. An answer that demands a login counts
// too.
func speaksRedis(ctx context.Context, plain *net.Dialer, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, handshakePatience)
	defer cancel()
	o := clientOptions()
	o.Addrs, o.Dialer = []string{addr}, watched(plain.DialContext, nil)
	client := goredis.NewClient(o.Simple())
	defer client.Close()
	err := client.Ping(ctx).Err()
	_, refused := errors.AsType[goredis.Error](err)
	return err == nil || refused
}
