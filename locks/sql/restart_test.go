//go:build integration

package sql_test

import (
	"fmt"
	"testing"
	"time"

	"golock/locks"
	. "golock/locks/locktest"
	"golock/locks/sql"
)

// Whatever is done first with a name after the server has come back: those whom
// it has forgotten are waited for, and may come back.
func TestRestartIsSeenByWhoeverComesFirst(t *testing.T) {
	first := map[string]func(t *testing.T, s *sql.Store, known locks.RenewableLease){
		"a release": func(t *testing.T, _ *sql.Store, known locks.RenewableLease) { Release(t, known) },
		"an eviction": func(t *testing.T, s *sql.Store, known locks.RenewableLease) {
			if err := s.Evict(background, known.Grant().Ref, "the test"); err != nil {
				t.Fatal(err)
			}
		},
		"a sweep": func(t *testing.T, s *sql.Store, _ locks.RenewableLease) {
			if _, err := s.Sweep(background, "", 0); err != nil {
				t.Fatal(err)
			}
		},
	}
	both(t, func(t *testing.T, f family) {
		b := f.alone(t)
		const second = 1100 * time.Millisecond // in which a server was started: MariaDB tells no more
		time.Sleep(second)
		s := b.store(t, "quarantine=30s")
		known, forgotten := map[string]locks.RenewableLease{}, map[string]locks.RenewableLease{}
		for name := range first {
			known[name] = Take(t, s, name, Limit(3))
			forgotten[name] = Take(t, s, name, Limit(3))
		}
		for _, l := range forgotten {
			b.exec(t, fmt.Sprintf("DELETE FROM golock WHERE entry_id='%x'", l.Grant().Ref.ID))
		}
		b.server.Restart(t)
		time.Sleep(second)
		for name, do := range first {
			do(t, s, known[name])
			Quarantined(t, s, name, Limit(3))
			if err := TryRenew(forgotten[name]); err != nil {
				t.Errorf("after %s who was forgotten: %v", name, err)
			}
		}
	})
}
