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
	"golock/locks/redis"
)

// 200 wait, all of them are served, none before another that came earlier.
func TestManyInOrder(t *testing.T) {
	t.Parallel()
	_, url := steady(t)
	for _, slots := range []int{1, 3} {
		name := fmt.Sprint(slots)
		s := open(t, url)
		var holders []locks.Leased
		for range slots {
			holders = append(holders, take(t, s, name, limit(slots)))
		}
		const many = 100
		var waiters []*waiter
		for range many {
			waiters = append(waiters, queue(t, open(t, url), name, limit(slots)))
		}
		var inside, most atomic.Int32
		var all sync.WaitGroup
		for _, w := range waiters {
			all.Go(func() {
				<-w.done
				if w.err != nil {
					return
				}
				if n := inside.Add(1); n > most.Load() {
					most.Store(n)
				}
				time.Sleep(time.Millisecond)
				inside.Add(-1)
				if err := w.lease.Release(background); err != nil {
					t.Errorf("Release: %v", err)
				}
			})
		}
		for _, l := range holders {
			release(t, l)
		}
		all.Wait()
		var fence int64
		for i, w := range waiters {
			f := w.granted().Grant().Fence
			if f <= fence {
				t.Errorf("max %d: waiter %d has fence %d after %d", slots, i, f, fence)
			}
			fence = f
		}
		if most.Load() > int32(slots) {
			t.Errorf("%d were inside at once, %d may be", most.Load(), slots)
		}
		becomes(t, s, name, 0, 0)
	}
}

// A higher priority goes first, whatever its size; within one who came first.
func TestPriority(t *testing.T) {
	t.Parallel()
	_, url := steady(t)
	s := open(t, url)
	holder := take(t, s, "n")
	priorities := []int{0, -1, 5, 0, math.MaxInt64, 5, math.MinInt64, 300}
	var waiters []*waiter
	for _, p := range priorities {
		waiters = append(waiters, queue(t, s, "n", priority(p)))
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
	for i, e := range list(t, s, "n")[1:] {
		if e.Position != i+1 || e.Claim.Priority != priorities[want[i]] {
			t.Errorf("entry %d has priority %d, want %d", i, e.Claim.Priority, priorities[want[i]])
		}
	}
	last := locks.Leased(holder)
	for i, n := range want {
		for _, later := range want[i:] {
			waiters[later].waits()
		}
		release(t, last)
		last = waiters[n].granted()
	}
}

// Many slots are stored as ranges.
func TestManySlots(t *testing.T) {
	t.Parallel()
	_, url := steady(t)
	s := open(t, url)
	a := take(t, s, "n", limit(5000), weight(2000))
	b := take(t, s, "n", limit(5000), weight(1))
	c := take(t, s, "n", limit(5000), weight(1000))
	release(t, a)
	release(t, c)
	d := take(t, s, "n", limit(5000), weight(3000)).Grant().Slots
	if len(d) != 3000 || d[0] != 0 || d[1999] != 1999 || d[2000] != 2001 || slices.Contains(d, b.Grant().Slots[0]) {
		t.Errorf("slots %v...", d[:3])
	}
}

// Term counts from before the question was asked, for a grant that was waited
// for too.
func TestTerm(t *testing.T) {
	t.Parallel()
	_, url := steady(t)
	s := open(t, url)
	var now atomic.Int64
	redis.SetClock(s, func() locks.Instant { return locks.Instant(now.Load()) })
	now.Store(1000)
	holder := take(t, s, "n", ttl(7*time.Second))
	if got := holder.Term(); got != (locks.Term{Asked: 1000, TTL: 7 * time.Second}) {
		t.Errorf("term %+v", got)
	}
	now.Store(2000)
	renew(t, holder)
	if got := holder.Term(); got.Asked != 2000 {
		t.Errorf("term %+v", got)
	}
	w := queue(t, s, "n", ttl(9*time.Second))
	now.Store(3000)
	release(t, holder)
	if got := w.granted().Term(); got != (locks.Term{Asked: 3000, TTL: 9 * time.Second}) {
		t.Errorf("term %+v", got)
	}
	attached := s.Attach(w.lease.Grant().Ref)
	if term, err := attached.Renew(background); err != nil || term != (locks.Term{Asked: 3000, TTL: 9 * time.Second}) {
		t.Errorf("Renew = %+v, %v", term, err)
	}
}
