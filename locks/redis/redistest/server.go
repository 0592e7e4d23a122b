// Package redistest runs real Redis servers for tests: alone, behind Sentinel,
// in a Cluster; on loopback, in temporary directories, ended with the test.
package redistest

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"golock/locks/locktest/server"
	"golock/test/testkit"
)

// Server is one redis-server (or redis-sentinel) process.
type Server struct {
	server.Process // a sentinel has no socket

	t       testing.TB
	program string
	args    func() []string
}

// Start starts a server with further options in the form of its command line,
// as in "--maxmemory", "10mb". Data is not saved unless the options say so.
func Start(t testing.TB, options ...string) *Server {
	t.Helper()
	return StartAt(t, server.Here(), options...)
}

// StartAt starts a server at a site.
func StartAt(t testing.TB, at server.Site, options ...string) *Server {
	t.Helper()
	s, err := startServer(t, at, options)
	testkit.Must(t, err)
	t.Cleanup(s.Discard)
	return s
}

func startServer(t testing.TB, at server.Site, options []string) (*Server, error) {
	s, err := newServer(t, at, "redis-server")
	if err != nil {
		return nil, err
	}
	s.configure(options)
	if err = s.startSomewhere(); err != nil {
		s.Discard()
	}
	return s, err
}

func (s *Server) configure(options []string) {
	s.Socket = filepath.Join(s.Dir, "socket")
	s.args = func() []string {
		return append([]string{
			"--bind", s.Host, "--protected-mode", "no", "--port", strconv.Itoa(s.Port), "--unixsocket", s.Socket, "--unixsocketperm", "777", "--dir", s.Dir,
			"--save", "", "--daemonize", "no", "--logfile", filepath.Join(s.Dir, "log"), "--repl-diskless-sync-delay", "0",
		}, options...)
	}
}

func newServer(t testing.TB, at server.Site, program string) (*Server, error) {
	p, err := server.NewProcess(at, "redis-")
	return &Server{Process: p, t: t, program: program}, err
}

// FreePort finds a port that nobody uses.
func FreePort(t testing.TB) int {
	t.Helper()
	port, err := server.FreePort(server.RedisPorts)
	testkit.Must(t, err)
	return port
}

// startSomewhere starts the server at a free port.
func (s *Server) startSomewhere() error { return s.StartAnywhere(server.RedisPorts, s.start) }

func (s *Server) start() error {
	path, err := exec.LookPath(s.program)
	if err != nil {
		return fmt.Errorf("%s is not installed: make deps", s.program)
	}
	return s.Start(path, s.args(), s.answers)
}

// answers reports whether the server answers. It asks over the unix socket, because another process may have the
// port. The server listens at the socket last.
func (s *Server) answers() bool {
	network, address := "unix", s.Socket
	if s.Socket == "" {
		network, address = "tcp", s.Addr()
	}
	conn, err := net.Dial(network, address)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write([]byte("PING\r\n"))
	reply := make([]byte, 64)
	n, _ := conn.Read(reply)
	text := string(reply[:n])
	return strings.HasPrefix(text, "+PONG") || strings.HasPrefix(text, "-NOAUTH")
}

// URL returns the URL of a store on the server, with options appended, such as
// "quarantine=0".
func (s *Server) URL(options ...string) string {
	return server.WithOptions("redis://"+s.Addr(), options)
}

// SocketURL returns the URL of a store that uses the server's unix socket.
func (s *Server) SocketURL(options ...string) string {
	return server.WithOptions("redis+unix://"+s.Socket, options)
}

// Restart starts a server that was killed, at the same place, with what it had
// saved.
func (s *Server) Restart() {
	s.t.Helper()
	testkit.Must(s.t, s.start())
}

// Replica starts a replica of the server and waits until it follows.
func (s *Server) Replica() *Server {
	s.t.Helper()
	return s.replicaAt(server.Here())
}

func (s *Server) replicaAt(at server.Site) *Server {
	s.t.Helper()
	r := StartAt(s.t, at, "--replicaof", s.Host, strconv.Itoa(s.Port))
	follows := func() bool { return r.Info("replication", "master_link_status") == "up" }
	testkit.Eventually(s.t, "the replica follows", follows)
	return r
}

// Do runs one command, which must not fail.
func (s *Server) Do(args ...any) any {
	s.t.Helper()
	reply, err := s.Try(args...)
	if err != nil {
		s.t.Fatalf("%v: %v", args, err)
	}
	return reply
}

// Try runs one command as the default user, on a connection of its own.
func (s *Server) Try(args ...any) (any, error) {
	redis.SetLogger(&logging.VoidLogger{})
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), Protocol: 2, DisableIdentity: true, MaxRetries: -1, DialerRetries: 1, PoolSize: 1})
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), server.Patience)
	defer cancel()
	return c.Do(ctx, args...).Result()
}

// Info returns a field of the answer to INFO, or "" if the answer does not have it.
func (s *Server) Info(section, field string) string {
	s.t.Helper()
	text, _ := s.Do("INFO", section).(string)
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
