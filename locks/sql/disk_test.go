package sql_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"golock/locks"
	"golock/locks/sql/sqltest"
)

// What a promise hangs on is on the disk before anybody is told; only what the
// next step makes good, or repeats, is not waited for. (That only PostgreSQL can
// tell one from the other is why it is asked alone.)
func TestWhatWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	b := postgresql().fresh(t)
	proxy := sqltest.NewProxy(t, b.server)
	var mu sync.Mutex
	var commits []string
	proxy.Judge(func(statement string) sqltest.Verdict {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case strings.HasSuffix(statement, "SET LOCAL synchronous_commit=off;COMMIT"):
			commits = append(commits, "goes on")
		case strings.HasSuffix(statement, ";COMMIT"):
			commits = append(commits, "waits")
		}
		return sqltest.Pass
	})
	s := b.openURL(t, proxy.URL(b.name, "quarantine=0"))
	release(t, take(t, s, "n")) // makes table and name
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
	holder := take(t, s, "n")
	said("a grant", "waits")
	renew(t, holder)
	said("a renewal", "waits")
	first := queue(t, s, "n")
	b.listening(t, 1)
	said("a place in the queue", "goes on")
	evicted := queue(t, s, "n")
	b.listening(t, 2)
	said("another", "goes on")
	if err := s.Evict(background, evicted.ref, "the test"); err != nil {
		t.Fatal(err)
	}
	evicted.ended()
	said("an eviction", "waits")
	release(t, holder)
	last := first.granted()
	said("a release, and the grant that follows", "goes on", "waits")
	replacing := queue(t, s, "n", func(r *locks.Request) { r.Hold = longTTL })
	said("another place", "goes on")
	if err := s.Evict(background, last.Grant().Ref, "the test"); err != nil {
		t.Fatal(err)
	}
	said("the eviction of a holder", "waits")
	release(t, last)
	last = replacing.granted()
	said("its release, and a grant with a hold", "goes on", "waits")
	release(t, last)
	said("a release that leaves the slot to its hold", "waits")
}
