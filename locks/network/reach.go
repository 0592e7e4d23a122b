package network

import (
	"context"
	"net"
	"time"
)

// Dial is the function of a net.Dialer.
type Dial func(ctx context.Context, transport, address string) (net.Conn, error)

// fullAfter is how long a connection on this machine takes at most, unless the server's queue is full.
const fullAfter = 500 * time.Millisecond

// Reach connects to a server. It calls reached, perhaps twice, when the server is known to be there: it has
// taken the connection, or it is on this machine and neither takes nor refuses it. No packet gets lost on the
// way then: the queue of the server's socket is full, and the kernel drops requests and repeats them
// (listen(2)).
func Reach(ctx context.Context, dial Dial, transport, address string, reached func()) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err == nil && IsLoopback(host) {
		full := time.AfterFunc(fullAfter, reached)
		defer full.Stop()
	}
	conn, err := dial(ctx, transport, address)
	if err == nil {
		reached()
	}
	return conn, err
}
