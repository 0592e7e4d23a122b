package sql_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/sql/sqltest"
)

// More wait than keep a connection; all of them come through, none before
// another that came earlier, and the server's connections stay few. It keeps
// both processors busy: beside other tests a release could take more than the
// two seconds it has.
func TestManyInOrder(t *testing.T) {
	for _, f := range families() {
		for _, many := range []int{40, 200} {
			t.Run(fmt.Sprintf("%s/%d", f.name, many), func(t *testing.T) {
				const listen = 16
				const most, busy = 40, 100 // of a server that takes 100 to 151
				b := f.fresh(t)
				s := b.store(t)
				holder := take(t, s, "n")
				var waiters []*waiter
				for range many {
					waiters = append(waiters, queue(t, b.store(t), "n"))
				}
				b.listening(t, listen)
				if h, w := count(t, s, "n"); h != 1 || w != many {
					t.Errorf("%d hold and %d wait, want 1 and %d", h, w, many)
				}
				if n := len(b.sleepers(t)); n != listen {
					t.Errorf("%d keep a connection, want %d", n, listen)
				}
				if n := len(b.server.Connections(t, b.name)); n > most {
					t.Errorf("%d connections while all wait, want at most %d", n, most)
				}
				release(t, holder)
				var fence int64
				for i, w := range waiters {
					l := w.granted()
					if f := l.Grant().Fence; f <= fence {
						t.Errorf("waiter %d has fence %d after %d", i, f, fence)
					} else {
						fence = f
					}
					for _, later := range waiters[i+1:] {
						later.waits()
					}
					if n := len(b.server.Connections(t, b.name)); n > busy {
						t.Errorf("%d connections when waiter %d holds, want at most %d", n, i, busy)
					}
					release(t, l)
				}
				becomes(t, s, "n", 0, 0)
			})
		}
	}
}

// Without any connection, and with a few slots, the order is the same.
func TestOrderWithoutListening(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		for _, slots := range []int{1, 3} {
			name := fmt.Sprintf("of %d", slots)
			s := b.store(t, "waiters=0")
			var holders []locks.Leased
			for range slots {
				holders = append(holders, take(t, s, name, limit(slots)))
			}
			var waiters []*waiter
			for range 10 {
				waiters = append(waiters, queue(t, s, name, limit(slots), ttl(3*time.Second)))
			}
			if n := len(b.sleepers(t)); n != 0 {
				t.Errorf("%d listen, want none", n)
			}
			var fence int64
			for _, w := range waiters {
				release(t, holders[0])
				l := w.granted()
				if f := l.Grant().Fence; f <= fence {
					t.Errorf("fence %d after %d", f, fence)
				} else {
					fence = f
				}
				holders = append(holders[1:], l)
			}
		}
	})
}

// A higher priority goes first, whatever its size; within one who came first.
func TestPriority(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		s := f.fresh(t).store(t)
		last := take(t, s, "n")
		priorities := []int{0, -1, 5, 0, math.MaxInt64, 5, math.MinInt64, 300}
		var waiters []*waiter
		for _, p := range priorities {
			waiters = append(waiters, queue(t, s, "n", priority(p)))
		}
		want := []int{4, 7, 2, 5, 0, 3, 1, 6}
		for i, e := range list(t, s, "n")[1:] {
			if e.Position != i+1 || e.Claim.Priority != priorities[want[i]] {
				t.Errorf("entry %d has priority %d, want %d", i, e.Claim.Priority, priorities[want[i]])
			}
		}
		for i, n := range want {
			for _, later := range want[i:] {
				waiters[later].waits()
			}
			release(t, last)
			last = waiters[n].granted()
		}
	})
}

// Who comes at once in a crowd is served in the order of the tickets that the
// store gave; a slot is never with two.
func TestCrowdInOrder(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		s := b.store(t)
		holder := take(t, s, "n")
		var mu sync.Mutex
		var waiters []*waiter
		var all sync.WaitGroup
		for range 60 {
			all.Go(func() {
				w := queue(t, s, "n")
				mu.Lock()
				defer mu.Unlock()
				waiters = append(waiters, w)
			})
		}
		all.Wait()
		order := make(map[locks.Ref]int)
		for _, e := range list(t, s, "n") {
			order[e.Ref] = e.Position // 0 is the holder
		}
		slices.SortFunc(waiters, func(a, b *waiter) int { return order[a.ref] - order[b.ref] })
		fence := holder.Grant().Fence
		release(t, holder)
		for i, w := range waiters {
			l := w.granted()
			if f := l.Grant().Fence; f <= fence {
				t.Errorf("waiter %d has fence %d after %d", i, f, fence)
			} else {
				fence = f
			}
			release(t, l)
		}
	})
}

// Waiters whose processes are killed do not hold up those behind them for more
// than a second. What is measured is the stall of a good round: on a busy
// machine everything takes its time.
func TestKilledWaiters(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		const stall = time.Second
		var worst time.Duration
		for round := range 4 {
			if worst = killSome(t, b, fmt.Sprintf("round %d", round)); worst <= stall {
				return
			}
			t.Logf("round %d: somebody was held up for %v", round, worst)
		}
		t.Errorf("somebody was held up for %v, want at most %v", worst, stall)
	})
}

// killSome kills some of the waiters, serves the others in their order and
// gives the longest time between a release and the next grant.
func killSome(t *testing.T, b *base, name string) (worst time.Duration) {
	t.Helper()
	const many, victims = 10, 4
	s := b.store(t)
	holder := take(t, s, name)
	kill := make(map[int]bool)
	for _, i := range rand.Perm(many)[:victims] {
		kill[i] = true
	}
	var living, dead []*waiter
	var proxies []*sqltest.Proxy
	for i := range many {
		if !kill[i] {
			living = append(living, queue(t, s, name))
			continue
		}
		// Behind the proxy is a process that will be killed: the kernel closes
		// its connections, and it does not come back.
		p := sqltest.NewProxy(t, b.server)
		proxies = append(proxies, p)
		dead = append(dead, queue(t, b.openURL(t, p.URL(b.name, "quarantine=0")), name))
	}
	b.listening(t, many)
	for _, p := range proxies {
		p.Refuse(true)
		p.Cut()
	}
	if b.family.name == "postgres" { // it sees them go, a moment later
		eventually(t, "the dead are gone", func() bool { return len(b.sleepers(t)) == len(living) })
	}
	last := locks.Leased(holder)
	for i, w := range living {
		release(t, last)
		released := time.Now()
		last = w.granted()
		stall := time.Since(released)
		if stall > time.Second {
			t.Logf("living %d dead %v held up for %v", i, kill, stall)
		}
		worst = max(worst, stall)
	}
	release(t, last)
	for _, w := range dead {
		w.waits()
		w.cancel()
	}
	return worst
}

// One that keeps no connection cannot be seen to die: its place is over with
// its TTL.
func TestKilledWaiterWithoutListening(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		s := b.store(t, "waiters=0")
		holder := take(t, s, "n")
		p := sqltest.NewProxy(t, b.server)
		const time2live = 2 * time.Second
		dead := queue(t, b.openURL(t, p.URL(b.name, "quarantine=0", "waiters=0")), "n", ttl(time2live))
		next := queue(t, s, "n", ttl(time2live))
		p.Refuse(true)
		p.Cut()
		release(t, holder)
		released := time.Now()
		release(t, next.granted())
		if stall := time.Since(released); stall > 2*time2live {
			t.Errorf("held up for %v by one with a TTL of %v", stall, time2live)
		}
		dead.cancel()
	})
}

// There are more holders than the newcomer's own max, and more waiters than a
// step reads: it knows all of the former, and who is first.
func TestMoreHoldersThanOwnMax(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		s := b.store(t)
		const many, crowd = 50, 24
		var holders []locks.Leased
		for range many {
			holders = append(holders, take(t, s, "n", limit(many)))
		}
		if busy := refused(t, s, "n"); len(busy.Holders) != many {
			t.Errorf("busy: %d holders, want %d", len(busy.Holders), many)
		}
		var waiters []*waiter
		for range crowd {
			waiters = append(waiters, queue(t, s, "n"))
		}
		if busy := refused(t, s, "n"); len(busy.Holders) != many || busy.Waiters != crowd {
			t.Errorf("busy: %d holders and %d waiters, want %d and %d", len(busy.Holders), busy.Waiters, many, crowd)
		}
		renew(t, holders[many-1])
		for _, l := range holders {
			waiters[0].waits()
			release(t, l)
		}
		for _, w := range waiters {
			release(t, w.granted())
		}
		becomes(t, s, "n", 0, 0)
	})
}

// Who comes behind a waiter that has died finds that out itself when the slot is
// free, and is called by itself: it does not sleep over that.
func TestBehindDeadWaiter(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		s := b.store(t)
		take(t, s, "n", ttl(time.Second)) // and is never renewed
		dead, err := s.Join(background, request(t, "n"))
		if err != nil || !dead.Queued() {
			t.Fatalf("Join: %v, %v", dead, err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithCancel(background)
			cancel()
			_, _ = dead.Wait(ctx)
		})
		b.server.KillConnections(t, b.name)
		eventually(t, "the slot is free", func() bool { n, _ := count(t, s, "n"); return n == 0 })
		w := queue(t, s, "n")
		from := time.Now()
		w.granted()
		if took := time.Since(from); took > longTTL/6 {
			t.Errorf("granted after %v", took)
		}
	})
}

// The dead at the end of a long queue count for nothing, although nobody has come
// by them who would remove them.
func TestMaxQueueBesideTheDead(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		const living, dead = 25, 5
		b := f.fresh(t)
		s := b.store(t, "waiters=0")
		take(t, s, "n")
		for i := range living + dead {
			if i < living {
				queue(t, s, "n")
				continue
			}
			ticket, err := s.Join(background, request(t, "n", priority(-1))) // it never looks again
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				ctx, cancel := context.WithCancel(background)
				cancel()
				_, _ = ticket.Wait(ctx)
			})
		}
		b.exec(t, "UPDATE golock SET ends=1 WHERE state='W' AND place>-1") // the priority turned round
		most := func(n int) change { return func(r *locks.Request) { r.MaxQueue = &n } }
		var busy *locks.BusyError
		if ticket, err := s.Join(background, request(t, "n", most(living))); !errors.As(err, &busy) || busy.Waiters != living {
			t.Errorf("Join = %v, %v, want that %d wait", ticket, err, living)
		}
		queue(t, s, "n", most(living+1))
	})
}
