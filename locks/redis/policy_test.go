//go:build integration

package redis_test

import (
	"errors"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/locktest"
	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// No key of a name goes before its hold is over, whatever else happens to it.
func TestKeysOutliveHold(t *testing.T) {
	t.Parallel()
	server, s := startStore(t)
	locktest.Release(t, locktest.AcquireAtOnce(t, s, "n", locktest.Limit(3), locktest.TTL(time.Second), locktest.Hold(48*time.Hour)))
	locktest.Release(t, locktest.AcquireAtOnce(t, s, "n", locktest.Limit(3), locktest.TTL(time.Second)))
	locktest.ExpectBusy(t, s, "n")
	keys := lifetimes(server)
	delete(keys, "g") // tombstones
	for key, left := range keys {
		if left < 48*time.Hour-testkit.Patience || left > 96*time.Hour {
			t.Errorf("%s goes in %v", key, left)
		}
	}
	if len(keys) < 4 {
		t.Errorf("%d keys", len(keys))
	}
}

// A holder that the server forgot brings its hold back with it.
func TestHoldSurvivesFlush(t *testing.T) {
	t.Parallel()
	server, s := startStore(t)
	l := locktest.AcquireAtOnce(t, s, "n", locktest.Hold(time.Hour))
	server.Do("FLUSHALL")
	locktest.Renew(t, l)
	locktest.Release(t, l)
	holders := locktest.ExpectBusy(t, s, "n").Holders
	if len(holders) != 1 || !holders[0].Ended || time.Until(holders[0].HeldTill) < time.Hour-testkit.Patience {
		t.Errorf("holders %+v", holders)
	}
}

// A waiter that becomes the first is told when a hold ends, although the lease of another
// holder ends sooner: that may be renewed.
func TestHoldEndsBesideAHolder(t *testing.T) {
	t.Parallel()
	const hold, short = 10 * time.Second, 5 * time.Second // waiters come before the short lease is over
	server, s := startStore(t)
	waits := locktest.TTL(3 * locktest.LongTTL) // so that they look by themselves half a minute later at the earliest
	ended := locktest.AcquireAtOnce(t, s, "n", locktest.Limit(2), waits, locktest.Hold(hold))
	locktest.AcquireAtOnce(t, s, "n", locktest.Limit(2), locktest.TTL(short))
	first := locktest.Enqueue(t, s, "n", locktest.Limit(2), waits)
	second := locktest.Enqueue(t, s, "n", locktest.Limit(2), waits)
	awaitWaiters(t, server, 2)
	began := time.Now()
	locktest.Release(t, ended)
	first.Cancel()
	second.ExpectGrant()
	testkit.Lasted(t, began, 0, hold+15*time.Second)
}

// A waiter that gives up while the answer with its grant is on the way has begun
// nothing, so nothing stays of it.
func TestLeavingLeavesNoHold(t *testing.T) {
	t.Parallel()
	_, direct, proxy, behind := startProxy(t)
	holder := locktest.AcquireAtOnce(t, direct, "n")
	w := locktest.Enqueue(t, behind, "n", locktest.Hold(time.Hour))
	proxy.Judge(func(mode string) redistest.Verdict {
		if mode == "join" {
			return redistest.LoseReply
		}
		return redistest.Pass
	})
	locktest.Release(t, holder)
	locktest.AwaitEntries(t, direct, "n", locktest.Counts{Holding: 1})
	w.Cancel()
	w.AwaitEnd()
	locktest.AwaitEntries(t, direct, "n", locktest.Counts{})
}

// Who is evicted before it knows of its grant does not begin: its lease is as old
// as the grant, which it has no way to tell.
func TestEvictedBeforeItKnows(t *testing.T) {
	t.Parallel()
	_, url := startServer(t)
	s := open(t, url)
	unaware := locktest.NewRequest(t, "n")
	_, err := s.Join(background, unaware) // and the answer is lost
	testkit.Must(t, err)
	testkit.Must(t, s.Evict(background, []locks.Ref{unaware.Ref}, "user anna")[0])
	_, err = open(t, url).Join(background, unaware)
	var evicted *locks.EvictedError
	if !errors.As(err, &evicted) || evicted.By != "user anna" {
		t.Errorf("Join = %v, want an EvictedError by user anna", err)
	}
	locktest.AcquireAtOnce(t, s, "n")
}
