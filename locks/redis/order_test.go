//go:build integration

package redis_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golock/locks"
	. "golock/locks/locktest"
	"golock/locks/redis"
	"golock/locks/redis/redistest"
)

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
