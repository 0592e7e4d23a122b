//go:build integration

package sql_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/locktest"
	"golock/locks/sql"
	"golock/test/testkit"
)

// Whatever the first step is after the server has come back: nothing is granted until the holders that
// the server has forgotten had the time to come back.
func TestRestartIsSeenByWhoeverComesFirst(t *testing.T) {
	first := map[string]func(t *testing.T, s *sql.Store, known locks.Lease){
		"a release": func(t *testing.T, _ *sql.Store, known locks.Lease) { locktest.Release(t, known) },
		"an eviction": func(t *testing.T, s *sql.Store, known locks.Lease) {
			testkit.Must(t, s.Evict(background, []locks.Ref{known.Grant().Ref}, "the test")[0])
		},
		"a sweep": func(t *testing.T, s *sql.Store, _ locks.Lease) {
			_, err := s.Sweep(background, "", 0)
			testkit.Must(t, err)
		},
	}
	both(t, func(t *testing.T, f family) {
		b := f.alone(t)
		const second = 1100 * time.Millisecond // in which a server was started: MariaDB tells no more
		time.Sleep(second)
		s := b.store(t, "quarantine=30s")
		known, forgotten := map[string]locks.Lease{}, map[string]locks.Lease{}
		for name := range first {
			known[name] = locktest.AcquireAtOnce(t, s, name, locktest.Limit(3))
			forgotten[name] = locktest.AcquireAtOnce(t, s, name, locktest.Limit(3))
		}
		for _, l := range forgotten {
			b.exec(t, fmt.Sprintf("DELETE FROM golock WHERE entry_id='%s'", l.Grant().Ref.ID))
		}
		b.server.Restart(t)
		time.Sleep(second)
		for name, do := range first {
			do(t, s, known[name])
			locktest.ExpectQuarantine(t, s, name, locktest.Limit(3))
			if err := locktest.TryRenew(forgotten[name]); err != nil {
				t.Errorf("after %s who was forgotten: %v", name, err)
			}
		}
	})
}

// A server that has become a replica refuses newcomers and says why; holder and waiter keep
// trying, and go on when it is promoted. Of two servers the one that writes is used.
func TestPromotedReplica(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b, primary := f.alone(t), f.fresh(t)
		s := b.store(t)
		held, waiter := locktest.AcquireAtOnce(t, s, "n"), locktest.Enqueue(t, s, "n")
		addresses := []string{b.server.Addr(), primary.server.Addr()}
		two := strings.Replace(primary.server.TCPURL(primary.name, "quarantine=0"), addresses[1], strings.Join(addresses, ","), 1)
		if primary.name != b.name {
			b.server.MakeDatabase(t, primary.name)
		}
		promote := "SET GLOBAL read_only=0"
		if f.name == "postgres" {
			testkit.Must(t, os.WriteFile(b.server.Dir+"/data/standby.signal", nil, 0o644))
			b.server.Restart(t)
			promote = "SELECT pg_promote()"
		} else {
			b.exec(t, "SET GLOBAL read_only=1")
		}
		var refusal *lease.Refusal
		limited, cancel := context.WithTimeout(background, time.Second) // it is asked again until then
		defer cancel()
		_, err := s.Join(limited, locktest.NewRequest(t, "other"))
		if !errors.As(err, &refusal) || refusal.Hint != sql.ReplicaHint {
			t.Errorf("Join of another name: %v, want a refusal", err)
		}
		_ = locktest.ExpectRenewError(t, held)
		testkit.Eventually(t, "a release is tried until its time is over", func() bool {
			short, cancel := context.WithTimeout(background, 500*time.Millisecond)
			defer cancel()
			var outage *locks.OutageError
			return errors.As(held.Release(short), &outage) && outage.Answered
		})
		locktest.Release(t, locktest.AcquireAtOnce(t, f.openURL(t, two), "n")) // at the second, which writes
		b.exec(t, promote)
		testkit.Eventually(t, "it renews", func() bool { return locktest.TryRenew(held) == nil })
		waiter.ExpectWaiting()
		locktest.Release(t, held)
		waiter.ExpectGrant()
	})
}
