//go:build integration

package sql_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/locktest"
	"golock/locks/sql"
	"golock/test/testkit"
)

// short is a TTL of which a test can see the end. A holder must come back before it, also on a busy machine.
const short = 6 * time.Second

// Who may not make the table is told what makes it; when an administrator has
// run just that, everything works.
func TestTableByHand(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		for _, table := range []string{"golock", b.schema(t) + ".other"} {
			user := b.server.NewUser(t, b.name, "SELECT", "INSERT", "UPDATE", "DELETE")
			if f.name == "postgres" {
				b.exec(t, "GRANT USAGE ON SCHEMA "+b.schema(t)+" TO "+user.Name)
			}
			s := f.openURL(t, user.URL("quarantine=0", "table="+table))
			err := locktest.ExpectFinalError(t, s, "n")
			ddl := strings.Join(strings.Fields(s.DDL()), " ")
			locktest.ExpectError(t, err, table, "may not make it", ddl)
			_, printed, _ := strings.Cut(err.Error(), "CREATE TABLE ")
			printed = "CREATE TABLE " + strings.TrimSuffix(printed, ")")
			if printed != ddl {
				t.Errorf("the error shows %q, want %q", printed, ddl)
			}
			b.exec(t, printed)
			if f.name == "postgres" {
				b.exec(t, fmt.Sprintf("GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO %s", table, user.Name))
			}
			holder := locktest.AcquireAtOnce(t, s, "n")
			w := locktest.Enqueue(t, s, "n")
			locktest.Renew(t, holder)
			locktest.Release(t, holder)
			locktest.Release(t, w.ExpectGrant())
		}
	})
}

// schema is where tables are, for one who names it.
func (b *base) schema(t testing.TB) string {
	t.Helper()
	if b.family.name == "mariadb" {
		return b.name
	}
	b.exec(t, "CREATE SCHEMA IF NOT EXISTS elsewhere AUTHORIZATION golock")
	return "elsewhere"
}

// Tables are stores of their own, by whatever name; a table and the same one
// with its schema are the same.
func TestTableOption(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		schema := "public"
		if f.name == "mariadb" {
			schema = b.name
		}
		locktest.AcquireAtOnce(t, b.store(t), "n")
		locktest.AcquireAtOnce(t, b.store(t, "table=other"), "n")
		locktest.AcquireAtOnce(t, b.store(t, "table="+b.schema(t)+".more"), "n")
		locktest.AcquireAtOnce(t, b.store(t, "table=Case_1"), "n")
		locktest.AcquireAtOnce(t, b.store(t, "table=select"), "n")
		for _, same := range []string{"golock", "other", "Case_1", "select"} {
			locktest.ExpectBusy(t, b.store(t, "table="+schema+"."+same), "n")
		}
		locktest.ExpectError(t, locktest.ExpectFinalError(t, b.store(t, "table=nowhere.golock"), "n"), "nowhere")
	})
}

// awaits demands that a release of a lease is tried until its time is over.
func awaits(t *testing.T, l locks.Lease) {
	t.Helper()
	ctx, cancel := context.WithTimeout(background, time.Second)
	defer cancel()
	if err := l.Release(ctx); !errors.As(err, new(*locks.OutageError)) {
		t.Errorf("Release = %v, want an outage", err)
	}
}

// A table of another version is refused, by who holds as well: nothing is
// granted and nothing changed. So is one that lacks a column; one more does no harm. Who has an entry
// goes on when the table is changed back.
func TestOtherVersion(t *testing.T) {
	onStore(t, func(t *testing.T, b *base, s *store) {
		holder := locktest.AcquireAtOnce(t, s, "n")
		w := locktest.Enqueue(t, s, "n", locktest.TTL(3*time.Second))
		b.exec(t, "UPDATE golock SET format=9 WHERE lock_key='' AND entry_id=''")
		for _, name := range []string{"n", "another"} {
			locktest.ExpectError(t, locktest.ExpectFinalError(t, s, name), "golock", "format 9", "format 4", "same version")
		}
		locktest.ExpectError(t, locktest.ExpectRenewError(t, holder), "format 9")
		_, err := s.Sweep(background, "", 0)
		locktest.ExpectError(t, err, "format 9")
		awaits(t, holder)
		w.ExpectWaiting()
		b.exec(t, "UPDATE golock SET format=4 WHERE lock_key='' AND entry_id=''")
		locktest.Release(t, holder)
		locktest.Release(t, w.ExpectGrant())
		locktest.AcquireAtOnce(t, s, "another")

		b.exec(t, "ALTER TABLE golock ADD COLUMN more INT NULL")
		holder = locktest.AcquireAtOnce(t, s, "third")
		w = locktest.Enqueue(t, s, "third")
		locktest.Release(t, holder)
		locktest.Release(t, w.ExpectGrant())
		holder = locktest.AcquireAtOnce(t, s, "third")
		b.exec(t, "ALTER TABLE golock DROP COLUMN low")
		locktest.ExpectError(t, locktest.ExpectFinalError(t, s, "n"), "golock", "another version", "?table=")
		awaits(t, holder)
	})
}

// Whatever is taken out of the table under running jobs, there are never more inside than
// the rule allows: a holder puts its lease back, or learns that it has lost it while the name
// is not granted to others. Nobody is refused for it.
func TestTableLost(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		testkit.Each(t, map[string]string{
			"dropped":             "DROP TABLE golock",
			"truncated":           "TRUNCATE TABLE golock",
			"emptied":             "DELETE FROM golock",
			"without its names":   "DELETE FROM golock WHERE entry_id='' AND lock_key<>''",
			"without its own row": "DELETE FROM golock WHERE lock_key=''",
		}, func(t *testing.T, _, text string) {
			b := f.made(t)
			locktest.Chaos(t, func() locks.Store { return neverRefusing{b.store(t), t} }, func(n int) {
				if n%10 != 1 {
					return
				}
				b.execDespiteDeadlocks(t, text)
			})
			locktest.Release(t, locktest.Acquire(t, b.store(t), "a"))
		})
	})
}

// execDespiteDeadlocks runs a statement of an administrator. It locks rows in another order than golock's steps
// do. If the server ends the statement to resolve a deadlock, it runs again.
func (b *base) execDespiteDeadlocks(t testing.TB, text string) {
	t.Helper()
	for end := time.Now().Add(testkit.Patience); ; {
		_, err := b.server.TryExec(b.name, text)
		isDeadlock := err != nil && strings.Contains(strings.ToLower(err.Error()), "deadlock")
		if isDeadlock && time.Now().Before(end) {
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		return
	}
}

// neverRefusing is a store that fails the test if it refuses somebody for another reason
// than the queue.
type neverRefusing struct {
	*sql.Store
	t testing.TB
}

func (s neverRefusing) Join(ctx context.Context, r locks.Request) (locks.Admission, error) {
	admission, err := s.Store.Join(ctx, r)
	if err != nil && ctx.Err() == nil && !locktest.IsBusy(err) && !errors.As(err, new(*locks.OutageError)) {
		s.t.Errorf("Join: %v", err)
	}
	return admission, err
}

// A newcomer after a loss of the table is told what is in its way. The holder restores its row with its
// next renewal. If somebody deletes only the row of an entry, its owner has lost the slot, and the next
// waiter gets it.
func TestTableLostTellsWhy(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		for _, text := range []string{"DROP TABLE golock", "TRUNCATE TABLE golock", "DELETE FROM golock"} {
			b := f.fresh(t)
			s := b.store(t)
			holder := locktest.AcquireAtOnce(t, s, "n", locktest.TTL(locktest.LongTTL))
			grant := holder.Grant()
			b.exec(t, text)
			if q := locktest.ExpectQuarantine(t, s, "n", locktest.TTL(short)); !strings.Contains(q.Error(), "table") {
				t.Errorf("%v, want a reason that names the table", q)
			}
			w := locktest.Enqueue(t, s, "n", locktest.TTL(short))
			locktest.Renew(t, holder)
			locktest.ExpectGrant(t, holder.Grant(), grant)
			w.ExpectWaiting()
			if busy := locktest.ExpectBusy(t, s, "n"); len(busy.Holders) != 1 {
				t.Errorf("busy: %v, want one holder", busy)
			}
			locktest.Release(t, holder)
			l := w.ExpectGrant()
			if l.Grant().Fence <= grant.Fence {
				t.Errorf("fence %d after %d", l.Grant().Fence, grant.Fence)
			}
			next := locktest.Enqueue(t, s, "n", locktest.TTL(short))
			b.exec(t, "DELETE FROM golock WHERE state='H'")
			locktest.ExpectLost(t, l) // which was deleted alone
			next.ExpectGrant()
		}
	})
}

// Who makes a dropped table again may have a shorter lease than others: names
// that are used with a longer one are granted later.
func TestTableDroppedBesideShortLeases(t *testing.T) {
	onStore(t, func(t *testing.T, b *base, s *store) {
		holder := locktest.AcquireAtOnce(t, s, "n", locktest.TTL(locktest.LongTTL))
		b.exec(t, "DROP TABLE golock")
		locktest.Release(t, locktest.Enqueue(t, s, "other", locktest.TTL(short)).ExpectGrant())
		locktest.ExpectQuarantine(t, s, "n", locktest.TTL(locktest.LongTTL))
		locktest.Renew(t, holder)
		locktest.Release(t, locktest.AcquireAtOnce(t, s, "unused", locktest.TTL(short)))
	})
}

// A mark that cannot be made is warned of, and found by doctor.
func TestNoMark(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		url := b.server.URL(b.name, "quarantine=0")
		if f.name == "mariadb" {
			user := b.server.NewUser(t, b.name, "SELECT", "INSERT", "UPDATE", "DELETE")
			b.exec(t, fmt.Sprintf("GRANT CREATE ON %s.golock TO %s@localhost", b.name, user.Name))
			url = user.URL("quarantine=0")
		} else {
			b.exec(t, "CREATE TYPE golock_made AS ENUM ()")
		}
		s := f.openURL(t, url)
		locktest.Release(t, locktest.AcquireAtOnce(t, s, "n"))
		if w := s.Warnings(false); len(w) != 1 || !strings.Contains(w[0], "golock_made") {
			t.Errorf("warnings %q", w)
		}
		locktest.ExpectFinding(t, examine(t, f, url), "mark", locks.Note)
		url = b.server.URL(b.name, "quarantine=0", "table=marked")
		if found, ok := examine(t, f, url)["mark"]; ok {
			t.Errorf("before the first use: %+v", found)
		}
		other := f.openURL(t, url)
		locktest.Release(t, locktest.AcquireAtOnce(t, other, "n"))
		if found, ok := examine(t, f, url)["mark"]; ok || len(other.Warnings(false)) > 0 {
			t.Errorf("with a mark: %+v, %q", found, other.Warnings(false))
		}
	})
}

// Rights that are taken away are no outage for a newcomer, and one for who
// holds or waits: they may come back.
func TestRightsRevoked(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.made(t)
		user := b.server.NewUser(t, b.name, "SELECT", "INSERT", "UPDATE", "DELETE")
		s := f.openURL(t, user.URL("quarantine=0", "waiters=0"))
		holder := locktest.AcquireAtOnce(t, s, "n")
		locktest.Renew(t, holder) // its connection, which may keep its rights, is closed now
		table, whose := "golock", user.Name
		if f.name == "mariadb" {
			table, whose = b.name+".*", user.Name+"@localhost"
		}
		b.exec(t, "REVOKE UPDATE ON "+table+" FROM "+whose)
		locktest.ExpectError(t, locktest.ExpectFinalError(t, s, "n"), "golock", "SELECT, INSERT, UPDATE and DELETE")
		_ = locktest.ExpectRenewError(t, holder)
		awaits(t, holder)
		b.exec(t, "GRANT UPDATE ON "+table+" TO "+whose)
		locktest.Renew(t, holder)
		locktest.Release(t, holder)
	})
}
