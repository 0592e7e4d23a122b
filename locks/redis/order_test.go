//go:build integration

package redis_test

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golock/locks"
	. "golock/locks/locktest"
	"golock/locks/redis"
	"golock/locks/redis/redistest"
)

// 200 wait, all of them are served, none before another that came earlier.
func TestManyInOrder(t *testing.T) {
	t.Parallel()
	_, url := steady(t)
	for _, slots := range []int{1, 3} {
		name := fmt.Sprint(slots)
		s := open(t, url)
		var holders []locks.RenewableLease
		for range slots {
			holders = append(holders, Take(t, s, name, Limit(slots)))
		}
		const many = 100
		var waiters []*Waiter
		for range many {
			waiters = append(waiters, Queue(t, open(t, url), name, Limit(slots)))
		}
		var inside, most atomic.Int32
		var all sync.WaitGroup
		for _, w := range waiters {
			all.Go(func() {
				<-w.Done
				if w.Err != nil {
					return
				}
				if n := inside.Add(1); n > most.Load() {
					most.Store(n)
				}
				time.Sleep(time.Millisecond)
				inside.Add(-1)
				if err := w.Lease.Release(background); err != nil {
					t.Errorf("Release: %v", err)
				}
			})
		}
		for _, l := range holders {
			Release(t, l)
		}
		all.Wait()
		var fence int64
		for i, w := range waiters {
			f := w.Granted().Grant().Fence
			if f <= fence {
				t.Errorf("max %d: waiter %d has fence %d after %d", slots, i, f, fence)
			}
			fence = f
		}
		if most.Load() > int32(slots) {
			t.Errorf("%d were inside at once, %d may be", most.Load(), slots)
		}
		Becomes(t, s, name, 0, 0)
	}
}

// A higher priority goes first, whatever its size; within one who came first.
func TestPriority(t *testing.T) {
	t.Parallel()
	_, url := steady(t)
	s := open(t, url)
	holder := Take(t, s, "n")
	priorities := []int{0, -1, 5, 0, math.MaxInt, 5, math.MinInt, 300}
	var waiters []*Waiter
	for _, p := range priorities {
		waiters = append(waiters, Queue(t, s, "n", Priority(p)))
	}
	want := []int{4, 2, 5, 7, 0, 3, 1, 6}
	slices.SortStableFunc(want, func(a, b int) int {
		switch pa, pb := priorities[a], priorities[b]; {
		case pa > pb:
			return -1
		case pa < pb:
			return 1
		}
		return a - b
	})
	for i, e := range List(t, s, "n")[1:] {
		if e.Position != i+1 || e.Claim.Priority != priorities[want[i]] {
			t.Errorf("entry %d has priority %d, want %d", i, e.Claim.Priority, priorities[want[i]])
		}
	}
	last := locks.RenewableLease(holder)
	for i, n := range want {
		for _, later := range want[i:] {
			waiters[later].Waits()
		}
		Release(t, last)
		last = waiters[n].Granted()
	}
}

// Many slots are stored as ranges.
func TestManySlots(t *testing.T) {
	t.Parallel()
	_, url := steady(t)
	s := open(t, url)
	a := Take(t, s, "n", Limit(5000), Weight(2000))
	b := Take(t, s, "n", Limit(5000), Weight(1))
	c := Take(t, s, "n", Limit(5000), Weight(1000))
	Release(t, a)
	Release(t, c)
	d := Take(t, s, "n", Limit(5000), Weight(3000)).Grant().Slots
	if len(d) != 3000 || d[0] != 0 || d[1999] != 1999 || d[2000] != 2001 || slices.Contains(d, b.Grant().Slots[0]) {
		t.Errorf("slots %v...", d[:3])
	}
}

// Term counts from before the question was asked, for a grant that was waited
// for too.
func TestTerm(t *testing.T) {
	t.Parallel()
	server, _ := steady(t)
	proxy := redistest.NewProxy(t, server)
	s := open(t, proxy.URL("quarantine=0"))
	var now atomic.Int64
	redis.SetClock(s, func() locks.Instant { return locks.Instant(now.Load()) })
	proxy.Judge(func(args []string) redistest.Verdict { // time passes while a question is under way
		if mode := redistest.Mode(args); mode == "join" || mode == "renew" {
			now.Add(100)
		}
		return redistest.Pass
	})
	now.Store(1000)
	holder := Take(t, s, "n", TTL(7*time.Second))
	if got := holder.Term(); got != (locks.Term{Asked: 1000, TTL: 7 * time.Second}) {
		t.Errorf("term %+v", got)
	}
	now.Store(2000)
	Renew(t, holder)
	if got := holder.Term(); got.Asked != 2000 {
		t.Errorf("term %+v", got)
	}
	w := Queue(t, s, "n", TTL(9*time.Second))
	Release(t, holder)
	if got := w.Granted().Term(); got.Asked < 2100 || int64(got.Asked) >= now.Load() || got.TTL != 9*time.Second {
		t.Errorf("term %+v", got)
	}
	attached := s.Attach(w.Lease.Grant().Ref)
	now.Store(30000)
	if term, err := attached.Renew(background); err != nil || term != (locks.Term{Asked: 30000, TTL: 9 * time.Second}) {
		t.Errorf("Renew = %+v, %v", term, err)
	}
}
