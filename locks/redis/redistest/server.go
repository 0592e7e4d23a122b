// Package redistest runs real Redis servers for tests: alone, behind Sentinel,
// in a Cluster; on loopback, in temporary directories, ended with the test.
package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// patience bounds every wait for something that must happen.
const patience = 30 * time.Second

// Server is one redis-server (or redis-sentinel) process.
type Server struct {
	Host   string // 127.0.0.1
	Port   int
	Socket string // of a server, not of a sentinel
	Dir    string // its data, and its log

	t       testing.TB
	program string
	args    func() []string
	cmd     *exec.Cmd
	ended   chan struct{}
}

// Start starts a server with further options in the form of its command line,
// as in "--maxmemory", "10mb". Data is not saved unless the options say so.
func Start(t testing.TB, options ...string) *Server {
	t.Helper()
	s := newServer(t, "redis-server")
	s.Socket = filepath.Join(s.Dir, "socket")
	s.args = func() []string {
		return append([]string{
			"--bind", s.Host, "--port", strconv.Itoa(s.Port), "--unixsocket", s.Socket, "--dir", s.Dir,
			"--save", "", "--daemonize", "no", "--logfile", filepath.Join(s.Dir, "log"), "--repl-diskless-sync-delay", "0",
		}, options...)
	}
	s.startSomewhere()
	return s
}

func newServer(t testing.TB, program string) *Server {
	t.Helper()
	// A socket's path is at most 107 bytes long, t.TempDir's may be longer.
	dir, err := os.MkdirTemp("", "redis-")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Host: "127.0.0.1", Dir: dir, t: t, program: program}
	t.Cleanup(func() {
		s.Kill()
		os.RemoveAll(dir)
	})
	return s
}

// ports counts those that were tried. None is used twice in a process: a
// sentinel would take a stranger at the port of its dead master for that one.
// They and those 10000 higher, a cluster's own, are not among the ones that the
// kernel gives to outgoing connections. Processes begin far from each other.
var ports atomic.Int64

const firstPort, portCount = 10000, 12000

// FreePort finds a port that nobody uses.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := firstPort + int(ports.Add(1)+int64(os.Getpid())*1009)%portCount
		free := true
		for _, p := range []int{port, port + 10000} {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
			if err != nil {
				free = false
				break
			}
			l.Close()
		}
		if free {
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

// startSomewhere finds a port too: another process may be quicker to take it.
func (s *Server) startSomewhere() {
	s.t.Helper()
	for range 10 {
		s.Port = FreePort(s.t)
		if s.start() {
			return
		}
	}
	s.fail()
}

func (s *Server) fail() {
	s.t.Helper()
	log, _ := os.ReadFile(filepath.Join(s.Dir, "log"))
	s.t.Fatalf("%s has ended:\n%s", s.program, log)
}

// start returns when the process answers, or false if it has ended.
func (s *Server) start() bool {
	s.t.Helper()
	path, err := exec.LookPath(s.program)
	if err != nil {
		s.t.Fatalf("%s is not installed: run .ci/deps", s.program)
	}
	s.cmd = exec.Command(path, s.args()...)
	s.cmd.Dir = s.Dir
	// A test that is killed takes its servers along: they get a signal when the
	// thread ends that started them, so that one does nothing else.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd, ended, started := s.cmd, make(chan struct{}), make(chan error, 1)
	s.ended = ended
	go func() {
		runtime.LockOSThread()
		defer close(ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		s.cmd = nil
		s.t.Fatal(err)
	}
	alive := true
	Eventually(s.t, s.program+" answers", func() bool {
		select {
		case <-ended:
			alive = false
			return true
		default:
			return s.answers()
		}
	})
	return alive
}

// answers asks the process itself, not whoever else may be at its port: it has
// the socket to itself, and listens there last.
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

// Addr is HOST:PORT.
func (s *Server) Addr() string { return net.JoinHostPort(s.Host, strconv.Itoa(s.Port)) }

// URL is that of a store on the server; options are appended to it, as in
// "quarantine=0".
func (s *Server) URL(options ...string) string {
	return withOptions("redis://"+s.Addr(), options)
}

// SocketURL is the same over the unix socket.
func (s *Server) SocketURL(options ...string) string {
	return withOptions("redis+unix://"+s.Socket, options)
}

func withOptions(url string, options []string) string {
	if len(options) == 0 {
		return url
	}
	return url + "?" + strings.Join(options, "&")
}

// Kill ends the server as kill -9 does.
func (s *Server) Kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		<-s.ended
		s.cmd = nil
	}
}

// Restart starts a server that was killed, at the same place, with what it had
// saved.
func (s *Server) Restart() {
	s.t.Helper()
	if !s.start() {
		s.fail()
	}
}

// Stop and Continue freeze the process.
func (s *Server) Stop()     { _ = s.cmd.Process.Signal(syscall.SIGSTOP) }
func (s *Server) Continue() { _ = s.cmd.Process.Signal(syscall.SIGCONT) }

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
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return c.Do(ctx, args...).Result()
}

// Info is one field of INFO.
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

// Eventually polls for a state that comes about in its own time.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}
