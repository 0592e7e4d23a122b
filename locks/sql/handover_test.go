//go:build integration

package sql_test

import (
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/locktest"
	"golock/locks/locktest/server"
	"golock/locks/sql/sqltest"
)

type release struct {
	what    string
	waiters int
	change  string // of rows of the name, before the release
	inOne   bool
	offered string // "1" if the first waiter has the slot then, "0" if not, "" if it may have joined again
}

func releases() []release {
	return []release{
		{"nobody waits", 0, "", true, ""},
		{"two wait", 2, "", true, "1"},
		{"the waiter cannot be woken", 1, "UPDATE golock SET conn=0 WHERE state='W'", false, ""},
		{"the waiter is overdue", 1, "UPDATE golock SET due=1 WHERE state='W'", false, ""},
		{"the waiter would share", 1, "UPDATE golock SET max_units=0 WHERE state='W'", false, "1"},
		{"the waiter's row has a flaw", 1, "UPDATE golock SET slots='x' WHERE state='W'", false, "0"},
		{"the holder is evicted", 1, "UPDATE golock SET evicted='x' WHERE state='H'", false, "1"},
		{"the holder has a hold", 1, "UPDATE golock SET hold=$HOUR WHERE state='H'", false, "0"},
		{"the lease is over", 1, "UPDATE golock SET ends=1 WHERE state='H'", false, ""},
		{"it is another grant", 1, "UPDATE golock SET fence=1 WHERE state='H'", false, "1"},
		{"another epoch", 1, "UPDATE golock SET epoch='other' WHERE state='N'", false, "1"},
		{"a quarantine", 1, "UPDATE golock SET quiet=$HOUR WHERE state='N'", false, "0"},
		{"somebody else holds, too", 1, "INSERT INTO golock (lock_key,entry_id,state,ends,ttl,weight,max_units,slots,fence)" +
			" SELECT lock_key,'0123456789abcdef0123456789abcdef','H',$HOUR,1000000,1,2,'1',1 FROM golock WHERE state='H'", false, "0"},
		{"somebody has written another holder", 1, "INSERT INTO golock (lock_key,entry_id,state,ends)" +
			" SELECT lock_key,'x','H',$HOUR FROM golock WHERE state='H'", false, "0"},
	}
}

// A holder gives up an exclusive slot in one text. Another step is made only if that text cannot decide, and
// then the text has changed nothing.
func TestReleaseInOneText(t *testing.T) {
	onStore(t, func(t *testing.T, b *base, s *store) {
		proxy := sqltest.NewProxy(t, b.server)
		behind := b.behind(t, proxy)
		var steps, texts atomic.Int32
		proxy.Judge(func(text string) server.Verdict {
			if strings.Contains(text, "seen=counter,counter=GREATEST") { // it locks the name
				steps.Add(1)
			}
			texts.Add(1)
			return server.Pass
		})
		locktest.Release(t, locktest.AcquireAtOnce(t, s, "n"))
		awake := locktest.AcquireAtOnce(t, s, "n")
		locktest.Enqueue(t, s, "n")
		b.listening(t, 1) // in a server's first second nobody can be woken
		locktest.Release(t, awake)
		hour := strconv.FormatInt(time.Now().Add(time.Hour).UnixMicro(), 10)
		for _, c := range releases() {
			l := locktest.AcquireAtOnce(t, behind, c.what)
			var waiters []*locktest.Waiter
			for range c.waiters {
				waiters = append(waiters, locktest.Enqueue(t, s, c.what))
			}
			b.listening(t, c.waiters)
			key := " AND lock_key='" + locks.KeyOf(c.what).String() + "'"
			if c.change != "" {
				b.exec(t, strings.ReplaceAll(c.change, "$HOUR", hour)+key)
			}
			steps.Store(0)
			texts.Store(0)
			if err := l.Release(background); err != nil && c.inOne {
				t.Errorf("%s: %v", c.what, err)
			}
			if inOne := steps.Load() == 0 && texts.Load() > 0; inOne != c.inOne {
				t.Errorf("%s: released in one text: %v, want %v", c.what, inOne, c.inOne)
			}
			if c.offered == "" {
				continue
			}
			rows := b.exec(t, "SELECT COUNT(*) FROM golock WHERE state IN ('O','H') AND entry_id='"+waiters[0].Ref.ID.String()+"'"+key)
			if rows[0][0] != c.offered {
				t.Errorf("%s: the waiter has %s slots, want %s", c.what, rows[0][0], c.offered)
			}
			if c.offered == "1" {
				waiters[0].ExpectGrant()
			}
		}
	})
}
