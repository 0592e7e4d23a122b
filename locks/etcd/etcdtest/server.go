// Package etcdtest runs real etcd servers for tests: one, or a cluster; on loopback, in temporary
// directories, ended with the test.
package etcdtest

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golock/locks/locktest/server"
	"golock/test/testkit"
)

// Server is one etcd process.
type Server struct {
	server.Process

	t        testing.TB
	name     string
	peerPort int
	cluster  func() string // the members as etcd's command line has them
	options  []string
	scheme   string
	cert     string // the file of the certificate of both sides; empty without TLS
	key      string // the file of its key
}

// variable holds the port and the directory of the server that a run of all tests shares.
const variable server.Shared = "LOCKTEST_ETCD"

// programVariable names the server's program, if it is another one than that in PATH. test/etcdserver
// makes one of a current release.
const programVariable = "LOCKTEST_ETCD_SERVER"

// Start starts a server with further options in the form of its command line.
func Start(t testing.TB, options ...string) *Server {
	t.Helper()
	s, err := startServer(t, options)
	testkit.Must(t, err)
	t.Cleanup(s.Discard)
	return s
}

// StartTLS starts a server with TLS that demands certificates of clients. The certificate is good for
// both sides, and names host.
func StartTLS(t testing.TB, host string) (s *Server, cert, key string) {
	t.Helper()
	s, err := newServer(t, server.Here(), "default", nil)
	testkit.Must(t, err)
	t.Cleanup(s.Discard)
	s.scheme = "https"
	s.cert, s.key, err = server.NewCertificate(s.Dir, host)
	testkit.Must(t, err)
	s.options = []string{
		"--cert-file", s.cert, "--key-file", s.key, "--trusted-ca-file", s.cert, "--client-cert-auth",
	}
	testkit.Must(t, s.startAnywhere())
	return s, s.cert, s.key
}

func startServer(t testing.TB, options []string) (*Server, error) {
	s, err := newServer(t, server.Here(), "default", options)
	if err != nil {
		return nil, err
	}
	if err = s.startAnywhere(); err != nil {
		s.Discard()
	}
	return s, err
}

// startAnywhere starts the only member of a cluster at free ports.
func (s *Server) startAnywhere() error {
	s.cluster = func() string { return s.member() }
	return s.StartAnywhere(server.EtcdPorts, func() (err error) {
		if s.peerPort, err = server.FreePort(server.EtcdPorts); err != nil {
			return err
		}
		return s.start()
	})
}

func newServer(t testing.TB, at server.Site, name string, options []string) (*Server, error) {
	p, err := server.NewProcess(at, "etcd-")
	return &Server{Process: p, t: t, name: name, options: options, scheme: "http"}, err
}

// member is the server as a member of its cluster.
func (s *Server) member() string {
	return fmt.Sprintf("%s=http://%s", s.name, net.JoinHostPort(s.Host, strconv.Itoa(s.peerPort)))
}

func (s *Server) start() error {
	program := os.Getenv(programVariable)
	if program == "" {
		program = "etcd"
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return fmt.Errorf("etcd is not installed: make deps")
	}
	_, peer, _ := strings.Cut(s.member(), "=")
	client := s.scheme + "://" + s.Addr()
	args := append([]string{
		"--name", s.name, "--data-dir", filepath.Join(s.Dir, "data"), "--logger", "zap", "--log-level", "error",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", s.cluster(),
		"--unsafe-no-fsync=true", // a test that kills it kills the process, not the machine
	}, s.options...)
	answers := s.answers
	if s.scheme == "https" || strings.Contains(s.cluster(), ",") {
		answers = s.listens // the others may not have been started
	}
	return s.Start(path, args, answers)
}

// answers reports whether the server has a leader.
func (s *Server) answers() bool {
	client := http.Client{Timeout: time.Second}
	answer, err := client.Get("http://" + s.Addr() + "/health")
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

func (s *Server) listens() bool {
	peer, err := net.Dial("tcp", net.JoinHostPort(s.Host, strconv.Itoa(s.peerPort)))
	if err != nil {
		return false
	}
	peer.Close()
	return true
}

// URL returns the URL of a store on the server, with options appended.
func (s *Server) URL(options ...string) string {
	return server.WithOptions("etcd://"+s.Addr(), options)
}

// RevokesLate reports whether a leader of this release that goes on after it stood still may revoke leases
// that its successor has prolonged (https://github.com/etcd-io/etcd/issues/15247).
func (s *Server) RevokesLate() bool {
	s.t.Helper()
	_, text, _ := strings.Cut(s.Control("endpoint", "status"), ", ")
	fields := strings.Split(text, ", ")
	var major, minor, patch int
	_, err := fmt.Sscanf(fields[min(1, len(fields)-1)], "%d.%d.%d", &major, &minor, &patch)
	testkit.Must(s.t, err)
	return major == 3 && (minor < 4 || minor == 4 && patch < 31 || minor == 5 && patch < 13)
}

// Restart starts a server that was killed, at the same place.
func (s *Server) Restart() {
	s.t.Helper()
	testkit.Must(s.t, s.start())
}

// TryRestart is Restart of a server that may refuse to start.
func (s *Server) TryRestart() error { return s.start() }

// Backup makes a backup and returns its file.
func (s *Server) Backup() (file string) {
	s.t.Helper()
	file = filepath.Join(s.Dir, "backup")
	s.Control("snapshot", "save", file)
	return file
}

// Restore gives a server that does not run the data of a backup. The server is then a member of the same cluster as
// before, so all other members must be restored too.
func (s *Server) Restore(file string) {
	s.t.Helper()
	data := filepath.Join(s.Dir, "data")
	testkit.Must(s.t, os.RemoveAll(data))
	_, peer, _ := strings.Cut(s.member(), "=")
	s.Control("snapshot", "restore", file, "--data-dir", data, "--name", s.name,
		"--initial-cluster", s.cluster(), "--initial-advertise-peer-urls", peer)
}

// StartTwin starts a second server that takes itself for the same member of the same cluster, with the data of a
// backup.
func (s *Server) StartTwin(file string) *Server {
	s.t.Helper()
	twin, err := newServer(s.t, server.Here(), s.name, s.options)
	testkit.Must(s.t, err)
	s.t.Cleanup(twin.Discard)
	twin.peerPort, twin.cluster = s.peerPort, s.cluster
	twin.Restore(file)
	testkit.Must(s.t, twin.startAnywhere())
	return twin
}

// Control runs etcdctl, which must succeed.
func (s *Server) Control(args ...string) string {
	s.t.Helper()
	text, err := s.TryControl(args...)
	if err != nil {
		s.t.Fatalf("etcdctl %v: %v: %s", args, err, text)
	}
	return text
}

// TryControl runs etcdctl.
func (s *Server) TryControl(args ...string) (string, error) {
	all := append([]string{"--endpoints", s.scheme + "://" + s.Addr()}, args...)
	if s.cert != "" {
		all = append([]string{"--cacert", s.cert, "--cert", s.cert, "--key", s.key, "--insecure-skip-tls-verify"}, all...)
	}
	text, err := exec.Command("etcdctl", all...).CombinedOutput()
	return strings.TrimSpace(string(text)), err
}

// Shared gives a server that all tests share: each uses a prefix of its own (StoreURL), and none stops
// the server or changes its settings.
func Shared(t testing.TB) *Server {
	t.Helper()
	s, err := share()
	testkit.Must(t, err)
	clone := *s
	clone.t = t
	return &clone
}

// StoreURL returns the URL of a store on the shared server that only this test uses.
func StoreURL(t testing.TB, options ...string) string {
	t.Helper()
	return server.WithOptions("etcd://"+Shared(t).Addr()+"/"+server.NewPrefix(), options)
}

// Share starts the server that the processes of a run share, and returns the variable by which those
// find it. server.Close ends it.
func Share() (string, error) {
	s, err := share()
	if err != nil {
		return "", err
	}
	return variable.Setting(&s.Process), nil
}

func share() (*Server, error) {
	return server.Get(variable, func(p *server.Process) (*Server, error) {
		return &Server{Process: *p, scheme: "http"}, nil
	}, func() (*Server, func(), error) {
		s, err := startServer(nil, nil)
		if err != nil {
			return nil, nil, err
		}
		return s, s.Discard, nil
	})
}
