//go:build integration

package redis_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"golock/locks"
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

// renewUntil renews again and again, as the runner does, until it is answered.
func renewUntil(l locks.RenewableLease, end time.Time) error {
	for {
		ctx, cancel := context.WithTimeout(background, 500*time.Millisecond)
		_, err := l.Renew(ctx)
		cancel()
		if err == nil || errors.Is(err, locks.ErrLost) || time.Now().After(end) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// recordOf reads the record of an entry; nil: there is none.
func recordOf(t testing.TB, server *redistest.Server, key, id any) (r map[string]any) {
	t.Helper()
	text, _ := server.Do("HGET", key, id).(string)
	if strings.HasPrefix(text, "{") {
		testkit.Must(t, json.Unmarshal([]byte(text), &r))
	}
	return r
}

func toJSON(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	testkit.Must(t, err)
	return string(text)
}

// listening waits until n waiters have subscribed and the store knows it.
func listening(t testing.TB, server *redistest.Server, n int) {
	t.Helper()
	testkit.Eventually(t, "the waiters listen", func() bool {
		ears := 0
		for _, key := range server.Do("KEYS", "*:e").([]any) {
			for _, id := range server.Do("HKEYS", key).([]any) {
				if r := recordOf(t, server, key, id); r["slots"] == "" && r["join"] != 0.0 {
					ears++
				}
			}
		}
		return ears >= n && len(server.Do("PUBSUB", "CHANNELS").([]any)) >= n
	})
}

// asking makes those that wait newcomers, who take no grant that they have not asked
// for, until their next look.
func asking(t testing.TB, server *redistest.Server) {
	t.Helper()
	for _, key := range server.Do("KEYS", "*:e").([]any) {
		for _, id := range server.Do("HKEYS", key).([]any) {
			if r := recordOf(t, server, key, id); r != nil {
				r["join"] = 0
				server.Do("HSET", key, id, toJSON(t, r))
			}
		}
	}
}

// subscribed waits until the server has that many channels.
func subscribed(t testing.TB, server *redistest.Server, n int) {
	t.Helper()
	testkit.Eventually(t, "the server has as many channels as it should", func() bool {
		return len(server.Do("PUBSUB", "CHANNELS").([]any)) == n
	})
}

// entries gives what the store shows of a name, or why not.
func entries(s *redis.Store, name string) (all []locks.Entry, err error) {
	for e, err := range s.Entries(background, name) {
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}
