package bind

import (
	"context"
	"errors"
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

	"golock/locks"
)

var background = context.Background()

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func request(t testing.TB, s *Store, limit int) locks.Request {
	t.Helper()
	ref, err := locks.NewRef(s.URL())
	must(t, err)
	return locks.Request{Ref: ref, Name: "label", Claim: locks.Claim{Weight: 1, Max: limit}, NoWait: true}
}

func try(t testing.TB, s *Store) (locks.Lease, error) {
	t.Helper()
	ticket, err := s.Join(background, request(t, s, 1))
	if err != nil {
		return nil, err
	}
	l, err := ticket.Wait(background)
	must(t, err)
	t.Cleanup(func() { _ = l.Release(background) })
	return l, nil
}

func take(t testing.TB, s *Store) locks.Lease {
	t.Helper()
	l, err := try(t, s)
	must(t, err)
	return l
}

func isBusy(err error) bool {
	var busy *locks.BusyError
	return errors.As(err, &busy)
}

func refused(t testing.TB, s *Store) {
	t.Helper()
	if _, err := try(t, s); !isBusy(err) {
		t.Errorf("Join = %v, want a BusyError", err)
	}
}

// fails must say what is wrong.
func fails(t testing.TB, s *Store, words ...string) {
	t.Helper()
	_, err := try(t, s)
	if err == nil || isBusy(err) {
		t.Fatalf("Join = %v, want an error", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q says nothing of %q", err, w)
		}
	}
}

// newPort is a port that nobody has, outside the range of those that clients
// get.
func newPort(t testing.TB) (*Store, string) {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 10000+rand.IntN(20000))
		s, err := NewPort(address)
		must(t, err)
		if l, err := try(t, s); err == nil {
			must(t, l.Release(background))
			return s, address
		}
	}
	t.Fatal("no free port")
	return nil, ""
}

// newSocketFile is in a directory with a short path.
func newSocketFile(t testing.TB) (*Store, string) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "golock-bind-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "sock")
	s, err := NewSocket(path)
	must(t, err)
	return s, path
}

func newAbstract(t testing.TB) (*Store, string) {
	t.Helper()
	name := fmt.Sprintf("golock-bind-%d-%x", os.Getpid(), rand.Uint64())
	s, err := NewAbstract(name)
	must(t, err)
	return s, name
}

// What a server has left of its connections (TIME_WAIT) keeps nobody out.
func TestTimeWait(t *testing.T) {
	s, address := newPort(t)
	server, err := net.Listen("tcp", address)
	must(t, err)
	client, err := net.Dial("tcp", address)
	must(t, err)
	conn, err := server.Accept()
	must(t, err)
	must(t, conn.Close()) // who closes first has the TIME_WAIT
	_, _ = client.Read(make([]byte, 1))
	must(t, client.Close())
	refused(t, s)
	must(t, server.Close())
	if fd, err := s.space.(*port).bind(s.space.(*port).first, false); err != errTaken {
		unix.Close(fd)
		t.Fatalf("%v: there is nothing left of the connection", err)
	}
	l := take(t, s)
	refused(t, s)
	if other, err := net.Listen("tcp", address); err == nil {
		other.Close()
		t.Error("a server got the port beside ours")
	}
	must(t, l.Release(background))
	take(t, s)
}

// Whoever has the port, however it was bound, keeps us out, and we keep out them.
func TestPortOfOthers(t *testing.T) {
	s, address := newPort(t)
	_, number, _ := strings.Cut(address, ":")
	p := s.space.(*port)
	_, to := socketAddress(p.first)
	raw := func(reuse int) (int, error) {
		fd, err := newSocket(unix.AF_INET)
		must(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		must(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, reuse))
		return fd, unix.Bind(fd, to)
	}
	for _, where := range []string{address, ":" + number, "0.0.0.0:" + number} {
		server, err := net.Listen("tcp", where) // sets SO_REUSEADDR
		must(t, err)
		refused(t, s)
		must(t, server.Close())
	}
	fd, err := raw(0) // bound, and no more
	must(t, err)
	refused(t, s)
	must(t, unix.Close(fd))

	take(t, s)
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
		l := take(t, c.s)
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
		refused(t, c.s)
		must(t, l.Release(background))
		for _, client := range clients {
			must(t, client.SetReadDeadline(time.Now().Add(10*time.Second)))
			if _, err := client.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
				t.Errorf("%s: the connection lives: %v", c.network, err)
			}
		}
		again := take(t, c.s)
		must(t, again.Release(background))
	}
}

// A connection that nobody ever took does not keep the slot when what the
// command left behind has the socket open.
func TestLeftBehindWithConnections(t *testing.T) {
	tcp, _ := newPort(t)
	file, path := newSocketFile(t)
	name, _ := newAbstract(t)
	for _, s := range []*Store{tcp, file, name} {
		l := take(t, s)
		refused(t, s) // by a connection, with unix sockets
		daemon, err := unix.Dup(l.(*lease).fd)
		must(t, err)
		defer unix.Close(daemon)
		must(t, l.Release(background))
		if s == file {
			stale(t, path) // and then one was killed
		}
		take(t, s)
		refused(t, s)
	}
}

// What cannot be bound.
func TestPortErrors(t *testing.T) {
	s, err := NewPort("192.0.2.1:7001")
	must(t, err)
	fails(t, s, "bind 192.0.2.1:7001", "does not have that address")
}

// stale leaves a socket file behind as a killed holder does.
func stale(t testing.TB, path string) {
	t.Helper()
	fd, err := newSocket(unix.AF_UNIX)
	must(t, err)
	must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
	must(t, unix.Listen(fd, 1))
	must(t, unix.Close(fd))
	if _, err := os.Lstat(path); err != nil {
		t.Fatal("nothing stayed")
	}
}

// However many find a socket file that was left behind, one wins. Each round
// leaves one behind again.
func TestStaleSocketFile(t *testing.T) {
	s, path := newSocketFile(t)
	const rounds, racers = 200, 8
	for round := range rounds {
		stale(t, path)
		var won atomic.Int32
		var all sync.WaitGroup
		start, done := make(chan struct{}), make(chan struct{})
		for range racers {
			all.Add(1)
			go func() {
				<-start
				ticket, err := s.Join(background, request(t, s, 1))
				if err == nil {
					won.Add(1)
				} else if !isBusy(err) {
					t.Error(err)
				}
				all.Done()
				<-done
				if err == nil {
					l, _ := ticket.Wait(background)
					_ = l.Release(background)
				}
			}()
		}
		close(start)
		all.Wait()
		if won.Load() != 1 {
			t.Fatalf("round %d: %d have the slot", round, won.Load())
		}
		close(done)
		for { // until it is given back
			if _, err := os.Lstat(path); err != nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// After a release there is no socket file; the second lock's file stays.
func TestSocketFileIsRemoved(t *testing.T) {
	s, path := newSocketFile(t)
	l := take(t, s)
	must(t, l.Release(background))
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket stayed: %v", err)
	}
	// One that took the place meanwhile is not ours to remove.
	l = take(t, s)
	must(t, os.Remove(path))
	must(t, os.WriteFile(path, nil, 0o600))
	must(t, l.Release(background))
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("a stranger's file was removed: %v", err)
	}
	fails(t, s, path, "is no socket")
}

// What is in the way and must not be removed.
func TestSocketFileErrors(t *testing.T) {
	s, path := newSocketFile(t)
	must(t, os.WriteFile(path, []byte("precious"), 0o600))
	fails(t, s, path, "is there and is no socket")
	must(t, os.Remove(path))
	must(t, os.Symlink("nowhere", path))
	fails(t, s, path, "is a symbolic link")
	must(t, os.Remove(path))
	must(t, os.Mkdir(path, 0o700))
	fails(t, s, path, "is there and is no socket")

	missing, err := NewSocket(filepath.Join(filepath.Dir(path), "no", "sock"))
	must(t, err)
	fails(t, missing, "the directory must be there")
	readOnly, err := NewSocket("/proc/sock")
	must(t, err)
	fails(t, readOnly, "/proc/sock")
}

// Sockets of other tools keep us out, whether they listen or not.
func TestSocketsOfOthers(t *testing.T) {
	file, path := newSocketFile(t)
	name, abstract := newAbstract(t)
	for _, c := range []struct {
		s     *Store
		to    string
		kinds []int // abstract names of different kinds are different names
	}{{file, path, []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_SEQPACKET}}, {name, "@" + abstract, []int{unix.SOCK_STREAM}}} {
		for _, kind := range c.kinds {
			fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
			must(t, err)
			must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: c.to}))
			refused(t, c.s)
			if kind != unix.SOCK_DGRAM {
				must(t, unix.Listen(fd, 1))
				refused(t, c.s)
			}
			must(t, unix.Close(fd))
			l := take(t, c.s)
			must(t, l.Release(background))
		}
	}
}

// A process that is stopped inside the second lock holds up those who come, not
// for ever, and not those who wait already.
func TestGuardIsStuck(t *testing.T) {
	s, path := newSocketFile(t)
	f := s.space.(*socketFile)
	guard, err := f.guard(background, guardWait)
	must(t, err)
	start := time.Now()
	fails(t, s, path, "may be stopped")
	if took := time.Since(start); took < guardWait || took > 10*guardWait {
		t.Errorf("it took %v", took)
	}
	ended, cancel := context.WithCancel(background)
	cancel()
	start = time.Now()
	if _, err := s.Join(ended, request(t, s, 1)); err != context.Canceled || time.Since(start) > guardWait/2 {
		t.Errorf("Join = %v after %v", err, time.Since(start))
	}
	must(t, unix.Close(guard))
	take(t, s)
}

// Being late is no reason to be turned away.
func TestGuardIsStuckWhileWaiting(t *testing.T) {
	s, _ := newSocketFile(t)
	l := take(t, s)
	r := request(t, s, 1)
	r.NoWait = false
	ticket, err := s.Join(background, r)
	must(t, err)
	guard, err := s.space.(*socketFile).guard(background, guardWait)
	must(t, err)
	must(t, l.Release(background))
	got := make(chan error)
	go func() {
		second, err := ticket.Wait(background)
		if err == nil {
			err = second.Release(background)
		}
		got <- err
	}()
	select {
	case err := <-got:
		t.Fatalf("Wait came through: %v", err)
	case <-time.After(guardWait * 3 / 2):
	}
	must(t, unix.Close(guard))
	must(t, <-got)
}

// Three sockets that were given back and live on, in a daemon, and newcomers all
// at once: one wins.
func TestAbstractGenerations(t *testing.T) {
	s, name := newAbstract(t)
	for range 3 {
		l := take(t, s)
		daemon, err := unix.Dup(l.(*lease).fd)
		must(t, err)
		defer unix.Close(daemon)
		must(t, l.Release(background))
	}
	if _, ok := list()["@"+name+"@2"]; !ok {
		t.Fatal("there are not three names")
	}
	for round := range 100 {
		var leases []locks.Lease
		var mu sync.Mutex
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				ticket, err := s.Join(background, request(t, s, 1))
				if err != nil {
					return
				}
				l, _ := ticket.Wait(background)
				mu.Lock()
				leases = append(leases, l)
				mu.Unlock()
			})
		}
		all.Wait()
		if len(leases) != 1 {
			t.Fatalf("round %d: %d have the slot", round, len(leases))
		}
		refused(t, s)
		must(t, leases[0].Release(background))
	}
}

// Who has an earlier name is seen by who comes to a later one, and the other way
// round.
func TestAbstractRivals(t *testing.T) {
	s, name := newAbstract(t)
	a := s.space.(*abstract)
	for _, g := range []int{0, 5} {
		fd, err := listenAt(generationName(name, 0, g))
		must(t, err)
		refused(t, s)
		if err := a.alone(0, 3); err != errTaken {
			t.Errorf("generation %d: %v", g, err)
		}
		must(t, unix.Close(fd))
		must(t, a.alone(0, 3))
	}
}
