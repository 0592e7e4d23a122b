package locktest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golock/locks"
	"golock/test/testkit"
)

// Chaos lets actors use two names of a store with leases. After every few acts it calls happens, with the
// number of that call, to disturb the server. There are never more actors inside than the rule allows,
// and at the end nothing is left. If happens is nil, nothing is disturbed and no actor vanishes: then half
// of the actors are enough, except in a deep run.
func Chaos(t *testing.T, open func() locks.Store, happens func(n int)) {
	t.Helper()
	const between = 6
	actors, acts := 8, 4
	if happens == nil {
		actors = testkit.Rounds(4, 8)
	}
	if testkit.Campaign() {
		acts = 300
	}
	seed := testkit.Seed(t)
	t.Logf("seed %d", seed)
	books := map[string]*ledger{}
	for _, name := range []string{"a", "b"} {
		books[name] = &ledger{inside: map[locks.Lease]locks.Claim{}, fences: map[int64]bool{}}
	}
	var all sync.WaitGroup
	var count atomic.Int64
	var one sync.Mutex // one actor at a time calls happens
	for i := range actors {
		s, name := open(), []string{"a", "b"}[i%2]
		all.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			for range acts {
				vanishes := rng.IntN(30) == 0 && happens != nil
				books[name].act(t, s, name, rng, vanishes)
				if n := int(count.Add(1)); n%between == 0 && happens != nil {
					one.Lock()
					happens(n / between)
					one.Unlock()
				}
			}
		})
	}
	all.Wait()
	watch := open()
	for name, book := range books {
		if book.visits == 0 {
			t.Errorf("seed %d: nobody ever came in", seed)
		}
		testkit.Eventually(t, "nothing is left", func() bool {
			entries, err := watch.Entries(context.Background(), name)
			return len(entries) == 0 && err == nil
		})
	}
}

// ledger notes, independently of the store, which actors hold slots.
type ledger struct {
	mu     sync.Mutex // guards what follows
	inside map[locks.Lease]locks.Claim
	fences map[int64]bool
	visits int
}

// enter notes an actor that was let in. Actors whose leases have ended do not count, although a busy
// machine has not let them leave yet: a runner would have killed their commands.
func (b *ledger) enter(t *testing.T, claim locks.Claim, l locks.Lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := l.Grant()
	var others []locks.Claim
	for o, claim := range b.inside {
		if o.Term().End() <= locks.BootTime() {
			continue
		}
		others = append(others, claim)
		for _, slot := range g.Slots {
			if slices.Contains(o.Grant().Slots, slot) {
				t.Errorf("slot %d is held twice", slot)
			}
		}
	}
	if !locks.Admits(others, claim) {
		t.Errorf("%+v is inside beside %+v", claim, others)
	}
	if b.fences[g.Fence] {
		t.Errorf("fence %d was given twice", g.Fence)
	}
	b.fences[g.Fence] = true
	b.visits++
	b.inside[l] = claim
}

func (b *ledger) leave(l locks.Lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.inside, l)
}

// act is one request of an actor, who may give up or vanish.
func (b *ledger) act(t *testing.T, s locks.Store, name string, rng *rand.Rand, vanishes bool) {
	const ttl = 2 * time.Second
	r := NewRequest(t, name, Limit(3), Weight(1+rng.IntN(2)))
	r.TTL, r.NoWait = ttl, rng.IntN(4) == 0
	stays := rng.IntN(4)
	wait := testkit.Patience
	if rng.IntN(2) == 0 {
		wait = time.Duration(rng.IntN(1000)) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	admission, err := s.Join(ctx, r)
	if err != nil {
		return
	}
	lease, err := admission.Wait(ctx)
	if err != nil {
		return
	}
	l := lease
	b.enter(t, r.Claim, l)
	for range stays {
		one, cancel := context.WithTimeout(context.Background(), ttl/5)
		_, err := l.Renew(one)
		cancel()
		if errors.Is(err, locks.ErrLost) {
			if locks.BootTime() < l.Term().End() {
				t.Error("lost before the end of the term")
			}
			break
		}
		if locks.BootTime() > l.Term().End().Add(-ttl/4) {
			break
		}
	}
	b.leave(l)
	if !vanishes {
		_ = l.Release(context.Background())
	}
}
