//go:build integration

package redis_test

import (
	"context"
	"errors"
	"strconv"
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
	if err != nil {
		t.Fatal(err)
	}
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

// listening waits until n waiters have subscribed and the store knows it.
func listening(t testing.TB, server *redistest.Server, n int) {
	t.Helper()
	testkit.Eventually(t, "the waiters listen", func() bool {
		ears := 0
		for _, key := range server.Do("KEYS", "*:e").([]any) {
			for _, record := range server.Do("HVALS", key).([]any) {
				if fields := strings.Fields(record.(string)); len(fields) > 10 && fields[7] != "0" && fields[10] == "-" {
					ears++
				}
			}
		}
		return ears >= n && len(server.Do("PUBSUB", "CHANNELS").([]any)) >= n
	})
}

// asking makes those that wait ones that take no grant that they have not asked
// for, until their next look.
func asking(server *redistest.Server) {
	for _, key := range server.Do("KEYS", "*:e").([]any) {
		for _, id := range server.Do("HKEYS", key).([]any) {
			fields := strings.SplitN(server.Do("HGET", key, id).(string), " ", 12)
			if ears, err := strconv.Atoi(fields[7]); len(fields) == 12 && err == nil && ears > 1 {
				fields[7] = "1"
				server.Do("HSET", key, id, strings.Join(fields, " "))
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
