//go:build integration

package etcd_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/etcd/etcdtest"
	"golock/locks/lease"
	"golock/locks/locktest"
	"golock/locks/locktest/server"
	"golock/locks/queue"
	"golock/test/testkit"
)

// However many answers are lost, there is one grant, one ticket, one release. The only server is not asked anew
// because its first answer takes long: a crowd that does so is never answered.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	_, direct, proxy, s := startProxy(t)
	var asked atomic.Int32
	proxy.Judge(func(string) server.Verdict {
		if asked.Add(1) == 1 {
			time.Sleep(5 * time.Second / 2)
			if n := asked.Load(); n > 1 {
				t.Errorf("%d requests before the first answer", n)
			}
		}
		return server.Pass
	})
	locktest.Release(t, locktest.AcquireAtOnce(t, s, "slow"))
	locktest.LostAnswers(t, s, direct, func(step string, times int32) {
		var n atomic.Int32
		proxy.Judge(func(request string) server.Verdict {
			if request == step && step != "" && n.Add(1) <= times {
				return server.LoseReply
			}
			return server.Pass
		})
	})
}

// Requests and answers are lost, connections cut, the server is killed and comes back, clients give up
// or vanish. Slow: who loses an answer waits until the next attempt.
func TestChaos(t *testing.T) {
	t.Parallel()
	etcd, direct, proxy, _ := startProxy(t)
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(testkit.Seed(t), 0))
	proxy.Judge(func(string) server.Verdict {
		mu.Lock()
		defer mu.Unlock()
		switch rng.IntN(40) {
		case 0:
			return server.Lose
		case 1:
			return server.LoseReply
		}
		return server.Pass
	})
	locktest.Chaos(t, func() locks.Store { return open(t, proxy.URL()) }, func(n int) {
		if n%3 == 0 {
			etcd.Kill()
			etcd.Restart()
		} else {
			proxy.Cut()
		}
	})
	locktest.AwaitEntries(t, direct, "a", locktest.Counts{})
}

// An entry whose hold ends at a time that the cluster does not tell is listed without a later one.
func TestUnknownEndOfHold(t *testing.T) {
	t.Parallel()
	proxy := etcdtest.NewProxy(t, etcdtest.Shared(t))
	direct := etcdtest.StoreURL(t)
	s := open(t, proxy.URL()+direct[strings.LastIndex(direct, "/"):])
	locktest.Release(t, locktest.AcquireAtOnce(t, s, "n", locktest.Hold(time.Hour)))
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	proxy.Judge(func(request string) server.Verdict {
		if request == "remaining" {
			cancel()
			return server.Lose
		}
		return server.Pass
	})
	all, err := s.Entries(ctx, "n")
	if err == nil || len(all) != 1 || all[0].HeldTill.IsZero() || all[0].HeldTill.After(time.Now()) {
		t.Errorf("Entries = %+v, %v", all, err)
	}
}

// A waiter keeps its place when the history of what it watches is compacted, and its connection is cut.
func TestCompactedWhileWaiting(t *testing.T) {
	t.Parallel()
	etcd, direct, proxy, s := startProxy(t)
	holder := locktest.AcquireAtOnce(t, direct, "n")
	first, second := locktest.Enqueue(t, s, "n"), locktest.Enqueue(t, s, "n")
	proxy.Freeze()
	for range 3 {
		etcd.Control("put", "other", "x")
	}
	revision := etcd.Control("get", "other", "-w", "fields")
	_, revision, _ = strings.Cut(revision, `"Revision" : `)
	etcd.Control("compact", strings.Fields(revision)[0])
	proxy.Cut()
	proxy.Thaw()
	locktest.Release(t, holder)
	locktest.Release(t, first.ExpectGrant())
	locktest.Release(t, second.ExpectGrant())
}

// A full database lets nobody in; who holds renews and gives back, and who waits goes on waiting.
func TestNoSpace(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, "--quota-backend-bytes=1048576")
	s := open(t, etcd.URL())
	holder := locktest.AcquireAtOnce(t, s, "n")
	var ahead time.Duration // of the waiter's clock
	other := open(t, etcd.URL())
	other.SetClock(func() locks.Instant { return locks.BootTime().Add(ahead) })
	waiter := other.EntryOf(locktest.NewRequest(t, "n", locktest.TTL(time.Minute)))
	defer waiter.Close()
	queued(t, waiter)
	big := strings.Repeat("x", 1<<16)
	testkit.Eventually(t, "the database is full", func() bool {
		// The last one fails.
		etcd.TryControl("put", "big", big)
		return strings.Contains(etcd.Control("alarm", "list"), "NOSPACE")
	})
	locktest.Renew(t, holder)
	ahead += time.Minute // the age of the waiter is due
	queued(t, waiter)
	_, _, err := waiter.Ask(background, queue.Leave)
	testkit.Must(t, err)
	_, err = s.Join(background, locktest.NewRequest(t, "m"))
	if err == nil || !strings.Contains(err.Error(), "quota is used up") {
		t.Errorf("Join = %v, want that the database is full", err)
	}
	locktest.ExpectFinding(t, locktest.Examine(t, s), "alarms", locks.Problem)
	locktest.Release(t, holder)
	locktest.AwaitEntries(t, s, "n", locktest.Counts{})
}

// queued makes an entry ask, and demands that it is in the queue.
func queued(t *testing.T, e lease.Entry) {
	t.Helper()
	a, _, err := e.Ask(background, queue.Join)
	if err != nil || a.Verdict != queue.Queued {
		t.Errorf("%v, %v; want that it waits", a.Verdict, err)
	}
}

// A request that is longer than what the server takes at once does not stand still.
func TestLongRequest(t *testing.T) {
	t.Parallel()
	s := open(t, etcdtest.StoreURL(t))
	ctx, cancel := context.WithTimeout(background, 20*time.Second)
	defer cancel()
	admission, err := s.Join(ctx, locktest.NewRequest(t, "n", locktest.Note(strings.Repeat("x", 40_000)))) // is sent twice
	testkit.Must(t, err)
	l, err := admission.Wait(ctx)
	testkit.Must(t, err)
	locktest.Release(t, l)
}

// keeper renews a lease as a run does: each attempt has at most a second.
type keeper struct {
	lease locks.Lease
	lost  chan error
	stop  context.CancelFunc
}

func keep(l locks.Lease) *keeper {
	ctx, stop := context.WithCancel(context.Background())
	k := &keeper{l, make(chan error, 1), stop}
	go func() {
		for ctx.Err() == nil {
			term := l.Term()
			attempt, cancel := context.WithTimeout(ctx, time.Second)
			_, err := l.Renew(attempt)
			cancel()
			switch {
			case errors.Is(err, locks.ErrLost), locks.BootTime() > l.Term().End():
				k.lost <- errors.Join(err, errors.New("the lease has ended"))
				return
			case err == nil:
				time.Sleep(min(term.TTL/3, time.Second))
			default:
				time.Sleep(100 * time.Millisecond)
			}
		}
	}()
	return k
}

// kept fails the test if the lease was lost.
func (k *keeper) kept(t *testing.T) {
	t.Helper()
	select {
	case err := <-k.lost:
		t.Errorf("lost: %v", err)
	default:
	}
}

// A leader that is killed, or stands still, costs nobody a lease or a place, and others soon get in
// again. When most members stand still nobody renews: the holder's time is over before another one has
// the slot.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := etcdtest.StartCluster(t)
	const ttl = 10 * time.Second
	leader := c.Leader()
	s := open(t, c.URL(leader))
	holder := keep(locktest.AcquireAtOnce(t, s, "n", locktest.TTL(ttl)))
	waiter := locktest.Enqueue(t, open(t, c.URL(leader)), "n", locktest.TTL(ttl))
	for _, fault := range []struct {
		name       string
		begin, end func(*etcdtest.Server)
	}{
		{"killed", func(s *etcdtest.Server) { s.Kill() }, func(s *etcdtest.Server) { s.Restart() }},
		{"stopped", func(s *etcdtest.Server) { s.Pause() }, func(s *etcdtest.Server) { s.Resume() }},
	} {
		leader = c.Leader()
		began := time.Now()
		fault.begin(c.Nodes[leader])
		locktest.Release(t, locktest.AcquireAtOnce(t, open(t, c.URL(leader)), fault.name))
		t.Logf("the leader was %s: somebody else got in after %v", fault.name, time.Since(began))
		time.Sleep(ttl - time.Since(began)) // it is the time for which the leader is away
		fault.end(c.Nodes[leader])
		holder.kept(t)
		testkit.Eventually(t, "the leader is back", func() bool {
			_, err := c.Nodes[leader].TryControl("endpoint", "health")
			return err == nil
		})
	}
	locktest.ExpectEntries(t, s, "n", locktest.Counts{Holding: 1, Waiting: 1})
	for _, i := range []int{0, 1} {
		c.Nodes[(leader+i)%3].Pause()
	}
	// A member that is stopped takes a connection, too, and says nothing.
	r := locktest.NewRequest(t, "n", func(r *locks.Request) { r.Limits.Reach = time.Second })
	began := time.Now()
	_, err := open(t, c.Nodes[leader].URL()).Join(t.Context(), r)
	if !errors.As(err, new(*locks.OutageError)) {
		t.Errorf("a stopped member: %v", err)
	}
	testkit.Lasted(t, began, time.Second, lease.NewcomerAttempt/2)
	if err := <-holder.lost; err == nil {
		t.Error("the lease was kept by a minority")
	}
	for _, i := range []int{0, 1} {
		c.Nodes[(leader+i)%3].Resume()
	}
	next := waiter.ExpectGrant()
	if end := holder.lease.Term().End(); locks.BootTime() < end {
		t.Errorf("granted %v before the end of the last lease", end.Sub(locks.BootTime()))
	}
	locktest.Release(t, next)
}

// A lease outlives a bad network and the loss of its connection.
func TestFarAway(t *testing.T) {
	t.Parallel()
	locktest.KeepsFarAway(t, etcdtest.Shared(t).Addr(), func(address string) locks.Store {
		return open(t, "etcd://"+address)
	})
}
