//go:build integration

package sql_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/locktest"
	"golock/test/testkit"
)

// A sweep takes what is dead, and what is used by nobody, and nothing else.
func TestSweep(t *testing.T) {
	onStore(t, func(t *testing.T, b *base, s *store) {
		locktest.ExpectSwept(t, s, 0, 0) // nothing ever was there
		rows := func(where string) int {
			return len(b.exec(t, "SELECT lock_key FROM golock WHERE "+where))
		}
		lease := locktest.AcquireAtOnce(t, s, "live")
		locktest.Release(t, locktest.AcquireAtOnce(t, s, "over"))
		locktest.AcquireAtOnce(t, s, "crashed")
		crashed := " WHERE lock_key='" + locks.KeyOf("crashed").String() + "'"
		b.exec(t, "UPDATE golock SET ends=1"+crashed+" AND state='H'")
		locktest.ExpectSwept(t, s, time.Hour, 1) // the entry that ended long ago
		// The name without entries goes when nobody has used it for so long, and a sweep is no
		// use. One that remembers who left stays.
		const twoHours = 2 * time.Hour
		b.exec(t, fmt.Sprintf("UPDATE golock SET counter=counter-%d", twoHours.Microseconds())+crashed)
		locktest.ExpectSwept(t, s, 2*twoHours, 0)
		locktest.ExpectSwept(t, s, twoHours/2, 1)
		if names := rows("entry_id='' AND lock_key<>''"); names != 2 {
			t.Errorf("%d names are left", names)
		}
		b.exec(t, "UPDATE golock SET ends=1 WHERE state='G'")
		locktest.ExpectSwept(t, s, 0, 1)
		if n := rows("state='G'"); n != 0 {
			t.Errorf("%d are remembered", n)
		}
		locktest.ExpectSwept(t, s, 0, 0)
		locktest.Renew(t, lease)
	})
}

// Sweepers take the rows of names away under those who are about to use them.
func TestSweepUnderUse(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		ctx, stop := context.WithCancel(background)
		var sweepers sync.WaitGroup
		for range 2 {
			s := b.store(t)
			sweepers.Go(func() {
				for ctx.Err() == nil {
					if _, err := s.Sweep(background, "", 0); err != nil {
						t.Errorf("Sweep: %v", err)
						return
					}
					b.server.TryExec(b.name, "DELETE FROM golock WHERE state='G'") // so that names have nothing left
				}
			})
		}
		locktest.Chaos(t, func() locks.Store { return neverRefusing{b.store(t), t} }, nil)
		stop()
		sweepers.Wait()
	})
}

// What others have written into the table, and what becomes of it: who holds goes on, newcomers are told,
// and a sweep removes it.
func TestRowsOfOthers(t *testing.T) {
	onStore(t, func(t *testing.T, b *base, s *store) {
		holder := locktest.AcquireAtOnce(t, s, "n")
		set := func(text, where string) { b.exec(t, "UPDATE golock SET "+text+" WHERE "+where) }
		const tableRow, nameRow = "lock_key='' AND entry_id=''", "lock_key<>'' AND entry_id=''"
		own := fmt.Sprintf("entry_id='%s'", holder.Grant().Ref.ID)

		set("state='X'", nameRow)
		set("state='W'", tableRow)
		locktest.Renew(t, holder)
		locktest.ExpectBusy(t, s, "n")

		for _, state := range []string{"N", "Z"} { // of the holder
			set("state='"+state+"'", own)
			locktest.ExpectError(t, locktest.ExpectRenewError(t, holder), holder.Grant().Ref.String(), "state")
			_, err := s.Entries(background, "")
			locktest.ExpectError(t, err, holder.Grant().Ref.String(), "golock break")
			set("state='H'", own)
			locktest.Renew(t, holder)
		}

		const far = "quiet=100000000000000000"
		set(far, tableRow)
		locktest.ExpectError(t, locktest.ExpectFinalError(t, s, "n"), "quiet 100000000000000000", "golock clean")
		locktest.ExpectError(t, locktest.ExpectRenewError(t, holder), "golock clean")
		locktest.ExpectSwept(t, s, 0, 1)
		locktest.Renew(t, holder)
		set("quiet=0", tableRow)
		locktest.ExpectBusy(t, s, "n")

		set(far, nameRow)
		locktest.ExpectError(t, locktest.ExpectFinalError(t, s, "n"), "its state", "golock clean")
		locktest.Renew(t, holder)
		locktest.Release(t, holder)
		b.exec(t, "DELETE FROM golock WHERE state='G'")
		locktest.ExpectSwept(t, s, 0, 1)
		holder = locktest.AcquireAtOnce(t, s, "n")
		set("state='N'", fmt.Sprintf("entry_id='%s'", holder.Grant().Ref.ID))
		_, err := s.Sweep(background, "", 0)
		locktest.ExpectError(t, err, "golock break")
		testkit.Must(t, s.Evict(background, []locks.Ref{holder.Grant().Ref}, "the test")[0])
		if err := locktest.TryRenew(holder); !errors.As(err, new(*locks.EvictedError)) {
			t.Errorf("Renew = %v, want that it was evicted", err)
		}
		locktest.Release(t, locktest.AcquireAtOnce(t, s, "n"))

		const columns = "INSERT INTO golock (lock_key,entry_id,state,ends) VALUES "
		const end = "',9000000000000000)"
		key := locks.KeyOf("n").String()
		b.exec(t, columns+"('"+key+"','0123456789abcdef0123456789abcde;','H"+end+",('"+key+"','0123456789ABCDEF0123456789ABCDEF','W"+end+
			",('x y','','N"+end+",('0123456789abcdef0123456789abcdeg','','N"+end+",('x y','z','H"+end+",('','z','H"+end)
		_, err = s.Entries(background, "")
		locktest.ExpectError(t, err, "golock clean removes it")
		locktest.ExpectSwept(t, s, time.Hour, 6)
		locktest.List(t, s, "")
		locktest.Release(t, locktest.AcquireAtOnce(t, s, "n"))
	})
}

// The texts of many rows of a name are too long together for one answer. Who comes is told which entry is wrong, and
// they can be removed; the holder goes on.
func TestRowsFullOfText(t *testing.T) {
	onStore(t, func(t *testing.T, b *base, s *store) {
		const many = 2100 // of 8 kB
		holder := locktest.AcquireAtOnce(t, s, "n")
		var rows []string
		for i := range many {
			rows = append(rows, fmt.Sprintf("('%s','%032x','H','%032x',8999999999999999,1000000,1,1,REPEAT('9',8000))",
				locks.KeyOf("n"), i+1, i+1))
		}
		b.exec(t, "INSERT INTO golock (lock_key,entry_id,state,ord,ends,ttl,weight,max_units,slots) VALUES "+strings.Join(rows, ","))
		locktest.ExpectError(t, locktest.ExpectFinalError(t, b.store(t), "n"), fmt.Sprintf("-%032x", 1), "a longer text", "golock break")
		_, err := b.store(t).Entries(background, "")
		locktest.ExpectError(t, err, fmt.Sprintf("-%032x", 1), "golock break")
		b.exec(t, "UPDATE golock SET ends=1 WHERE ends=8999999999999999")
		locktest.ExpectSwept(t, b.store(t), 0, many)
		locktest.Renew(t, holder)
	})
}

// A trigger takes back what a step writes to the row of a name: there is an answer, not a loop.
func TestTrigger(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.made(t)
		text := "CREATE TRIGGER keep BEFORE UPDATE ON golock FOR EACH ROW SET NEW.turn=0"
		if f.name == "postgres" {
			text = "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.turn=0; RETURN NEW; END';" +
				"CREATE TRIGGER keep BEFORE UPDATE ON golock FOR EACH ROW EXECUTE FUNCTION keep()"
		}
		b.exec(t, text)
		locktest.ExpectError(t, locktest.ExpectFinalError(t, b.store(t), "n"), "the name has no row", "trigger")
	})
}
