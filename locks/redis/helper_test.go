//go:build integration

package redis_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/locktest"
	"golock/locks/redis"
	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

var background = context.Background()

func open(t testing.TB, url string) *redis.Store {
	t.Helper()
	s, err := redis.Open(url)
	testkit.Must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// startServer starts a server, and gives a URL without quarantine: nothing restarts it.
func startServer(t *testing.T, options ...string) (*redistest.Server, string) {
	t.Helper()
	server := redistest.Start(t, options...)
	return server, server.SocketURL("quarantine=0")
}

// startStore starts a server, and opens a store without quarantine on it.
func startStore(t *testing.T, options ...string) (*redistest.Server, *redis.Store) {
	t.Helper()
	server, url := startServer(t, options...)
	return server, open(t, url)
}

// startProxy starts a server, with a store on it and another one behind a proxy.
func startProxy(t *testing.T) (_ *redistest.Server, direct *redis.Store, _ *redistest.Proxy, behind *redis.Store) {
	t.Helper()
	server, url := startServer(t)
	proxy := redistest.NewProxy(t, server)
	return server, open(t, url), proxy, open(t, proxy.URL())
}

// startQueue starts a server with a holder and a waiter that has subscribed.
func startQueue(t *testing.T, changes ...locktest.Change) (*redistest.Server, *redis.Store, locks.Lease, *locktest.Waiter) {
	t.Helper()
	server, s := startStore(t)
	holder, waiter := locktest.AcquireAtOnce(t, s, "n", changes...), locktest.Enqueue(t, s, "n", changes...)
	awaitWaiters(t, server, 1)
	return server, s, holder, waiter
}

// renewEventually renews again and again, as the runner does, until it succeeds.
func renewEventually(t testing.TB, l locks.Lease) {
	t.Helper()
	testkit.Eventually(t, "it renews", func() bool { return locktest.TryRenew(l) == nil })
}

// wantOutage fails unless an error is an outage and contains these words.
func wantOutage(t testing.TB, err error, words string) *locks.OutageError {
	t.Helper()
	var outage *locks.OutageError
	if !errors.As(err, &outage) || !strings.Contains(err.Error(), words) {
		t.Fatalf("%v, want an outage with %q", err, words)
	}
	return outage
}

// stateOf is the key of the state of the only lock.
func stateOf(t testing.TB, server *redistest.Server) string {
	t.Helper()
	return server.Do("KEYS", "golock:*:s").([]any)[0].(string)
}

// recordOf reads the record of an entry, or returns nil.
func recordOf(t testing.TB, server *redistest.Server, key, id any) (r map[string]any) {
	t.Helper()
	text, _ := server.Do("HGET", key, id).(string)
	if strings.HasPrefix(text, "{") {
		testkit.Must(t, json.Unmarshal([]byte(text), &r))
	}
	return r
}

// eachRecord reads all records.
func eachRecord(t testing.TB, server *redistest.Server, f func(key, id any, r map[string]any)) {
	t.Helper()
	for _, key := range server.Do("KEYS", "*:e").([]any) {
		for _, id := range server.Do("HKEYS", key).([]any) {
			if r := recordOf(t, server, key, id); r != nil {
				f(key, id, r)
			}
		}
	}
}

// lifetimes are those of all keys, by the ends of their names.
func lifetimes(server *redistest.Server) map[string]time.Duration {
	all := map[string]time.Duration{}
	for _, key := range server.Do("KEYS", "*").([]any) {
		name := key.(string)
		all[name[strings.LastIndexByte(name, ':')+1:]] = time.Duration(server.Do("PTTL", key).(int64)) * time.Millisecond
	}
	return all
}

func toJSON(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	testkit.Must(t, err)
	return string(text)
}

func channels(server *redistest.Server) []any { return server.Do("PUBSUB", "CHANNELS").([]any) }

// awaitWaiters waits until n waiters have subscribed and the script knows it.
func awaitWaiters(t testing.TB, server *redistest.Server, n int) {
	t.Helper()
	testkit.Eventually(t, "the waiters have subscribed", func() bool {
		known := 0
		eachRecord(t, server, func(_, _ any, r map[string]any) {
			if r["slots"] == "" && r["join"] != 0.0 {
				known++
			}
		})
		return known >= n && len(channels(server)) >= n
	})
}

// forgetJoins makes newcomers of all waiters: until they ask again no grant is published to
// them.
func forgetJoins(t testing.TB, server *redistest.Server) {
	t.Helper()
	eachRecord(t, server, func(key, id any, r map[string]any) {
		r["join"] = 0
		server.Do("HSET", key, id, toJSON(t, r))
	})
}

// awaitChannels waits until the server has that many channels.
func awaitChannels(t testing.TB, server *redistest.Server, n int) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprint(n, " are subscribed"), func() bool { return len(channels(server)) == n })
}

// scripts is how often the server has run the script.
func scripts(server *redistest.Server) int { return calls(server, "evalsha", "eval") }

// calls is how often the server has run these commands, those in scripts too.
func calls(server *redistest.Server, commands ...string) int {
	n := 0
	for _, command := range commands {
		calls, _, _ := strings.Cut(strings.TrimPrefix(server.Info("commandstats", "cmdstat_"+command), "calls="), ",")
		c, _ := strconv.Atoi(calls)
		n += c
	}
	return n
}

// failures are the errors of all questions to a store that no entry asks.
func failures(s *redis.Store) []error {
	listed := func(name string) error {
		_, err := s.Entries(background, name)
		return err
	}
	_, swept := s.Sweep(background, "", 0)
	ref, _ := locks.NewRef("n")
	return []error{listed(""), listed("n"), swept, s.Evict(background, []locks.Ref{ref}, "x")[0]}
}
