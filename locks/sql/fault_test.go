//go:build integration

package sql_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// commits reports whether a text ends a transaction that has written.
func commits(text string) bool { return strings.Contains(text, ";COMMIT") }

// Of a request that is refused after an attempt whose answer was lost nothing stays.
func TestRefusedAfterLostAnswer(t *testing.T) {
	b := mariadb().alone(t)
	s := b.store(t)
	locktest.Release(t, locktest.AcquireAtOnce(t, s, "n"))
	proxy := sqltest.NewProxy(t, b.server)
	var lost atomic.Bool
	var refuse sync.Once
	proxy.Judge(func(text string) server.Verdict {
		if commits(text) && !lost.Swap(true) {
			return server.LoseReply
		}
		if lost.Load() {
			refuse.Do(func() { b.exec(t, "SET GLOBAL read_only=1") })
		}
		return server.Pass
	})
	locktest.ExpectError(t, locktest.ExpectJoinError(t, b.behind(t, proxy), "n", locktest.TTL(2*testkit.Patience)), "read-only")
	b.exec(t, "SET GLOBAL read_only=0")
	locktest.AwaitEntries(t, s, "n", locktest.Counts{})
}

func TestLostAnswers(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.made(t)
		proxy := sqltest.NewProxy(t, b.server)
		s, watch := b.behind(t, proxy), b.store(t)
		// How many entries there are when the server is asked again.
		for verdict, made := range map[server.Verdict]int{server.LoseReply: 1, server.Lose: 0} {
			var lost, again atomic.Int32
			locktest.LostAnswers(t, s, watch, func(_ string, times int32) {
				lost.Store(0)
				proxy.Judge(func(text string) server.Verdict {
					if lost.Load() > 0 && again.Add(1) == 1 {
						if n := len(b.exec(t, "SELECT 1 FROM golock WHERE state='H'")); n != made {
							t.Errorf("%d entries were made by what was lost, want %d", n, made)
						}
					}
					if commits(text) && lost.Add(1) <= times {
						return verdict
					}
					return server.Pass
				})
			})
			if again.Load() == 0 {
				t.Error("nothing was lost")
			}
		}
	})
}

// Requests and answers are lost, all sessions are cut by the network or ended by
// the server in the midst of transactions, clients give up or vanish. Never are
// more inside than the rule allows; at the end nothing is left.
func TestChaos(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.made(t)
		proxy := sqltest.NewProxy(t, b.server)
		var mu sync.Mutex
		rng := rand.New(rand.NewPCG(testkit.Seed(t), 0))
		proxy.Judge(func(text string) server.Verdict {
			mu.Lock()
			defer mu.Unlock()
			switch n := rng.IntN(30); {
			case n == 0:
				return server.Lose
			case n == 1 || n == 2 && commits(text):
				return server.LoseReply
			}
			return server.Pass
		})
		s := b.behind(t, proxy)
		locktest.Chaos(t, func() locks.Store { return s }, func(n int) {
			if n%2 == 0 {
				proxy.Cut()
			} else {
				b.server.KillConnections(t, b.name)
			}
		})
	})
}

// A client stands still in the midst of its transaction, with the name's row
// locked. It holds up the others for the time that the server leaves it, and
// what it says later has no effect.
func TestFrozenInTransaction(t *testing.T) {
	onStore(t, func(t *testing.T, b *base, s *store) {
		held := locktest.AcquireAtOnce(t, s, "n", locktest.Limit(2))
		proxy := sqltest.NewProxy(t, b.server)
		frozen := make(chan struct{})
		var once sync.Once
		var from time.Time
		proxy.Judge(func(text string) server.Verdict {
			if commits(text) {
				once.Do(func() {
					from = time.Now()
					proxy.Freeze() // it keeps this one
					close(frozen)
				})
			}
			return server.Pass
		})
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() {
			if admission, err := b.behind(t, proxy).Join(ctx, locktest.NewRequest(t, "n", locktest.Limit(2))); err == nil {
				t.Errorf("it was granted: %v", admission)
			}
		})
		<-frozen
		testkit.Eventually(t, "it is renewed", func() bool { return locktest.TryRenew(held) == nil })
		testkit.Lasted(t, from, time.Second/2, time.Hour) // somebody was in the way
		cancel()
		all.Wait()
		proxy.Thaw()
		locktest.AwaitEntries(t, s, "n", locktest.Counts{Holding: 1})
		locktest.Release(t, locktest.AcquireAtOnce(t, s, "n", locktest.Limit(2)))
	})
}

// A lease counts from before the question was sent, not from the answer. A grant whose answer
// comes when a short lease is nearly over is asked for again: nobody may start a command with
// what is left of it.
func TestTerm(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.made(t)
		proxy := sqltest.NewProxy(t, b.server)
		s := b.behind(t, proxy)
		var sent atomic.Int64
		proxy.Judge(func(text string) server.Verdict {
			if commits(text) {
				sent.Store(int64(locks.BootTime()))
			}
			return server.Pass
		})
		l := locktest.AcquireAtOnce(t, s, "n")
		for _, what := range []string{"grant", "renewal"} {
			if late := int64(l.Term().Asked) - sent.Load(); sent.Swap(0) == 0 || late >= 0 {
				t.Errorf("the lease counts from %v after the %s was sent", time.Duration(late), what)
			}
			locktest.Renew(t, l)
		}
		locktest.Release(t, l)

		const ttl = 1500 * time.Millisecond // the server ends a transaction that stalls for 1 s
		var came atomic.Int64               // when the server was told at last
		proxy.Judge(func(text string) server.Verdict {
			if commits(text) && came.Load() == 0 {
				time.Sleep(ttl * 6 / 10) // the fault
				came.CompareAndSwap(0, int64(locks.BootTime()))
			}
			return server.Pass
		})
		l = locktest.AcquireAtOnce(t, s, "n", locktest.TTL(ttl))
		if late := locks.Instant(came.Load()).Sub(l.Term().Asked); late > ttl/2 { // or it was asked for again
			t.Errorf("granted by an answer that came %v after it was asked for, with a TTL of %v", late, ttl)
		}
		_ = locktest.ReleaseUntilAnswered(l) // which may be over on a busy machine
	})
}

// The connection over which a waiter sleeps dies, and nobody tells it.
func TestWaiterIsCutOff(t *testing.T) {
	t.Parallel()
	b := mariadb().fresh(t) // PostgreSQL's waiters sleep by themselves
	s := b.store(t)
	held := locktest.AcquireAtOnce(t, s, "n")
	proxy := sqltest.NewProxy(t, b.server)
	hung := make(chan struct{}, 1)
	proxy.Judge(func(text string) server.Verdict {
		if strings.Contains(text, "golock:wait:") {
			select {
			case hung <- struct{}{}:
				return server.Hang
			default:
			}
		}
		return server.Pass
	})
	w := locktest.Enqueue(t, b.behind(t, proxy), "n", locktest.TTL(3*time.Second))
	testkit.Eventually(t, "it sleeps", func() bool { return len(hung) == 1 })
	locktest.Release(t, held)
	w.ExpectGrant()
}

// Who is evicted between its offer and its acceptance does not hold, and learns of it;
// the slot is the next one's.
func TestEvictedWithAnOffer(t *testing.T) {
	onStore(t, func(t *testing.T, b *base, s *store) {
		held := locktest.AcquireAtOnce(t, s, "n")
		proxy := sqltest.NewProxy(t, b.server)
		w := locktest.Enqueue(t, b.behind(t, proxy), "n")
		b.listening(t, 1)
		next := locktest.Enqueue(t, s, "n")
		proxy.Freeze()
		locktest.Release(t, held)
		// The offer stands for long: on a busy machine its five seconds may be over before the eviction.
		rows := b.exec(t, "UPDATE golock SET due=due+600000000 WHERE state='O';SELECT 1 FROM golock WHERE state='O'")
		if len(rows) != 1 {
			t.Fatalf("%d offers, want one", len(rows))
		}
		testkit.Must(t, s.Evict(background, []locks.Ref{w.Ref}, "the test")[0])
		proxy.Thaw()
		w.AwaitEnd()
		if !errors.As(w.Err, new(*locks.EvictedError)) {
			t.Errorf("Wait: %v, want that it was evicted", w.Err)
		}
		next.ExpectGrant()
	})
}

// One whose connection stands, but that does not take its offer, loses it to the next.
// Nothing of its late acceptance counts; it has its place when it comes again.
// Slow: the time of an offer.
func TestOfferNotTaken(t *testing.T) {
	onStore(t, func(t *testing.T, b *base, s *store) {
		held := locktest.AcquireAtOnce(t, s, "n")
		proxy := sqltest.NewProxy(t, b.server)
		w := locktest.Enqueue(t, b.behind(t, proxy), "n", locktest.TTL(3*time.Second))
		b.listening(t, 1)
		next, last := locktest.Enqueue(t, s, "n"), locktest.Enqueue(t, s, "n")
		b.listening(t, 3)
		proxy.Freeze()
		locktest.Release(t, held)
		l := next.ExpectGrant()
		proxy.Thaw()
		for range 3 { // it comes again, and waits
			locktest.AwaitEntries(t, s, "n", locktest.Counts{Holding: 1, Waiting: 2})
			locktest.Renew(t, l)
		}
		w.ExpectWaiting()
		locktest.Release(t, l)
		locktest.Release(t, w.ExpectGrant())
		locktest.Release(t, last.ExpectGrant())
	})
}

// One that accepts its offer in the very moment in which it is taken for lost holds.
// Slow: the time of an offer.
func TestAcceptedWhileRevoked(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		proxy := sqltest.NewProxy(t, b.server)
		s := b.behind(t, proxy)
		held := locktest.AcquireAtOnce(t, s, "n")
		woken := locktest.Enqueue(t, s, "n")
		b.listening(t, 1) // in a server's first second nobody can be woken, and nothing is offered
		woken.Leave()
		first := queueWithoutWaiting(t, s)
		var accept sync.Once
		var accepted atomic.Bool
		proxy.Judge(func(text string) server.Verdict {
			own := fmt.Sprintf("WHERE lock_key='%s' AND entry_id='%s' AND state='O'", first.Key, first.ID)
			if strings.HasPrefix(text, "DELETE FROM") && strings.Contains(text, own) {
				// The server ends a transaction that stands still for a second. The next one must not
				// overtake the acceptance.
				accept.Do(func() {
					b.exec(t, fmt.Sprintf("UPDATE golock SET state='H',due=0,ends=%d "+own, time.Now().Add(time.Hour).UnixMicro()))
					accepted.Store(true)
				})
			}
			return server.Pass
		})
		next := locktest.Enqueue(t, s, "n")
		locktest.Release(t, held)
		testkit.Eventually(t, "it accepts", accepted.Load)
		locktest.AwaitEntries(t, s, "n", locktest.Counts{Holding: 1, Waiting: 1})
		next.ExpectWaiting()
	})
}

// Who gives up leaves over the connection that it has: the server may be slow
// to let another one in, and there is no time.
func TestLeaveOverItsConnection(t *testing.T) {
	t.Parallel()
	b := postgresql().fresh(t)
	s := b.store(t)
	locktest.AcquireAtOnce(t, s, "n")
	w := locktest.Enqueue(t, s, "n")
	b.listening(t, 1)
	b.server.Exec(t, "", `ALTER DATABASE "`+b.name+`" CONNECTION LIMIT 0`)
	w.Leave()
	testkit.Eventually(t, "the place is gone", func() bool {
		return len(b.exec(t, "SELECT 1 FROM golock WHERE state='W'")) == 0
	})
}

// A lease outlives a bad network and the loss of its connection.
func TestFarAway(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.made(t)
		locktest.KeepsFarAway(t, b.server.Addr(), func(address string) locks.Store {
			return b.openURL(t, sqltest.URLAt(b.server, address, b.name, "quarantine=0"))
		})
	})
}
