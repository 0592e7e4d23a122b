package redistest

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"golock/locks/locktest/server"
	"golock/test/testkit"
)

// variable holds the port and the directory of the server that a run of all
// tests shares.
const variable server.Shared = "LOCKTEST_REDIS"

// ours is the shared server, as this process knows it.
var ours struct {
	sync.Mutex
	server *Server
	stores int
}

// Shared gives a server that all tests share: each uses a prefix of its own
// (StoreURL), and none stops the server or changes its settings. It belongs to
// the run of all tests (Share), or to this process, which ends it with Close.
func Shared(t testing.TB) *Server {
	t.Helper()
	s, err := share()
	testkit.Must(t, err)
	mine := *s
	mine.t = t
	return &mine
}

// StoreURL is that of a store of the test's own on the shared server, without a
// quarantine.
func StoreURL(t testing.TB, options ...string) string {
	t.Helper()
	s := Shared(t)
	ours.Lock()
	defer ours.Unlock()
	ours.stores++
	prefix := fmt.Sprintf("prefix=t%d.%d", os.Getpid(), ours.stores)
	return s.SocketURL(append([]string{prefix, "quarantine=0s"}, options...)...)
}

// Share starts the server that the processes of a run share, and returns the
// variable by which those find it. Close ends it.
func Share() (string, error) {
	s, err := share()
	if err != nil {
		return "", err
	}
	return variable.Setting(&s.Process), nil
}

func share() (*Server, error) {
	ours.Lock()
	defer ours.Unlock()
	if ours.server != nil {
		return ours.server, nil
	}
	p, err := variable.Find()
	switch {
	case err != nil:
		return nil, err
	case p != nil: // the run of all tests has started it
		ours.server = &Server{Process: *p}
		ours.server.configure(nil)
		return ours.server, nil
	}
	s, err := startServer(nil, nil)
	if err != nil {
		return nil, err
	}
	ours.server = s
	return s, nil
}

// Close ends the server that Shared or Share started in this process.
func Close() {
	ours.Lock()
	defer ours.Unlock()
	if s := ours.server; s != nil && s.Running() {
		s.discard()
	}
	ours.server = nil
}
