//go:build integration

package redis_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golock/locks"
	. "golock/locks/locktest"
	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// No key of a name goes before its hold is over, whatever else happens to it.
func TestKeysOutliveHold(t *testing.T) {
	t.Parallel()
	server, url := steady(t)
	s := open(t, url)
	Release(t, Take(t, s, "n", Limit(3), TTL(time.Second), Hold(48*time.Hour)))
	Release(t, Take(t, s, "n", Limit(3), TTL(time.Second)))
	Refused(t, s, "n")
	checked := 0
	for _, key := range server.Do("KEYS", "*").([]any) {
		if strings.HasSuffix(key.(string), ":g") {
			continue // who has gone
		}
		checked++
		if left := server.Do("PTTL", key).(int64); left < (48*time.Hour-testkit.Patience).Milliseconds() || left > (96*time.Hour).Milliseconds() {
			t.Errorf("%s goes in %v", key, time.Duration(left)*time.Millisecond)
		}
	}
	if checked < 4 {
		t.Errorf("%d keys", checked)
	}
}

// A holder that the server forgot brings its hold back with it.
func TestHoldSurvivesFlush(t *testing.T) {
	t.Parallel()
	server, url := steady(t)
	s := open(t, url)
	l := Take(t, s, "n", Hold(time.Hour))
	server.Do("FLUSHALL")
	Renew(t, l)
	Release(t, l)
	busy := Refused(t, s, "n")
	if len(busy.Holders) != 1 || !busy.Holders[0].Ended || time.Until(busy.Holders[0].HeldTill) < time.Hour-testkit.Patience {
		t.Errorf("holders %+v", busy.Holders)
	}
}

// A waiter that gives up while the answer with its grant is on the way has begun
// nothing, so nothing stays of it.
func TestLeavingLeavesNoHold(t *testing.T) {
	t.Parallel()
	server, url := steady(t)
	proxy := redistest.NewProxy(t, server)
	watch := open(t, url)
	holder := Take(t, watch, "n")
	w := Queue(t, open(t, proxy.URL("quarantine=0")), "n", Hold(time.Hour))
	proxy.Judge(func(args []string) redistest.Verdict {
		if redistest.Mode(args) == "join" {
			return redistest.LoseReply
		}
		return redistest.Pass
	})
	Release(t, holder)
	Becomes(t, watch, "n", 1, 0)
	w.Cancel()
	w.Ended()
	Becomes(t, watch, "n", 0, 0)
}

// Who is evicted before it knows of its grant does not begin: its lease is as old
// as the grant, which it has no way to tell.
func TestEvictedBeforeItKnows(t *testing.T) {
	t.Parallel()
	_, url := steady(t)
	s := open(t, url)
	unaware := NewRequest(t, "n")
	if _, err := s.Join(background, unaware); err != nil { // and the answer is lost
		t.Fatal(err)
	}
	testkit.Must(t, s.Evict(background, unaware.Ref, "user anna"))
	var evicted *locks.EvictedError
	if _, err := open(t, url).Join(background, unaware); !errors.As(err, &evicted) || evicted.By != "user anna" {
		t.Errorf("Join = %v, want an EvictedError", err)
	}
	Take(t, s, "n")
}

// Likewise a waiter.
func TestEvictedWaiterBeforeItKnows(t *testing.T) {
	t.Parallel()
	server, url := steady(t)
	proxy := redistest.NewProxy(t, server)
	watch := open(t, url)
	holder := Take(t, watch, "n")
	w := Queue(t, open(t, proxy.URL("quarantine=0")), "n")
	listening(t, server, 1)
	asking(t, server)
	proxy.Judge(func(args []string) redistest.Verdict {
		if redistest.Mode(args) == "join" {
			return redistest.LoseReply
		}
		return redistest.Pass
	})
	Release(t, holder)
	Becomes(t, watch, "n", 1, 0)
	testkit.Must(t, watch.Evict(background, List(t, watch, "n")[0].Ref, "user anna"))
	proxy.Judge(func([]string) redistest.Verdict { return redistest.Pass })
	w.Ended()
	var evicted *locks.EvictedError
	if !errors.As(w.Err, &evicted) {
		t.Errorf("Wait = %v, want an EvictedError", w.Err)
	}
	Becomes(t, watch, "n", 0, 0)
}
