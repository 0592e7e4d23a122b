//go:build integration

package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/locktest"
	"golock/locks/locktest/server"
	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

// More wait than keep a connection; all of them come through, none before
// another that came earlier, and the server's connections stay few, also when the last
// had to join again. It keeps both processors busy, so it is alone. In the deep run four times as many wait
// without a connection.
// Slow: dozens of waiters, one server, two processors.
func TestManyInOrder(t *testing.T) {
	each(t, func(t *testing.T, f family) {
		many := testkit.Rounds(32, 60)
		const listen = 24          // more than a step reads
		const most, busy = 40, 100 // of a server that takes 100 to 151
		b := f.fresh(t)
		s := b.store(t)
		holder := locktest.AcquireAtOnce(t, s, "n")
		var waiters []*locktest.Waiter
		for range many {
			waiters = append(waiters, locktest.Enqueue(t, b.store(t, fmt.Sprint("waiters=", listen)), "n"))
		}
		b.listening(t, listen)
		locktest.ExpectEntries(t, s, "n", locktest.Counts{Holding: 1, Waiting: many})
		last := fmt.Sprintf(" FROM golock WHERE entry_id='%s'", waiters[many-1].Ref.ID)
		b.exec(t, "DELETE"+last)
		testkit.Eventually(t, "the last one is back", func() bool { return len(b.exec(t, "SELECT 1"+last)) == 1 })
		if n := len(b.sleepers(t)); n != listen {
			t.Errorf("%d keep a connection, want %d", n, listen)
		}
		if n := len(b.server.Connections(t, b.name)); n > most {
			t.Errorf("%d connections while all wait, want at most %d", n, most)
		}
		locktest.Release(t, holder)
		inTurn(t, waiters, func(i int) {
			if n := len(b.server.Connections(t, b.name)); n > busy {
				t.Errorf("%d connections when waiter %d holds, want at most %d", n, i, busy)
			}
		})
		locktest.AwaitEntries(t, s, "n", locktest.Counts{})
	})
}

// A waiter that keeps its connection, but is not among those that PostgreSQL can wake, sees that
// the queue moves, however rarely it looks for its place.
func TestFarWaiterSeesMoves(t *testing.T) {
	t.Parallel()
	b := postgresql().fresh(t)
	proxy := sqltest.NewProxy(t, b.server)
	direct := b.store(t, "waiters=64")
	last := locktest.AcquireAtOnce(t, direct, "n")
	var waiters []*locktest.Waiter
	for range 36 {
		waiters = append(waiters, locktest.Enqueue(t, direct, "n"))
	}
	var polls, looks atomic.Int64
	proxy.Judge(func(statement string) server.Verdict {
		if strings.Contains(statement, "SELECT moved,") {
			looks.Add(1)
		} else if strings.Contains(statement, "SELECT moved FROM") {
			polls.Add(1)
		}
		return server.Pass
	})
	waiters = append(waiters, locktest.Enqueue(t, b.behind(t, proxy, "waiters=64"), "n"))
	testkit.Eventually(t, "it polls more often than it looks", func() bool { return polls.Load() > looks.Load()+10 })
	before := looks.Load()
	testkit.Must(t, direct.Evict(background, []locks.Ref{waiters[0].Ref}, "the test")[0])
	testkit.Eventually(t, "it looks", func() bool { return looks.Load() > before })
	locktest.Release(t, last)
	inTurn(t, waiters[1:], func(int) {})
}

// Who stands far back looks without locking the name, comes in its turn, and learns of
// its eviction.
func TestFarWaitersOnlyLook(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		proxy := sqltest.NewProxy(t, b.server)
		direct, far := b.store(t, "waiters=16"), b.behind(t, proxy, "waiters=16")
		last := locktest.AcquireAtOnce(t, direct, "n")
		var waiters []*locktest.Waiter
		for range 30 {
			waiters = append(waiters, locktest.Enqueue(t, direct, "n"))
		}
		one, other := locktest.Enqueue(t, far, "n"), locktest.Enqueue(t, far, "n")
		var mu sync.Mutex
		looks, steps := 0, 0
		proxy.Judge(func(statement string) server.Verdict {
			mu.Lock()
			defer mu.Unlock()
			if strings.Contains(statement, "turn=") {
				steps++
			} else if strings.Contains(statement, "SELECT moved,") {
				looks++
			}
			return server.Pass
		})
		testkit.Eventually(t, "they look", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return looks+steps >= 8
		})
		mu.Lock()
		if 2*steps > looks { // one may follow a look that a busy machine did not answer in time
			t.Errorf("%d steps and %d looks of waiters that stand far back", steps, looks)
		}
		mu.Unlock()
		testkit.Must(t, direct.Evict(background, []locks.Ref{other.Ref}, "the test")[0])
		other.AwaitEnd()
		if !errors.As(other.Err, new(*locks.EvictedError)) {
			t.Errorf("the evicted one: %v", other.Err)
		}
		proxy.Cut() // whoever looks just then comes again
		locktest.Release(t, last)
		inTurn(t, append(waiters, one), func(int) {})
	})
}

// Golocks that log in as different users keep the order, although they cannot see each
// other's connections. So do those of one user who come from different places, which are
// different accounts to MariaDB. None waits until it looks by itself.
func TestDifferentUsers(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.made(t)
		user := func() *sqltest.User { return b.server.NewUser(t, b.name, "SELECT", "INSERT", "UPDATE", "DELETE") }
		one, other := user(), user()
		var stores []locks.Store
		for _, url := range []string{one.URL("quarantine=0"), one.TCPURL("quarantine=0"), other.URL("quarantine=0")} {
			stores = append(stores, f.openURL(t, url))
		}
		holder := locktest.AcquireAtOnce(t, stores[0], "n")
		var waiters []*locktest.Waiter
		for _, i := range []int{1, 0, 2, 0} {
			waiters = append(waiters, locktest.Enqueue(t, stores[i], "n"))
		}
		began := time.Now()
		locktest.Release(t, holder)
		inTurn(t, waiters, func(int) {})
		testkit.Lasted(t, began, 0, locktest.LongTTL/3)
	})
}

// Without any connection, and with a few slots, the order is the same. A waiter that keeps none
// cannot be seen to die: its place is over with its TTL.
func TestOrderWithoutListening(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		s := b.store(t, "waiters=0")
		p := sqltest.NewProxy(t, b.server)
		behind := b.behind(t, p, "waiters=0")
		const briefly = 2 * time.Second
		for _, slots := range []int{1, 3} {
			name := fmt.Sprintf("of %d", slots)
			var holders []locks.Lease
			for range slots {
				holders = append(holders, locktest.AcquireAtOnce(t, s, name, locktest.Limit(slots)))
			}
			dead := locktest.Enqueue(t, behind, name, locktest.Limit(slots), locktest.TTL(briefly))
			var waiters []*locktest.Waiter
			for range 5 {
				waiters = append(waiters, locktest.Enqueue(t, s, name, locktest.Limit(slots), locktest.TTL(12*time.Second)))
			}
			if n := len(b.sleepers(t)); n != 0 {
				t.Errorf("%d listen, want none", n)
			}
			p.Refuse(true)
			p.Cut()
			for i, w := range waiters {
				released := time.Now()
				locktest.Release(t, holders[0])
				holders = append(holders[1:], w.ExpectGrant())
				if stall := time.Since(released); i == 0 && stall > 10*briefly {
					t.Errorf("held up for %v by one with a TTL of %v", stall, briefly)
				}
			}
			dead.Cancel()
			p.Refuse(false)
		}
	})
}

// queueWithoutWaiting puts a waiter into the queue that does not look again.
func queueWithoutWaiting(t *testing.T, s locks.Store, changes ...locktest.Change) locks.Ref {
	t.Helper()
	r := locktest.NewRequest(t, "n", changes...)
	admission, err := s.Join(background, r)
	if err != nil || !admission.Queued() {
		t.Fatalf("Join: %v, %v", admission, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(background)
		cancel()
		_, _ = admission.Wait(ctx)
	})
	return r.Ref
}

// Who comes behind a waiter that has died finds that out itself when the slot is
// free, and is called by itself: it does not sleep over that.
func TestBehindDeadWaiter(t *testing.T) {
	onStore(t, func(t *testing.T, b *base, s *store) {
		locktest.AcquireAtOnce(t, s, "n", locktest.TTL(time.Second)) // and is never renewed
		queueWithoutWaiting(t, s)
		b.server.KillConnections(t, b.name)
		testkit.Eventually(t, "the slot is free", func() bool { return locktest.CountEntries(t, s, "n").Holding == 0 })
		w := locktest.Enqueue(t, s, "n")
		from := time.Now()
		w.ExpectGrant()
		testkit.Lasted(t, from, 0, locktest.LongTTL/6)
	})
}

// A newcomer is told of all holders, also if they are more than its own max, and of all waiters,
// also if they are more than a step reads. The dead at the end of a long queue count for nothing,
// although nobody has come by them who would remove them.
func TestLongQueueIsCounted(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		const holding, living, dead = 22, 22, 3
		long := locktest.TTL(10 * time.Minute) // on a busy machine all of this takes more than a usual TTL
		b := f.fresh(t)
		s := b.store(t, "waiters=0")
		var last locks.Lease
		for range holding {
			last = locktest.AcquireAtOnce(t, s, "n", locktest.Limit(holding), long)
		}
		for range living {
			locktest.Enqueue(t, s, "n", long)
		}
		if busy := locktest.ExpectBusy(t, s, "n"); len(busy.Holders) != holding || busy.Waiters != living {
			t.Errorf("busy: %d holders and %d waiters, want %d and %d", len(busy.Holders), busy.Waiters, holding, living)
		}
		locktest.Renew(t, last)
		for range dead {
			queueWithoutWaiting(t, s, locktest.Priority(-1))
		}
		b.exec(t, "UPDATE golock SET ends=1 WHERE state='W' AND ord>='8'") // below the usual priority
		var busy *locks.BusyError
		_, err := s.Join(background, locktest.NewRequest(t, "n", locktest.MaxQueue(living)))
		if !errors.As(err, &busy) || busy.Waiters != living {
			t.Errorf("Join: %v, want that %d wait", err, living)
		}
		locktest.Enqueue(t, s, "n", locktest.MaxQueue(living+1))
	})
}

// The numbers of connections begin anew when MariaDB is restarted: that of a waiter that has
// gone may be a stranger's now, who is not disturbed, also not if the waiter leaves.
func TestStrangersConnection(t *testing.T) {
	t.Parallel()
	b := mariadb().fresh(t)
	s := b.store(t)
	holder := locktest.AcquireAtOnce(t, s, "n")
	waiter := queueWithoutWaiting(t, s)
	db, err := sql.Open("mysql", fmt.Sprintf("golock:%s@unix(%s)/%s", sqltest.Password, b.server.Socket, b.name))
	testkit.Must(t, err)
	defer db.Close()
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	go func() { _, _ = db.ExecContext(ctx, "DO SLEEP(600)") }()
	sleeper := func() (number string) {
		for _, c := range b.server.Connections(t, b.name) {
			if strings.Contains(c.Statement, "SLEEP(600)") {
				number = c.ID
			}
		}
		return number
	}
	testkit.Eventually(t, "the stranger's statement runs", func() bool { return sleeper() != "" })
	b.exec(t, "UPDATE golock SET conn="+sleeper()+",ttl=ends WHERE state='W'") // it came in 1970
	locktest.Release(t, holder)
	testkit.Must(t, s.Attach(waiter).Release(background))
	if sleeper() == "" {
		t.Error("the stranger's statement was ended")
	}
}

// A waiter whose place was over gets it back, however long it wants to hold: until the grant its
// hold is a duration, which may be larger than the time.
func TestOverdueWaiterWithLongHold(t *testing.T) {
	onStore(t, func(t *testing.T, b *base, s *store) {
		holder := locktest.AcquireAtOnce(t, s, "n")
		w := locktest.Enqueue(t, s, "n", locktest.Hold(100*365*24*time.Hour))
		b.exec(t, "UPDATE golock SET ends=1 WHERE state='W'")
		locktest.Release(t, holder)
		b.server.KillConnections(t, b.name)
		locktest.Release(t, w.ExpectGrant())
	})
}

// The commands of ten thousand holders are so long that not all of their text is read.
func TestLongCommands(t *testing.T) {
	onStore(t, func(t *testing.T, b *base, s *store) {
		const n = 10_000
		locktest.Release(t, locktest.Acquire(t, s, "n"))
		var rows strings.Builder
		for i := range n {
			fmt.Fprintf(&rows, ",('%s','%032x','H',9000000000000000,30000000,1,%d,'%d')", locks.KeyOf("n"), i+1, 2*n, i)
		}
		b.exec(t, "INSERT INTO golock (lock_key,entry_id,state,ends,ttl,weight,max_units,slots) VALUES "+rows.String()[1:])
		b.exec(t, "UPDATE golock SET info=CONCAT('host=h&pid=1&user=u&word=',REPEAT('%C3%BC',320)) WHERE state='H'")
		entries := locktest.List(t, s, "")
		if len(entries) != n || !strings.HasPrefix(entries[0].Command[0], "üü") {
			t.Errorf("%d entries, the first is %+v", len(entries), entries[:1])
		}
		locktest.AcquireAtOnce(t, s, "n", locktest.Limit(2*n))
	})
}

// A slot is kept for as long as a duration can be.
func TestLongestHold(t *testing.T) {
	onStore(t, func(t *testing.T, b *base, s *store) {
		first := locktest.AcquireAtOnce(t, s, "n", locktest.Limit(2))
		locktest.AcquireAtOnce(t, s, "n", locktest.Limit(2), locktest.Hold(math.MaxInt64))
		w := locktest.Enqueue(t, s, "n", locktest.Limit(2), locktest.Hold(math.MaxInt64))
		b.listening(t, 1)
		locktest.Release(t, first)
		l := w.ExpectGrant()
		locktest.Renew(t, l)
		locktest.Release(t, l)
		locktest.ExpectBusy(t, s, "n", locktest.Limit(2))
	})
}

// A newcomer that is turned away in a crowd, after an attempt that failed, locks no row: the crowd would
// wait for itself. One that may get the slot makes a step.
func TestTurnedAwayLocksNothing(t *testing.T) {
	onStore(t, func(t *testing.T, b *base, s *store) {
		held := locktest.AcquireAtOnce(t, s, "n")
		proxy := sqltest.NewProxy(t, b.server)
		var locked atomic.Int32
		proxy.Judge(func(text string) server.Verdict {
			if strings.Contains(text, "UPDATE") {
				locked.Add(1)
				return server.Lose
			}
			return server.Pass
		})
		crowd := b.behind(t, proxy)
		for i, change := range []locktest.Change{locktest.NoWait, locktest.MaxQueue(0)} {
			ctx, cancel := context.WithTimeout(background, testkit.Patience)
			_, err := crowd.Join(ctx, locktest.NewRequest(t, "n", change))
			cancel()
			if busy, isBusy := errors.AsType[*locks.BusyError](err); !isBusy || len(busy.Holders) != 1 || locked.Load() != int32(i+1) {
				t.Errorf("Join = %v after %d attempts to lock the row", err, locked.Load())
			}
		}
		proxy.Judge(nil)
		locktest.Release(t, held)
		locktest.Release(t, locktest.AcquireAtOnce(t, crowd, "n"))
	})
}
