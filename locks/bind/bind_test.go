package bind

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks/locktest"
	"golock/test/testkit"
)

var background = context.Background()

// ports counts those that newPort has tried. Processes begin at different ones.
var ports = rand.Int64N(1000)

// newPort is a port that nobody has, among those that no other test uses
// (locks/locktest/server).
func newPort(t testing.TB) (*Store, string) {
	t.Helper()
	for range 100 {
		ports++
		address := fmt.Sprintf("127.0.0.1:%d", 16000+ports%1000)
		s, err := NewPort(address)
		testkit.Must(t, err)
		if l, err := locktest.TryPlain(t, s, 1); err == nil {
			locktest.Release(t, l)
			return s, address
		}
	}
	t.Fatal("no free port")
	return nil, ""
}

// newSocketFile is in a directory with a short path.
func newSocketFile(t testing.TB) (*Store, string) {
	t.Helper()
	path := filepath.Join(testkit.Place(t, 0o700), "sock")
	s, err := NewSocket(path)
	testkit.Must(t, err)
	return s, path
}

func newAbstract(t testing.TB) (*Store, string) {
	t.Helper()
	name := fmt.Sprintf("golock-bind-%d-%x", os.Getpid(), rand.Uint64())
	s, err := NewAbstract(name)
	testkit.Must(t, err)
	return s, name
}

// What a server has left of its connections (TIME_WAIT) keeps nobody out.
func TestTimeWait(t *testing.T) {
	s, address := newPort(t)
	server, err := net.Listen("tcp", address)
	testkit.Must(t, err)
	client, err := net.Dial("tcp", address)
	testkit.Must(t, err)
	conn, err := server.Accept()
	testkit.Must(t, err)
	testkit.Must(t, conn.Close()) // who closes first has the TIME_WAIT
	_, _ = client.Read(make([]byte, 1))
	testkit.Must(t, client.Close())
	locktest.ExpectBusy(t, s, "label")
	testkit.Must(t, server.Close())
	locktest.AcquirePlain(t, s, 1)
}

// Whoever has the port, however it was bound, keeps us out, and we keep out them.
func TestPortOfOthers(t *testing.T) {
	s, address := newPort(t)
	_, number, _ := strings.Cut(address, ":")
	_, to, _ := socketAddress(s.address.(*port).first)
	raw := func(reuse int) (int, error) {
		fd, err := newSocket(unix.AF_INET, address)
		testkit.Must(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		testkit.Must(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, reuse))
		return fd, unix.Bind(fd, to)
	}
	for _, where := range []string{address, ":" + number, "0.0.0.0:" + number} {
		server, err := net.Listen("tcp", where) // sets SO_REUSEADDR
		testkit.Must(t, err)
		locktest.ExpectBusy(t, s, "label")
		testkit.Must(t, server.Close())
	}
	fd, err := raw(0) // bound, and no more
	testkit.Must(t, err)
	locktest.ExpectBusy(t, s, "label")
	testkit.Must(t, unix.Close(fd))

	locktest.AcquirePlain(t, s, 1)
	for _, where := range []string{address, "0.0.0.0:" + number} {
		if server, err := net.Listen("tcp", where); err == nil {
			server.Close()
			t.Errorf("a server got %s beside ours", where)
		}
	}
	for reuse := range 2 {
		if _, err := raw(reuse); err != unix.EADDRINUSE {
			t.Errorf("bind with SO_REUSEADDR %d: %v", reuse, err)
		}
	}
}

// Those who connect disturb nobody, and are sent away at the end.
func TestConnections(t *testing.T) {
	tcp, address := newPort(t)
	file, path := newSocketFile(t)
	name, abstract := newAbstract(t)
	for _, c := range []struct {
		s                *Store
		network, address string
	}{{tcp, "tcp", address}, {file, "unix", path}, {name, "unix", "@" + abstract}} {
		l := locktest.AcquirePlain(t, c.s, 1)
		var clients []net.Conn
		for range 20 {
			// as many as the kernel takes
			if client, err := (&net.Dialer{Timeout: 10 * time.Millisecond}).Dial(c.network, c.address); err == nil {
				clients = append(clients, client)
			}
		}
		if len(clients) == 0 {
			t.Errorf("%s: nobody can see that it is there", c.network)
		}
		locktest.ExpectBusy(t, c.s, "label")
		locktest.Release(t, l)
		for _, client := range clients {
			testkit.Must(t, client.SetReadDeadline(time.Now().Add(10*time.Second)))
			if _, err := client.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
				t.Errorf("%s: the connection lives: %v", c.network, err)
			}
		}
		again := locktest.AcquirePlain(t, c.s, 1)
		locktest.Release(t, again)
	}
}

// What a command left behind keeps an abstract name. (A port and a socket file it does not keep:
// testPlainKilledHolder.)
func TestLeftBehind(t *testing.T) {
	s, _ := newAbstract(t)
	l := locktest.AcquirePlain(t, s, 1)
	daemon, err := unix.Dup(l.Files()[0])
	testkit.Must(t, err)
	locktest.Release(t, l)
	locktest.ExpectBusy(t, s, "label")
	testkit.Must(t, unix.Close(daemon))
	locktest.AcquirePlain(t, s, 1)
}

// stale leaves a socket file behind as a killed holder does.
func stale(t testing.TB, path string) {
	t.Helper()
	fd, err := newSocket(unix.AF_UNIX, path)
	testkit.Must(t, err)
	testkit.Must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
	testkit.Must(t, unix.Listen(fd, 1))
	testkit.Must(t, unix.Close(fd))
	if _, err := os.Lstat(path); err != nil {
		t.Fatal("nothing stayed")
	}
}

// However many find a socket file that was left behind, one wins. Each round
// leaves one behind again.
func TestStaleSocketFile(t *testing.T) {
	t.Parallel()
	s, path := newSocketFile(t)
	const rounds, racers = 50, 8
	for round := range rounds {
		stale(t, path)
		var won atomic.Int32
		var all, released sync.WaitGroup
		start, done := make(chan struct{}), make(chan struct{})
		for range racers {
			all.Add(1)
			released.Go(func() {
				<-start
				admission, err := s.Join(background, locktest.NewRequest(t, "label", locktest.NoWait))
				if err == nil {
					won.Add(1)
				} else if !locktest.IsBusy(err) {
					t.Error(err)
				}
				all.Done()
				<-done
				if err == nil {
					l, _ := admission.Wait(background)
					_ = l.Release(background)
				}
			})
		}
		close(start)
		all.Wait()
		if won.Load() != 1 {
			t.Fatalf("round %d: %d have the slot", round, won.Load())
		}
		close(done)
		released.Wait()
	}
}

// After a release there is no socket file; the second lock's file stays.
func TestSocketFileIsRemoved(t *testing.T) {
	s, path := newSocketFile(t)
	l := locktest.AcquirePlain(t, s, 1)
	locktest.Release(t, l)
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket stayed: %v", err)
	}
	// One that took the place meanwhile is not ours to remove.
	l = locktest.AcquirePlain(t, s, 1)
	testkit.Must(t, os.Remove(path))
	testkit.Must(t, os.WriteFile(path, nil, 0o600))
	locktest.Release(t, l)
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("a stranger's file was removed: %v", err)
	}
}

// What cannot be bound, and what is in the way and must not be removed.
func TestErrors(t *testing.T) {
	s, path := newSocketFile(t)
	testkit.Must(t, os.WriteFile(path, []byte("precious"), 0o600))
	locktest.ExpectError(t, locktest.ExpectFinalError(t, s, "label"), path, "exists and is not a socket")
	testkit.Must(t, os.Remove(path))
	testkit.Must(t, os.Symlink("nowhere", path))
	locktest.ExpectError(t, locktest.ExpectFinalError(t, s, "label"), path, "symbolic link")
	testkit.Must(t, os.Remove(path))
	testkit.Must(t, os.Mkdir(path, 0o700))
	locktest.ExpectError(t, locktest.ExpectFinalError(t, s, "label"), path, "exists and is not a socket")

	missing, err := NewSocket(filepath.Join(filepath.Dir(path), "no", "sock"))
	testkit.Must(t, err)
	locktest.ExpectError(t, locktest.ExpectFinalError(t, missing, "label"), "the directory must be there")
	readOnly, err := NewSocket("/proc/sock")
	testkit.Must(t, err)
	locktest.ExpectError(t, locktest.ExpectFinalError(t, readOnly, "label"), "/proc/sock")
	elsewhere, err := NewPort("192.0.2.1:7001")
	testkit.Must(t, err)
	locktest.ExpectError(t, locktest.ExpectFinalError(t, elsewhere, "label"), "bind 192.0.2.1:7001", "does not have that address")
}

// Sockets of other tools keep us out: any that has an abstract name, at a file those
// that listen or are of another kind. A file at which nobody listens is left over.
func TestSocketsOfOthers(t *testing.T) {
	file, path := newSocketFile(t)
	name, abstract := newAbstract(t)
	for _, c := range []struct {
		s          *Store
		to         string
		kind       int
		unlistened bool // keeps us out before it listens
	}{
		{file, path, unix.SOCK_STREAM, false}, {file, path, unix.SOCK_DGRAM, true}, {file, path, unix.SOCK_SEQPACKET, true},
		{name, "@" + abstract, unix.SOCK_STREAM, true},
	} {
		fd, err := unix.Socket(unix.AF_UNIX, c.kind|unix.SOCK_CLOEXEC, 0)
		testkit.Must(t, err)
		testkit.Must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: c.to}))
		if c.unlistened {
			locktest.ExpectBusy(t, c.s, "label")
		}
		if c.kind != unix.SOCK_DGRAM {
			testkit.Must(t, unix.Listen(fd, 1))
			locktest.ExpectBusy(t, c.s, "label")
		}
		testkit.Must(t, unix.Close(fd))
		l := locktest.AcquirePlain(t, c.s, 1)
		locktest.Release(t, l)
	}
}
