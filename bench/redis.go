package main

import (
	"context"
	"debug/buildinfo"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"golang.org/x/sys/unix"
)

// redisPlan says how much is measured of the Redis store.
type redisPlan struct {
	start   int // rounds of the start-up comparison
	trips   int // runs whose round trips are counted
	single  int // hand-offs with one waiter
	queue   int // rounds of hand-offs with waiters
	waiters int
	burst   int // rounds
	jobs    int
	section int // ms that each of the jobs lasts
	idle    int // waiters that are watched
	settle  int // seconds before they are
	ttl     int // of theirs, in seconds; they are watched for two thirds of it
	memory  int // samples
	link    int // rounds
}

//go:embed testdata/poll.go
var pollGo []byte

// addRedis looks for the server and builds the client that polls.
func (b *bench) addRedis() error {
	redis.SetLogger(&logging.VoidLogger{})
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return errors.New("redis-server is not installed: run .ci/deps")
	}
	if path, err = filepath.Abs(path); err != nil {
		return err
	}
	b.tools["redis-server"] = &tool{name: "redis-server", path: path, version: firstLine(path, "--version")}
	poll := &tool{name: "polling client", path: filepath.Join(b.dir, "poll")}
	if err := b.buildGo(poll.path, pollGo); err != nil {
		return err
	}
	if info, err := buildinfo.ReadFile(poll.path); err == nil {
		for _, d := range info.Deps {
			if strings.HasPrefix(d.Path, "github.com/redis/go-redis/") {
				poll.version = "SET NX every 100 ms, " + d.Path + " " + d.Version
			}
		}
	}
	b.tools["poll"] = poll
	return nil
}

// pollNote explains the row of the tables.
const pollNote = "polling client: a lock made at home: SET NX PX every 100 ms with go-redis as it comes, a script that deletes the key; no order, no renewal, no guard"

// server is a Redis server on loopback that keeps nothing.
type server struct {
	*process
	address string // HOST:PORT
	client  *redis.Client
}

// startServer starts one on a free port, with these options besides, and returns
// when it answers.
func (b *bench) startServer(options ...string) (*server, error) {
	for range 10 {
		l, err := b.place("redis")
		if err != nil {
			return nil, err
		}
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		socket := filepath.Join(l.dir, "socket")
		p, err := b.start(append([]string{
			b.tools["redis-server"].path, "--bind", "127.0.0.1", "--port", port, "--unixsocket", socket,
			"--dir", l.dir, "--save", "", "--appendonly", "no", "--daemonize", "no",
		}, options...))
		if err != nil {
			return nil, err
		}
		s := &server{process: p, address: net.JoinHostPort("127.0.0.1", port)}
		// By its socket, which it opens last and nobody else can have.
		s.client = redis.NewClient(&redis.Options{Network: "unix", Addr: socket, Protocol: 2, DisableIdentity: true, PoolSize: 1, MaxRetries: -1, DialerRetries: 1})
		err = b.until("redis-server answers", time.Millisecond, func() (bool, error) {
			if p.gone() {
				return false, errors.New("redis-server has ended")
			}
			return unix.Access(socket, unix.W_OK) == nil && s.client.Ping(context.Background()).Err() == nil, nil
		})
		if err == nil {
			return s, nil
		}
		gone := p.gone() // somebody else was quicker at the port
		s.stop()
		if !gone {
			return nil, err
		}
	}
	return nil, errors.New("redis-server does not start" + b.logTail())
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// stop ends it; it has nothing to save.
func (s *server) stop() {
	_ = s.client.Close()
	s.b.mu.Lock()
	if !s.b.stopped { // else it may have been reaped already
		_ = unix.Kill(s.pid, unix.SIGKILL)
	}
	s.b.mu.Unlock()
	_, _ = s.wait()
}

// url is that of a store. The server is young, and nobody has anything on it
// that it may have forgotten.
func (s *server) url(lock) string { return "redis://" + s.address + "?quarantine=0" }

// golock is golock on this server.
func (s *server) golock(b *bench, flags ...string) *tool {
	name := strings.Join(append([]string{"golock run, redis"}, flags...), " ")
	t := golockTool(name, b.tools["golock"].path, s.url, flags...)
	t.waiting = s.listening
	return t
}

// poll is the polling client on this server.
func (s *server) poll(b *bench) *tool {
	t := *b.tools["poll"]
	t.argv = func(l lock, command ...string) []string {
		return append([]string{t.path, s.address, l.name}, command...)
	}
	t.waiting = s.polling
	return &t
}

// listening counts the waiters of golock: each is subscribed to a channel of
// its own, and so is the holder after a tenth of a second.
func (s *server) listening(lock) (int, error) {
	channels, err := s.client.PubSubChannels(context.Background(), "golock:*").Result()
	return len(channels) - 1, err
}

// polling counts the clients that have asked for the key, the holder apart.
func (s *server) polling(lock) (int, error) {
	list, err := s.client.ClientList(context.Background()).Result()
	return strings.Count(list, " cmd=set ") - 1, err
}

// usage is what the server has done since it was started.
type usage struct {
	calls map[string]int // by command, those of scripts included
	reads int            // from connections, the harness' own included
}

func (s *server) usage() (usage, error) {
	u := usage{calls: map[string]int{}}
	text, err := s.client.Do(context.Background(), "INFO", "stats", "commandstats").Text()
	if err != nil {
		return u, fmt.Errorf("INFO: %w", err)
	}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if key == "total_reads_processed" {
			u.reads, err = strconv.Atoi(value)
		} else if command, is := strings.CutPrefix(key, "cmdstat_"); is {
			calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			u.calls[command], err = strconv.Atoi(calls)
		}
		if err != nil {
			return u, fmt.Errorf("INFO: %q: %w", line, err)
		}
	}
	return u, nil
}

// since is what was done between the two.
func (u usage) since(before usage) usage {
	d := usage{calls: map[string]int{}, reads: u.reads - before.reads - 1} // one was for the first INFO
	for command, n := range u.calls {
		if n -= before.calls[command]; n > 0 {
			d.calls[command] = n
		}
	}
	return d
}

func (u usage) scripts() int { return u.calls["evalsha"] + u.calls["eval"] }

// asked counts what clients send, as opposed to what scripts call.
func (u usage) asked() int {
	n := u.scripts()
	for _, command := range []string{"hello", "auth", "select", "set", "ping", "subscribe", "unsubscribe", "client|setinfo", "client|maint_notifications"} {
		n += u.calls[command]
	}
	return n
}
