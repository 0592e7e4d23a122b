package network

import (
	"context"
	"net"
	"time"
)

// Dial is the function of a net.Dialer.
type Dial func(ctx context.Context, transport, address string) (net.Conn, error)

// loopbackLimit is the longest time in which a server on this machine takes or refuses a connection,
// unless the queue of its socket is full.
const loopbackLimit = 500 * time.Millisecond

// Reach connects to a server. It calls reached, perhaps twice, when the server is known to be there: the
// server has taken the connection, or it is on this machine and neither takes nor refuses it. On this machine
// no packet gets lost on the way, so in that case the queue of the server's socket is full: the kernel drops
// requests and repeats them (listen(2)).
func Reach(ctx context.Context, dial Dial, transport, address string, reached func()) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err == nil && IsLoopback(host) {
		timer := time.AfterFunc(loopbackLimit, reached)
		defer timer.Stop()
	}
	conn, err := dial(ctx, transport, address)
	if err == nil {
		reached()
	}
	return conn, err
}
