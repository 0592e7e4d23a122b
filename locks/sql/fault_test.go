package sql_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/sql"
	"golock/locks/sql/sqltest"
)

// behind is a store whose connections go through a proxy.
func (b *base) behind(t testing.TB, p *sqltest.Proxy, options ...string) *sql.Store {
	t.Helper()
	return b.openURL(t, p.URL(b.name, append([]string{"quarantine=0"}, options...)...))
}

// commits reports whether a text ends a transaction that has written.
func commits(text string) bool { return strings.Contains(text, ";COMMIT") }

// However many answers of COMMITs are lost there is one grant, one ticket, one
// release.
func TestLostAnswers(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		proxy := sqltest.NewProxy(t, b.server)
		s, watch := b.behind(t, proxy), b.store(t)
		release(t, take(t, watch, "n")) // the table is there
		for _, verdict := range []sqltest.Verdict{sqltest.LoseReply, sqltest.Lose} {
			lose := func(times int32) {
				var n atomic.Int32
				proxy.Judge(func(text string) sqltest.Verdict {
					if commits(text) && n.Add(1) <= times {
						return verdict
					}
					return sqltest.Pass
				})
			}
			lose(3)
			holder := take(t, s, "n", limit(2))
			lose(2)
			second := take(t, s, "n", limit(2))
			if f, g := holder.Grant().Fence, second.Grant().Fence; g <= f {
				t.Errorf("fence %d after %d", g, f)
			}
			lose(2)
			w := queue(t, s, "n", limit(2))
			if h, w := count(t, watch, "n"); h != 2 || w != 1 {
				t.Errorf("%d hold and %d wait, want 2 and 1", h, w)
			}
			lose(1)
			if err := tryRenew(holder); errors.Is(err, locks.ErrLost) { // on a connection of before it asks again by itself
				t.Errorf("Renew without an answer = %v", err)
			}
			renew(t, holder)
			lose(2)
			release(t, holder)
			release(t, holder)
			w.granted()
			if e := refused(t, s, "n", limit(2)); len(e.Holders) != 2 || e.Waiters != 0 {
				t.Errorf("busy: %v", e)
			}
			release(t, second)
			release(t, w.granted())
			becomes(t, watch, "n", 0, 0)
		}
	})
}

// ledger is who is inside, independently of the store.
type ledger struct {
	mu     sync.Mutex
	inside map[*visit]bool
	fences map[int64]bool
	visits int
}

type visit struct {
	claim locks.Claim
	slots []int
	lease locks.Leased
}

func newLedger() *ledger { return &ledger{inside: map[*visit]bool{}, fences: map[int64]bool{}} }

// enter notes somebody who has been let in. Who is inside longer than his lease
// lasts, because the machine is too busy to let him go, does not count: a runner
// would have killed what he does.
func (l *ledger) enter(t *testing.T, claim locks.Claim, lease locks.Leased) *visit {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	g := lease.Grant()
	var others []locks.Claim
	for o := range l.inside {
		if o.lease.Term().End() <= locks.BootTime() {
			continue
		}
		others = append(others, o.claim)
		for _, slot := range g.Slots {
			if slices.Contains(o.slots, slot) {
				t.Errorf("slot %d is held twice", slot)
			}
		}
	}
	if !locks.Admits(others, claim) {
		t.Errorf("%+v is inside beside %+v", claim, others)
	}
	if l.fences[g.Fence] {
		t.Errorf("fence %d was given twice", g.Fence)
	}
	l.fences[g.Fence] = true
	l.visits++
	v := &visit{claim, g.Slots, lease}
	l.inside[v] = true
	return v
}

func (l *ledger) leave(v *visit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.inside, v)
}

// happenings is how often something happens; GOLOCK_CAMPAIGN is for how long that
// goes on in addition.
func happenings(t *testing.T, pause time.Duration, n int) int {
	t.Helper()
	text := os.Getenv("GOLOCK_CAMPAIGN")
	if text == "" {
		return n
	}
	campaign, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("GOLOCK_CAMPAIGN: %v", err)
	}
	return n + int(campaign/4/pause)
}

// chaos lets actors use a few names while something happens to the server, n
// times at least, with a pause before each.
func chaos(t *testing.T, s *sql.Store, pause time.Duration, n int, happens func()) {
	t.Helper()
	times := happenings(t, pause, n)
	const actors = 20
	names := []string{"a", "b", "c", "d"}
	books := map[string]*ledger{}
	for _, name := range names {
		books[name] = newLedger()
	}
	done := make(chan struct{})
	var all sync.WaitGroup
	for i := range actors {
		all.Go(func() {
			name := names[i%len(names)]
			for {
				select {
				case <-done:
					return
				default:
					act(t, s, name, books[name])
				}
			}
		})
	}
	for range times {
		time.Sleep(pause)
		happens()
	}
	close(done)
	all.Wait()
	visits := 0
	for _, name := range names {
		visits += books[name].visits
		becomes(t, s, name, 0, 0)
	}
	if visits == 0 {
		t.Error("nobody ever came in")
	}
	t.Logf("%d visits", visits)
}

// act is one request of an actor, who may give up or vanish.
func act(t *testing.T, s *sql.Store, name string, book *ledger) {
	const leaseTTL = 2 * time.Second
	ctx, cancel := context.WithTimeout(background, time.Duration(rand.IntN(6000))*time.Millisecond)
	defer cancel()
	r := request(t, name, ttl(leaseTTL), limit(3), weight(1+rand.IntN(2)), func(r *locks.Request) { r.NoWait = rand.IntN(4) == 0 })
	ticket, err := s.Join(ctx, r)
	if err != nil {
		return
	}
	got, err := ticket.Wait(ctx)
	if err != nil {
		return
	}
	l := got.(locks.Leased)
	v := book.enter(t, r.Claim, l)
	for stay := time.Now().Add(time.Duration(rand.IntN(60)) * time.Millisecond); time.Now().Before(stay); time.Sleep(10 * time.Millisecond) {
		one, cancel := context.WithTimeout(background, leaseTTL/5)
		_, err := l.Renew(one)
		cancel()
		if errors.Is(err, locks.ErrLost) {
			if locks.BootTime() < l.Term().End() {
				t.Error("lost before the end of the term")
			}
			break
		}
		if locks.BootTime() > l.Term().End().Add(-leaseTTL/4) {
			break
		}
	}
	book.leave(v)
	if rand.IntN(100) > 0 { // the others vanish
		_ = l.Release(background)
	}
}

// Requests and answers are lost at random, sessions cut in the midst of a
// transaction, clients give up or vanish. Never are more inside than the rule
// allows; at the end nothing is left.
func TestChaos(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		watch := b.store(t)
		release(t, take(t, watch, "n"))
		proxy := sqltest.NewProxy(t, b.server)
		var lost atomic.Int64
		proxy.Judge(func(text string) sqltest.Verdict {
			switch n := rand.IntN(30); {
			case n == 0:
				lost.Add(1)
				return sqltest.Lose
			case n == 1 || n == 2 && commits(text):
				lost.Add(1)
				return sqltest.LoseReply
			}
			return sqltest.Pass
		})
		chaos(t, b.behind(t, proxy), 500*time.Millisecond, 12, proxy.Cut)
		t.Logf("%d of %d statements or their answers lost", lost.Load(), proxy.Requests())
	})
}

// All connections are killed by the server, in the midst of transactions too.
func TestChaosOfKills(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		s := b.store(t)
		release(t, take(t, s, "n"))
		chaos(t, s, 100*time.Millisecond, 30, func() { b.server.KillConnections(t, b.name) })
	})
}

// A client stands still in the midst of its transaction, with the name's row
// locked. It holds up the others for the time that the server leaves it, and
// what it says later has no effect.
func TestFrozenInTransaction(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		s := b.store(t)
		held := take(t, s, "n", limit(2))
		proxy := sqltest.NewProxy(t, b.server)
		frozen := make(chan struct{})
		var once sync.Once
		proxy.Judge(func(text string) sqltest.Verdict {
			if commits(text) {
				once.Do(func() {
					proxy.Freeze() // it keeps this one
					close(frozen)
				})
			}
			return sqltest.Pass
		})
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() {
			if ticket, err := b.behind(t, proxy).Join(ctx, request(t, "n", limit(2))); err == nil {
				t.Errorf("it was granted: %v", ticket)
			}
		})
		<-frozen
		from := time.Now()
		err := tryRenew(held)
		for err != nil && time.Since(from) < patience {
			err = tryRenew(held)
		}
		took := time.Since(from)
		if err != nil || took < time.Second || took > 4*time.Second {
			t.Errorf("renewed after %v: %v", took, err)
		}
		t.Logf("renewed after %v", took)
		cancel()
		all.Wait()
		proxy.Thaw()
		becomes(t, s, "n", 1, 0)
		release(t, take(t, s, "n", limit(2)))
	})
}

// A waiter that loses its connection right after it was queued comes again soon:
// nobody could wake it.
func TestDeafWaiter(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		s := b.store(t)
		held := take(t, s, "n")
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		absent, err := s.Join(ctx, request(t, "n")) // and does not take its turn
		if err != nil || !absent.Queued() {
			t.Fatalf("Join: queued %v, %v", absent, err)
		}
		release(t, held)
		proxy := sqltest.NewProxy(t, b.server)
		var lost atomic.Int64
		proxy.Judge(func(text string) sqltest.Verdict {
			if strings.HasPrefix(text, "SHOW PROCESSLIST") || strings.Contains(text, "pg_stat_get_activity") {
				lost.Add(1)
				return sqltest.Lose
			}
			return sqltest.Pass
		})
		w := queue(t, b.behind(t, proxy), "n")
		if lost.Load() == 0 {
			t.Fatal("it has not tried to wake the one before it")
		}
		cancel()
		_, _ = absent.Wait(ctx) // it leaves
		from := time.Now()
		w.granted()
		if took := time.Since(from); took > longTTL/6 {
			t.Errorf("granted after %v", took)
		}
	})
}

// The connection over which a waiter sleeps dies, and nobody tells it.
func TestWaiterIsCutOff(t *testing.T) {
	t.Parallel()
	b := mariadb().fresh(t) // PostgreSQL's waiters sleep by themselves
	s := b.store(t)
	held := take(t, s, "n")
	proxy := sqltest.NewProxy(t, b.server)
	hung := make(chan struct{}, 1)
	proxy.Judge(func(text string) sqltest.Verdict {
		if strings.HasPrefix(text, "/* golock:wait:") {
			select {
			case hung <- struct{}{}:
				return sqltest.Hang
			default:
			}
		}
		return sqltest.Pass
	})
	w := queue(t, b.behind(t, proxy), "n", ttl(3*time.Second))
	eventually(t, "it sleeps", func() bool { return len(hung) == 1 })
	release(t, held)
	w.granted()
}

// A waiter that gives up while the answer with its grant is on the way has begun
// nothing, so nothing stays of it.
func TestLeavingLeavesNoHold(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		s := b.store(t)
		holder := take(t, s, "n", limit(2), weight(2))
		w := queue(t, s, "n", limit(2), func(r *locks.Request) { r.Hold = time.Hour })
		until := time.Now().Add(time.Hour).UnixMicro()
		b.exec(t, fmt.Sprintf("UPDATE golock SET state='H',hold=%d WHERE state='W'", until))
		becomes(t, s, "n", 2, 0)
		w.cancel()
		w.ended()
		becomes(t, s, "n", 1, 0)
		renew(t, holder)
	})
}
