//go:build integration

package hostile_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

// What golock sends to a server that is not the right one, or to a man in the middle: no password in
// the clear, and nothing at all where TLS was asked for. (That certificates and names are verified:
// tests of the engines.)

// talker is a server that sends what a test wants, and keeps what it receives.
type talker struct {
	net.Listener
	mu    sync.Mutex
	heard []byte
	calls int
}

// listen starts one. talk gets each connection, whose reads are kept.
func listen(t testing.TB, socket net.Listener, talk func(c io.ReadWriter)) *talker {
	t.Helper()
	s := &talker{Listener: socket}
	t.Cleanup(func() { s.Close() })
	go func() {
		for {
			c, err := s.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.calls++
			s.mu.Unlock()
			go func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(testkit.Patience))
				heard := io.TeeReader(c, s)
				talk(struct {
					io.Reader
					io.Writer
				}{heard, c})
				_, _ = io.Copy(io.Discard, heard)
			}()
		}
	}()
	return s
}

// Write keeps what a connection has received.
func (s *talker) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = append(s.heard, b...)
	return len(b), nil
}

func (s *talker) all() (heard []byte, calls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard, s.calls
}

func loopback(t testing.TB) net.Listener {
	t.Helper()
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	return socket
}

func message(kind byte, body ...byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)+4)), body...)
}

// A PostgreSQL server that refuses TLS gets nothing more.
func TestStrippedPostgres(t *testing.T) {
	t.Parallel()
	s := testkit.New(t, "")
	for what, answer := range map[string]string{"no": "N", "an error": "E", "nonsense": "x", "yes and more in the clear": "S" + string(message('R', 0, 0, 0, 3))} {
		server := listen(t, loopback(t), func(c io.ReadWriter) {
			b := make([]byte, 8)
			if _, err := c.Read(b); err == nil {
				_, _ = c.Write([]byte(answer))
			}
		})
		r := as(s, victim, "run", "--store", "postgres://job:"+secret+"@"+server.Addr().String()+"/db?tls=on", "-n", "--name", "x", "--", "echo", "started")
		heard, calls := server.all()
		if r.Code != 69 || calls == 0 || bytes.Contains(heard, []byte("job")) || (what == "no" && len(heard) != 8*calls) {
			t.Errorf("%s: exit code %d, heard %q in %d calls: %s", what, r.Code, heard, calls, r.Stderr)
		}
		shows(t, what, r.Stdout+r.Stderr)
	}
}

// mysqlPacket frames a packet.
func mysqlPacket(number byte, body ...byte) []byte {
	n := len(body)
	return append([]byte{byte(n), byte(n >> 8), byte(n >> 16), number}, body...)
}

// greeting is how a MySQL server begins.
func greeting(capabilities uint32, plugin string) []byte {
	b := append([]byte{10}, "8.0.0\x00"...)
	b = append(b, 1, 0, 0, 0)
	b = append(b, "12345678\x00"...)
	b = append(b, byte(capabilities), byte(capabilities>>8), 45, 2, 0, byte(capabilities>>16), byte(capabilities>>24), 21)
	b = append(b, make([]byte, 10)...)
	b = append(b, "123456789012\x00"...)
	return mysqlPacket(0, append(b, plugin+"\x00"...)...)
}

// mysqlUsual has protocol 4.1, plugins, several statements, LOCAL among others; not TLS.
const mysqlUsual = 0x000fa20f | 1<<7

// A MySQL server without TLS, or that asks for the password in the clear, does not get it. One that
// asks for a file (LOCAL INFILE) gets none.
func TestHostileMySQL(t *testing.T) {
	t.Parallel()
	s := testkit.New(t, "")
	run := func(server *talker, options string) testkit.Result {
		return as(s, victim, "run", "--store", "mysql://job:"+secret+"@"+server.Addr().String()+"/db"+options, "-n", "--name", "x", "--", "echo", "started")
	}
	stripped := listen(t, loopback(t), func(c io.ReadWriter) { _, _ = c.Write(greeting(mysqlUsual, "mysql_native_password")) })
	r := run(stripped, "?tls=on")
	if heard, calls := stripped.all(); r.Code != 69 || calls == 0 || len(heard) != 0 {
		t.Errorf("no TLS: exit code %d, heard %q: %s", r.Code, heard, r.Stderr)
	}
	says(t, "no TLS", r, 69, "does not speak TLS")

	for _, plugin := range []string{"mysql_clear_password", "mysql_old_password", "dialog"} {
		asking := listen(t, loopback(t), func(c io.ReadWriter) {
			_, _ = c.Write(greeting(mysqlUsual, "mysql_native_password"))
			if _, err := c.Read(make([]byte, 4096)); err == nil {
				_, _ = c.Write(mysqlPacket(2, append([]byte{0xfe}, plugin+"\x0012345678901234567890\x00"...)...))
			}
		})
		r := run(asking, "")
		heard, calls := asking.all()
		if r.Code != 69 || calls == 0 || bytes.Contains(heard, []byte(secret)) {
			t.Errorf("%s: exit code %d, heard %q: %s", plugin, r.Code, heard, r.Stderr)
		}
		shows(t, plugin, r.Stdout+r.Stderr)
	}

	path := testkit.Place(t, 0o755) + "/precious"
	testkit.Must(t, os.WriteFile(path, []byte("PRECIOUS"), 0o644))
	greedy := listen(t, loopback(t), func(c io.ReadWriter) {
		_, _ = c.Write(greeting(mysqlUsual, "mysql_native_password"))
		b := make([]byte, 64<<10)
		for number, answer := byte(2), []byte{0, 0, 0, 2, 0, 0, 0}; ; number, answer = 1, append([]byte{0xfb}, path...) {
			if _, err := c.Read(b); err != nil {
				return
			}
			_, _ = c.Write(mysqlPacket(number, answer...))
		}
	})
	r = run(greedy, "")
	heard, _ := greedy.all()
	if r.Code != 69 || !bytes.Contains(heard, []byte("golock")) || bytes.Contains(heard, []byte("PRECIOUS")) {
		t.Errorf("LOCAL INFILE: exit code %d, heard %q: %s", r.Code, heard, r.Stderr)
	}
}

// Where TLS was asked for, a server gets nothing in the clear, and no old version of TLS.
func TestStrippedRedis(t *testing.T) {
	t.Parallel()
	s := testkit.New(t, "")
	plain := listen(t, loopback(t), func(c io.ReadWriter) {
		if _, err := c.Read(make([]byte, 4096)); err == nil { // else it may be reset before it is heard
			_, _ = c.Write([]byte("+OK\r\n"))
		}
	})
	r := as(s, victim, "run", "--store", "rediss://job:"+secret+"@"+plain.Addr().String(), "-n", "--name", "x", "--", "echo", "started")
	heard, _ := plain.all()
	for _, question := range []string{"PING\r\n", "*2\r\n$5\r\nhello\r\n$1\r\n2\r\n"} { // over another connection: does it speak Redis?
		heard = bytes.Replace(heard, []byte(question), nil, 1)
	}
	if r.Code != 69 || len(heard) == 0 || heard[0] != 0x16 || bytes.Contains(heard, []byte(secret)) {
		t.Errorf("in the clear: exit code %d, heard %q: %s", r.Code, heard, r.Stderr)
	}

	trusted := httptest.NewTLSServer(nil) // for its certificate
	defer trusted.Close()
	file := testkit.Place(t, 0o755) + "/ca.pem"
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: trusted.Certificate().Raw})
	testkit.Must(t, os.WriteFile(file, text, 0o644))
	old := &tls.Config{Certificates: trusted.TLS.Certificates, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	outdated, err := tls.Listen("tcp", "127.0.0.1:0", old)
	testkit.Must(t, err)
	server := listen(t, outdated, func(io.ReadWriter) {})
	r = as(s, victim, "run", "--store", "rediss://job:"+secret+"@"+server.Addr().String()+"?ca="+file, "-n", "--name", "x", "--", "echo", "started")
	if heard, _ := server.all(); r.Code != 69 || r.Stdout != "" || len(heard) != 0 {
		t.Errorf("TLS 1.1: exit code %d, heard %q: %s", r.Code, heard, r.Stderr)
	}
}

// A PostgreSQL server that asks for the password in the clear gets it on this machine, where PAM and
// LDAP need it, and not over a network without TLS.
func TestClearPasswordOverTheNetwork(t *testing.T) {
	t.Parallel()
	s := testkit.New(t, "")
	done := make(chan error, 1)
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with its network
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return err
			}
			for _, args := range []string{"addr add 10.9.9.9/32 dev lo", "link set lo up"} {
				if text, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
					return fmt.Errorf("ip %s: %w: %s", args, err, text)
				}
			}
			for host, want := range map[string]bool{"10.9.9.9": false, "127.0.0.1": true} {
				socket, err := net.Listen("tcp", host+":0")
				if err != nil {
					return err
				}
				server := listen(t, socket, func(c io.ReadWriter) {
					if _, err := c.Read(make([]byte, 4096)); err == nil {
						_, _ = c.Write(message('R', 0, 0, 0, 3))
					}
				})
				r := as(s, 0, "run", "--store", "postgres://job:"+secret+"@"+server.Addr().String()+"/db", "-w", "1", "--name", "x", "--", "echo", "started")
				heard, calls := server.all()
				if got := bytes.Contains(heard, []byte(secret)); got != want || calls == 0 || r.Code != 69 {
					t.Errorf("%s: the password was sent: %v; exit code %d: %s", host, got, r.Code, r.Stderr)
				}
				if !want && !strings.Contains(r.Stderr, "?tls=on") {
					t.Errorf("%s: %s", host, r.Stderr)
				}
			}
			return nil
		}()
	}()
	testkit.Must(t, <-done)
}

// Variables of other database clients (PGHOST, MYSQL_HOST ...) do not change where, how and as whom
// golock connects.
func TestVariablesOfDatabases(t *testing.T) {
	t.Parallel()
	s := testkit.New(t, "")
	for _, server := range []*sqltest.Server{sqltest.Postgres(t), sqltest.Maria(t)} {
		cmd := command(s, victim, "run", "--store", server.TCPURL(server.NewDatabase(t), "quarantine=0s"), "--name", "x", "--", "sh", "-c", "echo $PGSERVICE")
		cmd.Env = append(cmd.Env,
			"PGSERVICE=nowhere", "PGSERVICEFILE=/dev/zero", "PGHOST=/nowhere", "PGPORT=abc", "PGUSER=nobody", "PGPASSWORD=wrong", "PGDATABASE=x", "PGOPTIONS=-c nonsense",
			"PGSSLMODE=verify-full", "PGSSLNEGOTIATION=direct", "PGREQUIREAUTH=none", "PGCHANNELBINDING=require", "PGTARGETSESSIONATTRS=standby",
			"PGCONNECT_TIMEOUT=abc", "PGMINPROTOCOLVERSION=9", "PGMAXPROTOCOLVERSION=x", "PGPASSFILE=/dev/zero", "PGSSLCERT=/nowhere", "PGSSLCERTMODE=x",
			"MYSQL_HOST=nowhere", "MYSQL_TCP_PORT=1", "MYSQL_PWD=wrong", "MYSQL_UNIX_PORT=/nowhere", "HOME=/nowhere",
		)
		r := cmd.Run()
		says(t, server.Kind, r, 0)
		if r.Stdout != "nowhere\n" {
			t.Errorf("%s: the command's PGSERVICE is %q", server.Kind, r.Stdout)
		}
	}
}
