//go:build integration

package redis_test

import (
	"cmp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/locktest"
	"golock/locks/locktest/server"
	"golock/locks/redis"
	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// user makes a user with these changes to all rights, and gives the start of its URL.
func user(t *testing.T, server *redistest.Server, rights ...any) string {
	t.Helper()
	server.Do(append([]any{"ACL", "SETUSER", "job", "on", ">s3cret", "~golock:*", "&*", "+@all"}, rights...)...)
	return "redis://job:s3cret@" + server.Addr()
}

// Without the right to publish and subscribe waiters ask now and then.
func TestNoPubSub(t *testing.T) {
	t.Parallel()
	server, _ := startServer(t)
	url := user(t, server, "-subscribe", "-publish", "resetchannels") + "?quarantine=0"
	holder := locktest.AcquireAtOnce(t, open(t, url), "n")
	s := open(t, url)
	first, second := locktest.Enqueue(t, s, "n"), locktest.Enqueue(t, open(t, url), "n")
	testkit.Eventually(t, "the store says that it hears nothing", func() bool {
		return len(s.Warnings(true)) == 1 && strings.Contains(s.Warnings(true)[0], "&golock:*")
	})
	first.ExpectWaiting()
	locktest.Release(t, holder)
	l := first.ExpectGrant()
	second.ExpectWaiting()
	locktest.Release(t, l)
	second.ExpectGrant()
}

// Without the right to INFO all works but the quarantine, and the store says so.
func TestNoInfo(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, user(t, server, "-info"))
	if w := s.Warnings(false); len(w) != 0 {
		t.Errorf("warnings before the first use: %q", w)
	}
	l := locktest.AcquireAtOnce(t, s, "n")
	if w := s.Warnings(false); len(w) != 1 || !strings.Contains(w[0], "INFO") {
		t.Errorf("warnings %q", w)
	}
	locktest.Renew(t, l)
	if s := open(t, server.URL()); len(s.Warnings(false)) != 0 {
		t.Error("a warning for who may ask")
	}
}

// What another version stored, or is of another name with the same hash, is left as it is.
func TestForeignState(t *testing.T) {
	t.Parallel()
	server, s := startStore(t)
	l := locktest.AcquireAtOnce(t, s, "n")
	state := stateOf(t, server)
	server.Do("HSET", state, "format", "99")
	_, renewErr := l.Renew(background)
	for _, err := range append(failures(s), locktest.ExpectFinalError(t, s, "n"), renewErr, l.Release(background)) {
		locktest.ExpectError(t, err, "99", "format 3")
	}
	if got := server.Do("HGET", state, "format"); got != "99" {
		t.Errorf("format %v", got)
	}
	server.Do("HSET", state, "format", "3")
	locktest.Renew(t, l)
	server.Do("HSET", state, "name", "other")
	locktest.ExpectError(t, locktest.ExpectFinalError(t, s, "n"), "other")
}

// Every key expires.
func TestKeysExpire(t *testing.T) {
	t.Parallel()
	server, s := startStore(t)
	const short = 10 * time.Second
	locktest.AcquireAtOnce(t, s, "n", locktest.TTL(short))
	locktest.Enqueue(t, s, "n", locktest.TTL(short))
	locktest.ExpectBusy(t, s, "n", locktest.TTL(short))
	longer := map[string]time.Duration{"g": 10 * time.Minute, "names": 24 * time.Hour}
	for key, left := range lifetimes(server) {
		if left <= 0 || left > cmp.Or(longer[key], 10*short) {
			t.Errorf("%s ends in %v", key, left)
		}
	}
}

// Also those of a name whose only request did not await the end of the quarantine.
func TestKeysExpireAfterQuarantine(t *testing.T) {
	t.Parallel()
	server, _ := startServer(t)
	r := locktest.NewRequest(t, "n")
	r.NoWait = true
	_, err := open(t, server.SocketURL("quarantine=20s")).Join(background, r)
	wantOutage(t, err, "restarted")
	for key, left := range lifetimes(server) {
		if left <= 0 {
			t.Errorf("%s ends in %v", key, left)
		}
	}
}

// The eviction of somebody who is not there leaves nothing.
func TestEvictNobody(t *testing.T) {
	t.Parallel()
	server, s := startStore(t)
	ref, err := locks.NewRef("n")
	testkit.Must(t, err)
	locktest.ExpectGone(t, s, ref)
	if keys := lifetimes(server); len(keys) > 0 {
		t.Errorf("it has left %v", keys)
	}
}

// The rights that docs/stores.md names are enough.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	server, _ := startServer(t)
	server.Do("ACL", "SETUSER", "job", "on", ">s3cret", "~golock:*", "&golock:*",
		"+evalsha", "+eval", "+time", "+info", "+publish", "+subscribe", "+pubsub|numsub", "+pexpire", "+pttl",
		"+@hash", "+@sortedset")
	s := open(t, "redis://job:s3cret@"+server.Addr()+"?quarantine=0")
	holder := locktest.AcquireAtOnce(t, s, "n")
	w := locktest.Enqueue(t, s, "n")
	locktest.ExpectEntries(t, s, "n", locktest.Counts{Holding: 1, Waiting: 1})
	locktest.ExpectEntries(t, s, "", locktest.Counts{Holding: 1, Waiting: 1})
	locktest.Renew(t, holder)
	locktest.Release(t, holder)
	locktest.Release(t, w.ExpectGrant())
	locktest.ExpectSwept(t, s, 0, 0)
	if warnings := append(s.Warnings(false), s.Warnings(true)...); len(warnings) != 0 {
		t.Errorf("warnings: %q", warnings)
	}
	if log, _ := server.Do("ACL", "LOG").([]any); len(log) != 0 {
		t.Errorf("denied: %v", log)
	}
}

// Sweep removes expired entries and unused names, and nothing else.
func TestSweep(t *testing.T) {
	t.Parallel()
	server, s := startStore(t)
	locktest.ExpectSwept(t, s, 0, 0)
	live := locktest.AcquireAtOnce(t, s, "live")
	w := locktest.Enqueue(t, s, "live")
	dead := locktest.AcquireAtOnce(t, s, "dead", locktest.TTL(time.Second), locktest.Limit(2))
	locktest.AcquireAtOnce(t, s, "dead", locktest.Limit(2))
	testkit.Eventually(t, "the lease has ended", func() bool { return len(locktest.List(t, s, "dead")) == 1 })
	keys := "golock:{" + locks.KeyOf("dead").String() + "}:"
	stored := func(want int64) {
		t.Helper()
		if n := server.Do("HLEN", keys+"e"); n != want {
			t.Fatalf("%v entries are stored, want %d", n, want)
		}
	}
	stored(2)
	locktest.ExpectSwept(t, s, time.Hour, 0)
	locktest.ExpectSwept(t, s, 0, 1)
	stored(1)
	if err := dead.Release(background); err != locks.ErrLost {
		t.Errorf("Release = %v", err)
	}
	for _, key := range server.Do("KEYS", keys+"*").([]any) {
		server.Do("DEL", key)
	}
	locktest.ExpectSwept(t, s, 0, 1)
	if n := server.Do("ZCARD", "golock:names"); n != int64(1) {
		t.Errorf("%v names are listed", n)
	}
	locktest.AwaitEntries(t, s, "live", locktest.Counts{Holding: 1, Waiting: 1})
	locktest.Renew(t, live)
	locktest.Release(t, live)
	w.ExpectGrant()
}

// The server's certificate is checked, and the client's is shown.
func TestTLS(t *testing.T) {
	t.Parallel()
	const name = "lock.example"
	cert, key, err := server.NewCertificate(t.TempDir(), name)
	testkit.Must(t, err)
	port := strconv.Itoa(redistest.FreePort(t))
	redistest.Start(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert)
	locktest.TLS(t, name, cert, key, func(url string) (locks.Store, error) { return redis.Open(url) }, func(options ...string) string {
		return "rediss://127.0.0.1:" + port + "?" + strings.Join(append(options, "quarantine=0"), "&")
	})
}
