//go:build integration

package redis_test

import (
	"math/rand/v2"
	"sync"
	"testing"

	"golock/locks"
	. "golock/locks/locktest"
	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// Requests and replies are lost, connections cut, clients give up or vanish.
// Slow: who loses an answer waits until the next attempt.
func TestChaos(t *testing.T) {
	t.Parallel()
	server, url := steady(t)
	proxy := redistest.NewProxy(t, server)
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(testkit.Seed(t), 0))
	proxy.Judge(func([]string) redistest.Verdict {
		mu.Lock()
		defer mu.Unlock()
		switch rng.IntN(25) {
		case 0:
			return redistest.Lose
		case 1:
			return redistest.LoseReply
		}
		return redistest.Pass
	})
	store := func() locks.Store { return open(t, proxy.URL("quarantine=0")) }
	Chaos(t, store, func(int) { proxy.Cut() })
	// Of those who vanished a late request may make an entry. It ends.
	proxy.Replay()
	Becomes(t, open(t, url), "a", 0, 0)
}

// The server is killed again and again and comes back empty.
// Slow: each restart has a quarantine.
func TestChaosOfRestarts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := func() locks.Store { return open(t, server.SocketURL("quarantine=2s")) }
	Chaos(t, store, func(n int) {
		if n%3 == 0 {
			server.Kill()
			server.Restart()
		}
	})
}
