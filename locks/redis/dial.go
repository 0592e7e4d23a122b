package redis

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"golock/locks/lease"
)

// handshakePatience is how long a TLS handshake may take before something seems wrong.
const handshakePatience = 300 * time.Millisecond

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// dialTLS connects over TLS. A server without TLS takes the handshake for the beginning of
// a command and waits for the rest: after a while it is asked without TLS.
func dialTLS(config *tls.Config, limit time.Duration) dialer {
	plain := dialer(goredis.NewDialer(&goredis.Options{DialTimeout: limit}))
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		raw, err := plain(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := config.Clone()
		if c.ServerName == "" {
			c.ServerName, _, _ = net.SplitHostPort(addr)
		}
		conn := tls.Client(raw, c)
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		ctx, giveUp := context.WithCancelCause(ctx)
		defer giveUp(nil)
		probe := time.AfterFunc(handshakePatience, func() {
			if plain.speaksRedis(ctx, network, addr) {
				giveUp(&lease.Refusal{
					Err:  fmt.Errorf("no TLS answer from %s: it speaks Redis without TLS", addr),
					Hint: "did you mean redis:// in the place of rediss://?",
				})
			}
		})
		defer probe.Stop()
		if err = conn.HandshakeContext(ctx); err == nil {
			return conn, nil
		}
		raw.Close()
		if cause := context.Cause(ctx); lease.IsFinal(cause) {
			err = cause
		}
		return nil, err
	}
}

// speaksRedis reports whether a server answers without TLS, be it that it wants a login.
func (dial dialer) speaksRedis(ctx context.Context, network, addr string) bool {
	conn, err := dial(ctx, network, addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(handshakePatience))
	answer := make([]byte, 1)
	_, err = conn.Write([]byte("PING\r\n"))
	if err == nil {
		_, err = conn.Read(answer)
	}
	return err == nil && (answer[0] == '+' || answer[0] == '-')
}
