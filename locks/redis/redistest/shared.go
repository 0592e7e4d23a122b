package redistest

import (
	"testing"

	"golock/locks/locktest/server"
	"golock/test/testkit"
)

// variable holds the port and the directory of the server that a run of all
// tests shares.
const variable server.Shared = "LOCKTEST_REDIS"

// Shared returns a server that all tests share. Each test uses a prefix of its own (StoreURL), and no test stops
// the server or changes its settings. If Share has not started the server for a run of all tests, this process
// starts it, and ends it with server.Close.
func Shared(t testing.TB) *Server {
	t.Helper()
	s, err := share()
	testkit.Must(t, err)
	clone := *s
	clone.t = t
	return &clone
}

// StoreURL returns the URL of a store without quarantine on the shared server, which
// only this test uses.
func StoreURL(t testing.TB, options ...string) string {
	t.Helper()
	return Shared(t).SocketURL(append([]string{"prefix=" + server.NewPrefix(), "quarantine=0s"}, options...)...)
}

// Share starts the server that the processes of a run share, and returns the
// variable by which those find it. server.Close ends it.
func Share() (string, error) {
	s, err := share()
	if err != nil {
		return "", err
	}
	return variable.Setting(&s.Process), nil
}

func share() (*Server, error) {
	return server.Get(variable, func(p *server.Process) (*Server, error) {
		s := &Server{Process: *p}
		s.configure(nil)
		return s, nil
	}, func() (*Server, func(), error) {
		s, err := startServer(nil, server.Here(), nil)
		return s, s.Discard, err
	})
}
