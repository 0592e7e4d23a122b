//go:build integration

package redis_test

import (
	"fmt"
	"testing"
	"time"

	"golock/locks"
	. "golock/locks/locktest"
	"golock/locks/redis"
	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

func sweep(t testing.TB, s *redis.Store, olderThan time.Duration, want int) {
	t.Helper()
	if n, err := s.Sweep(background, "", olderThan); n != want || err != nil {
		t.Fatalf("Sweep = %d, %v, want %d", n, err, want)
	}
}

// Entries whose time is over go, those that live stay, and so do the names that
// something is stored of.
func TestSweep(t *testing.T) {
	t.Parallel()
	server, url := steady(t)
	s := open(t, url)
	sweep(t, s, 0, 0)
	live := Take(t, s, "live")
	w := Queue(t, s, "live")
	short := open(t, url)
	dead := Take(t, short, "dead", TTL(time.Second), Limit(2))
	Take(t, short, "dead", Limit(2))
	testkit.Eventually(t, "the lease has ended", func() bool { return len(List(t, s, "dead")) == 1 })
	if n := server.Do("HLEN", entriesKey(t, server, "dead")); n != int64(2) {
		t.Fatalf("%v entries are stored, want the dead one too", n)
	}
	sweep(t, s, time.Hour, 0)
	sweep(t, s, 0, 1)
	if n := server.Do("HLEN", entriesKey(t, server, "dead")); n != int64(1) {
		t.Fatalf("%v entries are left", n)
	}
	if err := dead.Release(background); err != locks.ErrLost {
		t.Errorf("Release = %v", err)
	}
	for _, key := range server.Do("KEYS", "golock:{"+locks.KeyOf("dead").String()+"}*").([]any) {
		server.Do("DEL", key)
	}
	sweep(t, s, 0, 1)
	if n := server.Do("ZCARD", "golock:names"); n != int64(1) {
		t.Errorf("%v names are listed", n)
	}
	Becomes(t, s, "live", 1, 1)
	Renew(t, live)
	Release(t, live)
	w.Granted()
}

func entriesKey(t testing.TB, server *redistest.Server, name string) string {
	t.Helper()
	return "golock:{" + locks.KeyOf(name).String() + "}:e"
}

// In a Cluster every name is cleaned up where it lives.
func TestSweepInCluster(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.StartCluster(t).URL("quarantine=0"))
	for i := range 6 {
		Take(t, s, fmt.Sprint("n", i), TTL(time.Second))
	}
	testkit.Eventually(t, "all names are listed", func() bool {
		n, err := s.Sweep(background, "", time.Hour)
		return n == 0 && err == nil && len(List(t, s, "")) == 0
	})
	removed := 0
	testkit.Eventually(t, "all are removed", func() bool {
		n, err := s.Sweep(background, "", 0)
		testkit.Must(t, err)
		removed += n
		return removed == 6
	})
}
