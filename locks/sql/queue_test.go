//go:build integration

package sql_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"golock/locks"
	. "golock/locks/locktest"
	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

// More wait than keep a connection; all of them come through, none before
// another that came earlier, and the server's connections stay few, also when the last
// had to join again. It keeps both processors busy, so it is alone.
// Slow: hundreds of waiters, one server, two processors.
func TestManyInOrder(t *testing.T) {
	each(t, testManyInOrder)
}

func testManyInOrder(t *testing.T, f family) {
	const many = 60
	const listen = 24          // more than a step reads
	const most, busy = 40, 100 // of a server that takes 100 to 151
	b := f.fresh(t)
	s := b.store(t)
	holder := Take(t, s, "n")
	var waiters []*Waiter
	for range many {
		waiters = append(waiters, Queue(t, b.store(t, fmt.Sprint("waiters=", listen)), "n"))
	}
	b.listening(t, listen)
	if h, w := Count(t, s, "n"); h != 1 || w != many {
		t.Errorf("%d hold and %d wait, want 1 and %d", h, w, many)
	}
	last := fmt.Sprintf(" FROM golock WHERE entry_id='%s'", waiters[many-1].Ref.ID)
	b.exec(t, "DELETE"+last)
	testkit.Eventually(t, "the last one is back", func() bool { return len(b.exec(t, "SELECT 1"+last)) == 1 })
	if n := len(b.sleepers(t)); n != listen {
		t.Errorf("%d keep a connection, want %d", n, listen)
	}
	if n := len(b.server.Connections(t, b.name)); n > most {
		t.Errorf("%d connections while all wait, want at most %d", n, most)
	}
	Release(t, holder)
	inTurn(t, waiters, func(i int) {
		if n := len(b.server.Connections(t, b.name)); n > busy {
			t.Errorf("%d connections when waiter %d holds, want at most %d", n, i, busy)
		}
	})
	Becomes(t, s, "n", 0, 0)
}

// Without any connection, and with a few slots, the order is the same.
func TestOrderWithoutListening(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		for _, slots := range []int{1, 3} {
			name := fmt.Sprintf("of %d", slots)
			s := b.store(t, "waiters=0")
			var holders []locks.RenewableLease
			for range slots {
				holders = append(holders, Take(t, s, name, Limit(slots)))
			}
			var waiters []*Waiter
			for range 5 {
				waiters = append(waiters, Queue(t, s, name, Limit(slots), TTL(12*time.Second)))
			}
			if n := len(b.sleepers(t)); n != 0 {
				t.Errorf("%d listen, want none", n)
			}
			for _, w := range waiters {
				Release(t, holders[0])
				holders = append(holders[1:], w.Granted())
			}
		}
	})
}

// Waiters whose processes are killed do not hold up those behind them until they
// look by themselves, after 5 s. The others are served in their order.
func TestKilledWaiters(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		const many = 10
		killed := []int{0, 1, 5, 9}
		b := f.fresh(t)
		s := b.store(t)
		last := Take(t, s, "n")
		// Behind the proxy is a process that will be killed: the kernel closes
		// its connections, and it does not come back.
		p := sqltest.NewProxy(t, b.server)
		behind := b.behind(t, p)
		var living, dead []*Waiter
		for i := range many {
			if slices.Contains(killed, i) {
				dead = append(dead, Queue(t, behind, "n"))
			} else {
				living = append(living, Queue(t, s, "n"))
			}
		}
		b.listening(t, many)
		p.Refuse(true)
		p.Cut()
		if f.name == "postgres" { // it sees them go, a moment later
			testkit.Eventually(t, "the dead are gone", func() bool { return len(b.sleepers(t)) == len(living) })
		}
		// On a busy machine the server may notice late that one has died; hardly both times.
		behindDead := time.Hour
		for i, w := range living {
			begun := time.Now()
			Release(t, last)
			last = w.Granted()
			if i == 0 || i == 3 { // behind the first two, and behind one
				behindDead = min(behindDead, time.Since(begun))
			}
		}
		if behindDead > 4*time.Second {
			t.Errorf("each was held up for at least %v", behindDead)
		}
		Release(t, last)
		for _, w := range dead {
			w.Waits()
			w.Cancel()
		}
		p.Refuse(false) // they leave
	})
}

// One that keeps no connection cannot be seen to die: its place is over with
// its TTL.
func TestKilledWaiterWithoutListening(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		s := b.store(t, "waiters=0")
		holder := Take(t, s, "n")
		p := sqltest.NewProxy(t, b.server)
		const time2live = 2 * time.Second
		dead := Queue(t, b.behind(t, p, "waiters=0"), "n", TTL(time2live))
		next := Queue(t, s, "n", TTL(time2live))
		p.Refuse(true)
		p.Cut()
		Release(t, holder)
		released := time.Now()
		Release(t, next.Granted())
		if stall := time.Since(released); stall > 10*time2live {
			t.Errorf("held up for %v by one with a TTL of %v", stall, time2live)
		}
		dead.Cancel()
	})
}

// There are more holders than the newcomer's own max, and more waiters than a
// step reads: it knows all of them.
func TestMoreHoldersThanOwnMax(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		const many, crowd = 22, 24
		s := f.fresh(t).store(t)
		var holders []locks.RenewableLease
		for range many {
			holders = append(holders, Take(t, s, "n", Limit(many)))
		}
		for range crowd {
			Queue(t, s, "n")
		}
		if busy := Refused(t, s, "n"); len(busy.Holders) != many || busy.Waiters != crowd {
			t.Errorf("busy: %d holders and %d waiters, want %d and %d", len(busy.Holders), busy.Waiters, many, crowd)
		}
		Renew(t, holders[many-1])
	})
}

// queueWithoutWaiting puts a waiter into the queue that does not look again.
func queueWithoutWaiting(t *testing.T, s locks.Store, changes ...Change) locks.Ref {
	t.Helper()
	r := NewRequest(t, "n", changes...)
	ticket, err := s.Join(background, r)
	if err != nil || !ticket.Queued() {
		t.Fatalf("Join: %v, %v", ticket, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(background)
		cancel()
		_, _ = ticket.Wait(ctx)
	})
	return r.Ref
}

// Who comes behind a waiter that has died finds that out itself when the slot is
// free, and is called by itself: it does not sleep over that.
func TestBehindDeadWaiter(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		s := b.store(t)
		Take(t, s, "n", TTL(time.Second)) // and is never renewed
		queueWithoutWaiting(t, s)
		b.server.KillConnections(t, b.name)
		testkit.Eventually(t, "the slot is free", func() bool { n, _ := Count(t, s, "n"); return n == 0 })
		w := Queue(t, s, "n")
		from := time.Now()
		w.Granted()
		if took := time.Since(from); took > LongTTL/6 {
			t.Errorf("granted after %v", took)
		}
	})
}

// The dead at the end of a long queue count for nothing, although nobody has come
// by them who would remove them.
func TestMaxQueueBesideTheDead(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		const living, dead = 22, 3
		b := f.fresh(t)
		s := b.store(t, "waiters=0")
		Take(t, s, "n")
		for range living {
			Queue(t, s, "n")
		}
		for range dead {
			queueWithoutWaiting(t, s, Priority(-1))
		}
		b.exec(t, "UPDATE golock SET ends=1 WHERE state='W' AND ord>='8'") // below the usual priority
		var busy *locks.BusyError
		_, err := s.Join(background, NewRequest(t, "n", MaxQueue(living)))
		if !errors.As(err, &busy) || busy.Waiters != living {
			t.Errorf("Join: %v, want that %d wait", err, living)
		}
		Queue(t, s, "n", MaxQueue(living+1))
	})
}
