package network_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks/network"
	"golock/test/testkit"
)

// A server on this machine whose queue is full is there, as one that takes the connection. One that refuses it,
// or is somewhere else and silent, is not known to be there.
func TestReach(t *testing.T) {
	t.Parallel()
	listener, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	testkit.Must(t, err)
	defer unix.Close(listener)
	testkit.Must(t, unix.Bind(listener, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	bound, err := unix.Getsockname(listener)
	testkit.Must(t, err)
	address := (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: bound.(*unix.SockaddrInet4).Port}).String()

	dial := func(address string, limit time.Duration) (conn net.Conn, isReached bool) {
		var reached atomic.Bool
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		conn, _ = network.Reach(ctx, (&net.Dialer{}).DialContext, "tcp", address, func() {
			reached.Store(true)
			cancel() // a server that is full never takes it here
		})
		return conn, reached.Load()
	}
	if _, isReached := dial(address, time.Minute); isReached {
		t.Error("a server that does not listen counts as reached")
	}
	testkit.Must(t, unix.Listen(listener, 0))
	conn, isReached := dial(address, time.Minute) // the only one in its queue
	if conn == nil || !isReached {
		t.Fatal("a server that takes the connection does not count as reached")
	}
	defer conn.Close()
	if conn, isReached = dial(address, time.Minute); conn != nil || !isReached {
		t.Errorf("a server whose queue is full: connection %v, reached: %v", conn, isReached)
	}
	silent := func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, _ = network.Reach(ctx, silent, "tcp", "192.0.2.1:5432", func() { t.Error("a silent network counts as a server") })
}
