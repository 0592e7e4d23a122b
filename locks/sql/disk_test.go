//go:build integration

package sql_test

import (
	"strings"
	"sync"
	"testing"

	"golock/locks"
	"golock/locks/locktest"
	"golock/locks/locktest/server"
	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

// What a promise hangs on is on the disk before anybody is told; only what the
// next step makes good, or repeats, is not waited for. (That only PostgreSQL can
// tell one from the other is why it is asked alone.)
// Slow: a server of its own.
func TestWhatWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	b := postgresql().fresh(t)
	proxy := sqltest.NewProxy(t, b.server)
	var mu sync.Mutex
	var waits, goesOn int
	proxy.Judge(func(statement string) server.Verdict {
		mu.Lock()
		defer mu.Unlock()
		switch accepts := strings.Contains(statement, " AND state='O' AND conn="); {
		case accepts && !strings.Contains(statement, "synchronous_commit=off"): // or tries to
		case strings.HasSuffix(statement, "SET LOCAL synchronous_commit=off;COMMIT"):
			goesOn++
		case strings.Contains(statement, "set_config('synchronous_commit'"): // it waits unless it makes an offer
			goesOn++
		case strings.HasSuffix(statement, ";COMMIT"):
			waits++
		}
		return server.Pass
	})
	s := b.behind(t, proxy)
	locktest.Release(t, locktest.AcquireAtOnce(t, s, "n")) // makes table and name
	waits, goesOn = 0, 0
	said := func(what string, wantWaits, wantGoesOn int) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if waits != wantWaits || goesOn < wantGoesOn { // a waiter may look once more
			t.Errorf("%s: %d commits wait and %d go on, want %d and %d", what, waits, goesOn, wantWaits, wantGoesOn)
		}
		waits, goesOn = 0, 0
	}
	holder := locktest.AcquireAtOnce(t, s, "n")
	said("a grant", 1, 0)
	locktest.Renew(t, holder)
	said("a renewal", 1, 0)
	first := locktest.Enqueue(t, s, "n")
	b.listening(t, 1)
	said("a place in the queue", 0, 1)
	evicted := locktest.Enqueue(t, s, "n")
	b.listening(t, 2)
	said("another", 0, 1)
	testkit.Must(t, s.Evict(background, []locks.Ref{evicted.Ref}, "the test")[0])
	evicted.AwaitEnd()
	said("an eviction, and the look of the one that learns of it", 1, 1)
	locktest.Release(t, holder)
	last := first.ExpectGrant()
	said("a release with an offer", 0, 1)
	replacing := locktest.Enqueue(t, s, "n", locktest.Hold(locktest.LongTTL))
	said("another place", 0, 1)
	testkit.Must(t, s.Evict(background, []locks.Ref{last.Grant().Ref}, "the test")[0])
	said("the eviction of a holder", 1, 0)
	locktest.Release(t, last)
	last = replacing.ExpectGrant()
	said("its release, and an offer to one with a hold", 0, 1)
	locktest.Release(t, last)
	said("a release that leaves the slot to its hold", 1, 0)
}
