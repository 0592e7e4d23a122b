//go:build integration

package sql_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"golock/locks"
	. "golock/locks/locktest"
	"golock/locks/sql/sqltest"
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
	var commits []string
	proxy.Judge(func(statement string) sqltest.Verdict {
		mu.Lock()
		defer mu.Unlock()
		switch accepts := strings.Contains(statement, " AND state='O' AND conn="); {
		case accepts && strings.HasSuffix(statement, ";COMMIT") && !strings.Contains(statement, "synchronous_commit=off"): // or tries to
		case strings.HasSuffix(statement, "SET LOCAL synchronous_commit=off;COMMIT"):
			commits = append(commits, "goes on")
		case strings.HasSuffix(statement, ";COMMIT"):
			commits = append(commits, "waits")
		}
		return sqltest.Pass
	})
	s := b.openURL(t, proxy.URL(b.name, "quarantine=0"))
	Release(t, Take(t, s, "n")) // makes table and name
	said := func(what string, want ...string) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(commits, want) {
			t.Errorf("%s: %q, want %q", what, commits, want)
		}
		commits = nil
	}
	commits = nil
	holder := Take(t, s, "n")
	said("a grant", "waits")
	Renew(t, holder)
	said("a renewal", "waits")
	first := Queue(t, s, "n")
	b.listening(t, 1)
	said("a place in the queue", "goes on")
	evicted := Queue(t, s, "n")
	b.listening(t, 2)
	said("another", "goes on")
	if err := s.Evict(background, evicted.Ref, "the test"); err != nil {
		t.Fatal(err)
	}
	evicted.Ended()
	said("an eviction, and the look of the one that learns of it", "waits", "goes on")
	Release(t, holder)
	last := first.Granted()
	said("a release with an offer", "goes on")
	replacing := Queue(t, s, "n", func(r *locks.Request) { r.Hold = LongTTL })
	said("another place", "goes on")
	if err := s.Evict(background, last.Grant().Ref, "the test"); err != nil {
		t.Fatal(err)
	}
	said("the eviction of a holder", "waits")
	Release(t, last)
	last = replacing.Granted()
	said("its release, and an offer to one with a hold", "goes on")
	Release(t, last)
	said("a release that leaves the slot to its hold", "waits")
}
