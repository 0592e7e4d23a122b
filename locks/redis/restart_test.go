//go:build integration

package redis_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/locktest"
	"golock/locks/locktest/server"
	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// A server that comes back with old data knows some holders and not others. All of them
// are put back.
func TestRestartWithOldData(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	url := server.SocketURL("quarantine=2s")
	s := open(t, url)
	known := locktest.Acquire(t, s, "n", locktest.Limit(3))
	server.Do("SAVE")
	forgotten := locktest.AcquireAtOnce(t, s, "n", locktest.Limit(3))
	short := locktest.AcquireAtOnce(t, s, "n", locktest.Limit(3))
	grants := []locks.Grant{known.Grant(), forgotten.Grant()}
	server.Kill()
	server.Restart()
	quarantine := locktest.ExpectQuarantine(t, s, "n", locktest.Limit(3))
	if err := short.Release(background); err != nil {
		t.Errorf("Release of a forgotten slot = %v", err)
	}
	for i, l := range []locks.Lease{known, forgotten} {
		renewEventually(t, l)
		locktest.ExpectGrant(t, l.Grant(), grants[i])
	}
	time.Sleep(time.Until(quarantine.End))
	locktest.ExpectEntries(t, s, "n", locktest.Counts{Holding: 2})
}

// A holder that the server remembers as a waiter is put back and waits no more: it would be
// granted a slot a second time.
func TestRestartWithAHolderThatWaited(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	url := server.SocketURL("quarantine=0")
	s := open(t, url)
	known := locktest.AcquireAtOnce(t, s, "n", locktest.Limit(2))
	locktest.AcquireAtOnce(t, s, "n", locktest.Limit(2), locktest.TTL(3*time.Second))
	w := locktest.Enqueue(t, open(t, url), "n", locktest.Limit(2))
	awaitWaiters(t, server, 1)
	server.Do("SAVE")
	l := w.ExpectGrant() // when the short lease is over
	l.Events()           // it listens as runs do
	grant := l.Grant()
	server.Kill()
	server.Restart()
	renewEventually(t, l)
	renewEventually(t, known)
	locktest.ExpectEntries(t, s, "n", locktest.Counts{Holding: 2})
	awaitChannels(t, server, 1)
	locktest.Release(t, known)
	if other := locktest.AcquireAtOnce(t, s, "n", locktest.Limit(2)).Grant(); other.Slots[0] == grant.Slots[0] {
		t.Errorf("slot %d is given twice", other.Slots[0])
	}
	locktest.Renew(t, l)
	locktest.ExpectGrant(t, l.Grant(), grant)
}

// Without a holder to wait for, the quarantine still ends by itself.
func TestQuarantineEnds(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.SocketURL("quarantine=3s"))
	locktest.Enqueue(t, s, "n").ExpectGrant()
	// No quarantine for a name that nobody has used on a server that is old.
	testkit.Eventually(t, "the server is old", func() bool {
		uptime, _ := strconv.Atoi(server.Info("server", "uptime_in_seconds"))
		return uptime >= 4
	})
	locktest.AcquireAtOnce(t, s, "m")
}

// After a FLUSHALL the first holder that renews keeps its slot. A later one loses its slot if another
// entry has the same slot number by then, although there is room, or if there is no room.
func TestFlush(t *testing.T) {
	t.Parallel()
	server, url := startServer(t)
	s := open(t, url)
	holder, other := locktest.AcquireAtOnce(t, s, "n", locktest.Limit(2)), locktest.AcquireAtOnce(t, s, "n", locktest.Limit(2))
	w := locktest.Enqueue(t, s, "n", locktest.Limit(2))
	awaitWaiters(t, server, 1)
	grant := holder.Grant()
	server.Do("FLUSHALL")
	locktest.Renew(t, holder)
	locktest.Renew(t, other)
	locktest.ExpectGrant(t, holder.Grant(), grant)
	w.ExpectWaiting()
	w.Leave()

	server.Do("FLUSHALL")
	heir := locktest.AcquireAtOnce(t, open(t, url), "n", locktest.Limit(2))
	locktest.ExpectGrant(t, locks.Grant{Slots: heir.Grant().Slots}, locks.Grant{Slots: grant.Slots})
	locktest.ExpectLost(t, holder)
	locktest.Renew(t, other)
	locktest.Renew(t, heir)

	server.Do("FLUSHALL")
	usurper := locktest.AcquireAtOnce(t, open(t, url), "n")
	locktest.ExpectLost(t, other)
	if f := usurper.Grant().Fence; f <= grant.Fence {
		t.Errorf("fence %d after %d", f, grant.Fence)
	}
	if err := other.Release(background); err != nil { // forgotten: nothing of it is left
		t.Errorf("Release = %v", err)
	}
	locktest.Renew(t, usurper)
}

// Events tells that the connection has gone, and that the holder is evicted.
func TestEvents(t *testing.T) {
	t.Parallel()
	server, url := startServer(t)
	l := locktest.AcquireAtOnce(t, open(t, url), "n", locktest.TTL(3*time.Second))
	events := l.Events()
	expect := func(what string) {
		t.Helper()
		select {
		case <-events:
		case <-time.After(testkit.Patience):
			t.Fatalf("no event: %s", what)
		}
	}
	expect("it listens")
	server.Do("CLIENT", "KILL", "TYPE", "pubsub")
	expect("the connection has gone") // which may be told together with the next
	awaitChannels(t, server, 1)
	for range 2 { // one event may still be that it listens again
		server.Do("PUBLISH", channels(server)[0], `{"evicted":true}`)
		expect("evicted")
	}
	server.Kill()
	expect("the server has gone")
}

// A request that does not queue waits for the end of a short quarantine, and is told of it.
// Slow: it has to pass.
func TestNoWaitInQuarantine(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t) // is young
	s := open(t, server.SocketURL("quarantine=2s"))
	first := locktest.Enqueue(t, s, "held")
	for what, change := range map[string]locktest.Change{"nowait": locktest.NoWait, "maxqueue": locktest.MaxQueue(0)} {
		var told *locks.QuarantineError
		r := locktest.NewRequest(t, what, change, func(r *locks.Request) { r.Hooks.OnQuarantine = func(q *locks.QuarantineError) { told = q } })
		began := time.Now()
		admission, err := s.Join(background, r)
		if err != nil || !admission.Queued() || told == nil {
			t.Fatalf("%s: Join = %v, %v; told %v", what, admission, err, told)
		}
		again, err := s.Join(background, locktest.NewRequest(t, "held", change))
		if err != nil {
			t.Fatalf("%s: Join = %v", what, err)
		}
		l, err := admission.Wait(background)
		if err != nil {
			t.Fatalf("%s: Wait = %v after %v", what, err, time.Since(began))
		}
		locktest.Release(t, l)
		first.ExpectGrant()
		if _, err := again.Wait(background); !locktest.IsBusy(err) {
			t.Errorf("%s: Wait = %v, want busy", what, err)
		}
		server.Kill()
		server.Restart()
		first = locktest.Enqueue(t, s, "held")
	}
}

// The master is killed; the replica that follows it knows the holder or not,
// and the holder keeps its slot.
// Slow: Sentinel takes its time to declare a master down and to promote another.
func TestFailover(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	store := open(t, s.URL())
	holder := locktest.Acquire(t, store, "n")
	grant := holder.Grant()
	w := locktest.Enqueue(t, open(t, s.URL()), "n")
	awaitWaiters(t, s.Master, 1)
	s.Master.Kill()
	renewEventually(t, holder)
	if role := s.Replica.Info("replication", "role"); role != "master" {
		t.Errorf("renewed at a %s", role)
	}
	locktest.ExpectGrant(t, holder.Grant(), grant)
	if busy := locktest.ExpectBusy(t, store, "n"); len(busy.Holders) != 1 {
		t.Errorf("busy: %v", busy)
	}
	w.ExpectWaiting()
	locktest.Release(t, holder)
	if l := w.ExpectGrant(); l.Grant().Fence <= grant.Fence {
		t.Errorf("fence %d after %d", l.Grant().Fence, grant.Fence)
	}
}

// Slow: a cluster takes seconds to become complete.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	s := open(t, c.URL("quarantine=0"))
	names := []string{"a", "b", "{a}", "a{b}c", "}x{", "long " + strings.Repeat("y", 200)}
	for _, name := range names {
		holder := locktest.AcquireAtOnce(t, s, name)
		first, second := locktest.Enqueue(t, s, name), locktest.Enqueue(t, s, name)
		locktest.ExpectBusy(t, s, name)
		locktest.Renew(t, holder)
		locktest.Release(t, holder)
		l := first.ExpectGrant()
		second.ExpectWaiting()
		locktest.Release(t, l)
		second.ExpectGrant()
	}
	testkit.Eventually(t, "all names are listed", func() bool { return len(locktest.List(t, s, "")) == len(names) })

	locktest.ExpectError(t, locktest.ExpectFinalError(t, open(t, c.Nodes[0].URL()), c.NameAt(false)), "redis+cluster://")

	s = open(t, c.URL("quarantine=0", "prefix=swept")) // every name is cleaned up where it lives
	for _, name := range names {
		locktest.AcquireAtOnce(t, s, name, locktest.TTL(time.Second))
	}
	testkit.Eventually(t, "all leases are over", func() bool {
		n, err := s.Sweep(background, "", time.Hour)
		return n == 0 && err == nil && len(locktest.List(t, s, "")) == 0
	})
	removed := 0
	testkit.Eventually(t, "all are removed", func() bool {
		n, err := s.Sweep(background, "", 0)
		testkit.Must(t, err)
		removed += n
		return removed == len(names)
	})

	s = open(t, c.URL("quarantine=0", "prefix=held")) // a short run does not end the name of a long hold
	daysListed := func() int64 {
		for _, node := range c.Nodes {
			if ms, err := node.Try("PTTL", "held:names"); err == nil {
				return ms.(int64) / (24 * time.Hour).Milliseconds()
			}
		}
		return 0
	}
	locktest.AcquireAtOnce(t, s, "n", locktest.Limit(2), locktest.Hold(100*time.Hour))
	testkit.Eventually(t, "the name is listed for the hold", func() bool { return daysListed() == 5 })
	locktest.AcquireAtOnce(t, s, "n", locktest.Limit(2))
	time.Sleep(200 * time.Millisecond) // the name is written behind the run's back
	if d := daysListed(); d != 5 {
		t.Errorf("the index ends in %d days, want 5", d)
	}
}

// A node that is killed and comes back empty is a restart like any other.
// Slow: a cluster needs seconds to see a node go and come, and then its quarantine.
func TestClusterNodeRestarts(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	s := open(t, c.URL())
	name := c.NameAt(false)
	holder := locktest.Acquire(t, s, name)
	grant := holder.Grant()
	for _, n := range c.Nodes {
		if len(n.Do("KEYS", "golock:{*").([]any)) == 0 {
			continue
		}
		n.Kill()
		n.Restart()
	}
	renewEventually(t, holder)
	locktest.ExpectGrant(t, holder.Grant(), grant)
	w := locktest.Enqueue(t, s, name)
	locktest.Release(t, holder)
	w.ExpectGrant()
}

// replicated is a master with one replica, and the URL of a store on it.
type replicated struct {
	master, replica *redistest.Server
	url             func(options ...string) string
	name            string
}

// withReplica are ways to a master with a replica.
var withReplica = map[string]func(t *testing.T) replicated{
	"alone": func(t *testing.T) replicated {
		server := redistest.Start(t)
		return replicated{server, server.Replica(), server.URL, "n"}
	},
	"sentinel": func(t *testing.T) replicated {
		s := redistest.StartSentinel(t)
		return replicated{s.Master, s.Replica, s.URL, "n"}
	},
	"cluster": func(t *testing.T) replicated {
		at := server.Here()
		c := redistest.StartClusterAt(t, []server.Site{at, at, at}, []server.Site{at})
		return replicated{c.Nodes[0], c.Nodes[3], c.URL, c.NameAt(true)}
	},
}

// A grant, a renewal, and a lease that is put back count only when replicas have them.
// Slow: a replica takes seconds to connect.
func TestMinReplicas(t *testing.T) {
	t.Parallel()
	testkit.Each(t, withReplica, func(t *testing.T, _ string, start func(*testing.T) replicated) {
		r := start(t)
		s := open(t, r.url("quarantine=0", "min-replicas=1"))
		l, other := locktest.AcquireAtOnce(t, s, r.name, locktest.Limit(2)), locktest.AcquireAtOnce(t, s, r.name, locktest.Limit(2))
		locktest.Renew(t, l)
		term := l.Term()
		unacknowledged := func(what string, l locks.Lease) {
			t.Helper()
			if err := locktest.TryRenew(l); errors.Is(err, locks.ErrLost) {
				t.Errorf("%s: Renew = %v", what, err)
			} else {
				locktest.ExpectError(t, err, "0 of 1 replicas")
			}
		}
		r.replica.Pause()
		unacknowledged("a renewal", l)
		unacknowledged("a renewal by another process", s.Attach(l.Grant().Ref))
		r.master.Do("FLUSHALL")
		unacknowledged("a lease that is put back", l)
		unacknowledged("another one", other)
		w := locktest.Enqueue(t, s, r.name, locktest.Limit(2))
		awaitWaiters(t, r.master, 1)
		released := locks.BootTime()
		locktest.Release(t, other) // the master hands the slot on, and tells the waiter
		if l.Term() != term {
			t.Errorf("the lease ends with %v, not with %v", l.Term(), term)
		}
		r.replica.Resume()
		renewEventually(t, l)
		if asked := w.ExpectGrant().Term().Asked; asked < released {
			t.Error("the waiter took a grant that no replica had")
		}
	})
}

// A server without a replica, and a replica by itself, grant nothing.
func TestTooFewReplicas(t *testing.T) {
	t.Parallel()
	server, url := startServer(t)
	s := open(t, server.URL("quarantine=0", "min-replicas=1"))
	if outage := wantOutage(t, locktest.ExpectJoinError(t, s, "n"), "0 of 1 replicas have the lease (connect"); !outage.Answered {
		t.Errorf("Join = %v", outage)
	}
	locktest.AwaitEntries(t, open(t, url), "n", locktest.Counts{})
	replica := server.Replica()
	locktest.Release(t, locktest.AcquireAtOnce(t, s, "n"))
	// A replica by itself takes no locks: until it is promoted it is an outage.
	wantOutage(t, locktest.ExpectJoinError(t, open(t, replica.URL()), "n"), "READONLY")
}
