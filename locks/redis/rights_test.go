//go:build integration

package redis_test

import (
	. "golock/locks/locktest"
	"strings"
	"testing"
	"time"

	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// user makes one with some rights only and gives the start of its URL.
func user(t *testing.T, server *redistest.Server, rights ...any) string {
	t.Helper()
	server.Do(append([]any{"ACL", "SETUSER", "job", "on", ">s3cret", "~golock:*", "&*", "+@all"}, rights...)...)
	return "redis://job:s3cret@" + server.Addr()
}

// Without the right to publish and subscribe waiters look by the clock.
func TestNoPubSub(t *testing.T) {
	t.Parallel()
	server, _ := steady(t)
	url := user(t, server, "-subscribe", "-publish", "resetchannels") + "?quarantine=0"
	holder := Take(t, open(t, url), "n")
	s := open(t, url)
	first, second := Queue(t, s, "n"), Queue(t, open(t, url), "n")
	testkit.Eventually(t, "the store says that it hears nothing", func() bool {
		return len(s.Warnings()) == 1 && strings.Contains(s.Warnings()[0], "&golock:*")
	})
	first.Waits()
	Release(t, holder)
	l := first.Granted()
	second.Waits()
	Release(t, l)
	second.Granted()
}

// Without the right to INFO all works but the quarantine, and the store says so.
func TestNoInfo(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, user(t, server, "-info"))
	if w := s.Warnings(); len(w) != 0 {
		t.Errorf("warnings before the first use: %q", w)
	}
	l := Take(t, s, "n")
	if w := s.Warnings(); len(w) != 1 || !strings.Contains(w[0], "INFO") {
		t.Errorf("warnings %q", w)
	}
	Renew(t, l)
	if s := open(t, server.URL()); len(s.Warnings()) != 0 {
		t.Error("a warning for who may ask")
	}
}

// A missing right to run scripts is told at once.
func TestNoScripts(t *testing.T) {
	t.Parallel()
	server, _ := steady(t)
	if err := Denied(t, open(t, user(t, server, "-evalsha")), "n"); !strings.Contains(err.Error(), "EVALSHA") {
		t.Errorf("Join = %v", err)
	}
}

// What another version stored is left as it is.
func TestUnknownFormat(t *testing.T) {
	t.Parallel()
	server, url := steady(t)
	s := open(t, url)
	l := Take(t, s, "n")
	state := stateKey(t, server)
	server.Do("HSET", state, "format", "99")
	_, renewErr := l.Renew(background)
	_, listErr := entries(s, "n")
	_, sweepErr := s.Sweep(background, "", 0)
	for _, err := range []error{Denied(t, s, "n"), renewErr, l.Release(background), listErr, sweepErr} {
		if err == nil || !strings.Contains(err.Error(), "99") || !strings.Contains(err.Error(), "format 3") {
			t.Errorf("error %v names not both formats", err)
		}
	}
	if got := server.Do("HGET", state, "format"); got != "99" {
		t.Errorf("format %v", got)
	}
	server.Do("HSET", state, "format", "3")
	Renew(t, l)
}

// Two names with one hash are told apart.
func TestHashCollision(t *testing.T) {
	t.Parallel()
	server, url := steady(t)
	s := open(t, url)
	Take(t, s, "n")
	server.Do("HSET", stateKey(t, server), "name", "other")
	if err := Denied(t, s, "n"); !strings.Contains(err.Error(), "other") {
		t.Errorf("Join = %v", err)
	}
}

// Nothing is stored without an end.
func TestKeysExpire(t *testing.T) {
	t.Parallel()
	server, url := steady(t)
	s := open(t, url)
	const short = 10 * time.Second
	Take(t, s, "n", TTL(short))
	Queue(t, s, "n", TTL(short))
	Refused(t, s, "n", TTL(short))
	for _, key := range server.Do("KEYS", "*").([]any) {
		limit := 10 * short
		if strings.HasSuffix(key.(string), ":g") {
			limit = 10 * time.Minute
		}
		if strings.HasSuffix(key.(string), ":names") {
			limit = 24 * time.Hour
		}
		if left := server.Do("PTTL", key).(int64); left <= 0 || left > limit.Milliseconds() {
			t.Errorf("%s ends in %d ms", key, left)
		}
	}
}

func stateKey(t *testing.T, server *redistest.Server) string {
	t.Helper()
	for _, key := range server.Do("KEYS", "golock:*:s").([]any) {
		return key.(string)
	}
	t.Fatal("no state")
	return ""
}

// The rights that docs/stores.md names are enough.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	server, _ := steady(t)
	server.Do("ACL", "SETUSER", "job", "on", ">s3cret", "~golock:*", "&golock:*",
		"+evalsha", "+eval", "+time", "+info", "+publish", "+subscribe", "+pubsub|numsub", "+pexpire", "+pttl", "+@hash", "+@sortedset")
	s := open(t, "redis://job:s3cret@"+server.Addr()+"?quarantine=0")
	holder := Take(t, s, "n")
	w := Queue(t, s, "n")
	if len(List(t, s, "n")) != 2 || len(List(t, s, "")) != 2 {
		t.Error("not both are listed")
	}
	Renew(t, holder)
	Release(t, holder)
	Release(t, w.Granted())
	sweep(t, s, 0, 0)
	if warnings := s.Warnings(); len(warnings) != 0 {
		t.Errorf("warnings: %q", warnings)
	}
	if log, _ := server.Do("ACL", "LOG").([]any); len(log) != 0 {
		t.Errorf("denied: %v", log)
	}
}
