package redis_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/redis"
	"golock/locks/redis/redistest"
)

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
}

func (l *ledger) enter(t *testing.T, claim locks.Claim, g locks.Grant) *visit {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var others []locks.Claim
	for o := range l.inside {
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
	v := &visit{claim, g.Slots}
	l.inside[v] = true
	return v
}

func (l *ledger) leave(v *visit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.inside, v)
}

// Requests and replies are lost, connections cut, clients give up or vanish.
// Never are more inside than the rule allows; at the end nothing is left.
func TestChaos(t *testing.T) {
	t.Parallel()
	server, url := steady(t)
	proxy := redistest.NewProxy(t, server)
	proxy.Judge(func([]string) redistest.Verdict {
		switch rand.IntN(25) {
		case 0:
			return redistest.Lose
		case 1:
			return redistest.LoseReply
		}
		return redistest.Pass
	})
	chaos(t, proxy.URL("quarantine=0"), 500*time.Millisecond, 12, proxy.Cut)
	watch := open(t, url)
	becomes(t, watch, "n", 0, 0)
	// Of those who vanished a late request may make an entry. It ends.
	proxy.Replay()
	becomes(t, watch, "n", 0, 0)
}

// The server is killed again and again and comes back empty.
func TestChaosOfRestarts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	chaos(t, server.SocketURL("quarantine=2s"), 4*time.Second, 3, func() {
		server.Kill()
		server.Restart()
	})
	becomes(t, open(t, server.SocketURL()), "n", 0, 0)
}

// chaos lets actors use a name while something happens to the server, times
// times, with a pause before each.
func chaos(t *testing.T, url string, pause time.Duration, times int, happens func()) {
	t.Helper()
	const actors = 12
	book := &ledger{inside: map[*visit]bool{}, fences: map[int64]bool{}}
	done := make(chan struct{})
	var all sync.WaitGroup
	for range actors {
		all.Go(func() {
			s := open(t, url)
			for {
				select {
				case <-done:
					return
				default:
					act(t, s, book)
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
	if book.visits == 0 {
		t.Error("nobody ever came in")
	}
	t.Logf("%d visits", book.visits)
}

// act is one request of an actor.
func act(t *testing.T, s *redis.Store, book *ledger) {
	const leaseTTL = 2 * time.Second
	ctx, cancel := context.WithTimeout(background, time.Duration(rand.IntN(6000))*time.Millisecond)
	defer cancel()
	r := request(t, "n", ttl(leaseTTL), limit(3), weight(1+rand.IntN(2)), func(r *locks.Request) { r.NoWait = rand.IntN(4) == 0 })
	ticket, err := s.Join(ctx, r)
	if err != nil {
		return
	}
	got, err := ticket.Wait(ctx)
	if err != nil {
		return
	}
	l := got.(locks.Leased)
	v := book.enter(t, r.Claim, l.Grant())
	stay := time.Now().Add(time.Duration(rand.IntN(500)) * time.Millisecond)
	for time.Now().Before(stay) {
		time.Sleep(20 * time.Millisecond)
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
	if rand.IntN(20) > 0 { // the others vanish
		_ = l.Release(background)
	}
}
