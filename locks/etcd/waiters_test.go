//go:build integration

package etcd_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/etcd/etcdtest"
	"golock/locks/lease"
	. "golock/locks/locktest"
	"golock/locks/locktest/server"
	"golock/locks/queue"
	"golock/test/testkit"
)

// While the waiter in front does not take its turn, all behind it get theirs.
func TestPassedOver(t *testing.T) {
	t.Parallel()
	s := open(t, etcdtest.StoreURL(t))
	long := TTL(10 * time.Minute) // no lease ends, and none is prolonged
	holder := AcquireAtOnce(t, s, "n")
	_, err := s.Join(background, NewRequest(t, "n", Limit(2), long)) // nobody waits for what it gets
	testkit.Must(t, err)
	second, third, fourth := Enqueue(t, s, "n", long), Enqueue(t, s, "n", long), Enqueue(t, s, "n", long)
	Release(t, holder)
	Release(t, second.ExpectGrant())
	Release(t, third.ExpectGrant())
	Release(t, fourth.ExpectGrant())
	AcquireAtOnce(t, s, "n", Limit(2)) // beside the waiter, to which the other slot belongs
}

// A waiter that is about to take its slot is no reason to refuse a request for which there is room beside it.
// Here the waiter has queued although there was room, because somebody else was faster.
func TestRoomBesideTheWaiterInFront(t *testing.T) {
	t.Parallel()
	etcd, direct, proxy, slow := startProxy(t)
	writes, goOn := make(chan struct{}), make(chan struct{})
	proxy.Judge(func(request string) server.Verdict {
		if request == "join" {
			writes <- struct{}{}
			select {
			case <-goOn:
			case <-t.Context().Done():
			}
		}
		return server.Pass
	})
	var watches atomic.Int32
	watched := etcdtest.NewProxy(t, etcd)
	watched.Judge(func(request string) server.Verdict {
		if request == "watch" {
			watches.Add(1)
		}
		return server.Pass
	})
	others := open(t, watched.URL())
	results := make(chan error, 4)
	join := func(s locks.Store, changes ...Change) {
		r := NewRequest(t, "n", changes...)
		go func() {
			_, err := s.Join(background, r)
			results <- err
		}()
	}
	join(slow, Limit(9))
	<-writes // it has found the lock free
	first := AcquireAtOnce(t, direct, "n", Limit(9))
	goOn <- struct{}{}
	<-writes // it takes a slot, and is in the queue until then
	ExpectEntries(t, direct, "n", Counts{Holding: 1, Waiting: 1})
	ExpectBusy(t, others, "n", Limit(2))
	if watches.Load() > 0 {
		t.Error("a request waits although there is no room for it")
	}
	join(others, Limit(0), NoWait)
	join(others, Limit(9), MaxQueue(0))
	join(others, Limit(9), Within(first.Grant().Ref))
	testkit.Eventually(t, "three wait for the waiter in front", func() bool { return watches.Load() == 3 || len(results) > 0 })
	close(goOn)
	for range cap(results) {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// Waiters whose watches tell them nothing find out when they prolong their leases.
func TestDeafWatches(t *testing.T) {
	t.Parallel()
	_, direct, proxy, s := startProxy(t)
	proxy.Judge(func(request string) server.Verdict {
		if request == "watch" {
			return server.Hang
		}
		return server.Pass
	})
	holder := AcquireAtOnce(t, direct, "n")
	short := TTL(3 * time.Second)
	first, second, third := Enqueue(t, s, "n", short), Enqueue(t, s, "n", short), Enqueue(t, s, "n", short)
	Release(t, holder)
	Release(t, first.ExpectGrant())
	Release(t, second.ExpectGrant())
	Release(t, third.ExpectGrant())
}

// An attempt that took a slot comes late, within the next one: the holder does not queue besides.
func TestLateTake(t *testing.T) {
	t.Parallel()
	etcd, direct, proxy, s := startProxy(t)
	r := NewRequest(t, "n", TTL(4*time.Second))
	id := r.Ref.ID.String()
	var once sync.Once
	proxy.Judge(func(request string) server.Verdict {
		if request == "join" {
			once.Do(func() {
				all := proxy.Requests()
				_, text, _ := strings.Cut(string(all[len(all)-1].Raw), `{"name":`)
				var record json.RawMessage
				err := json.NewDecoder(strings.NewReader(`{"name":` + text)).Decode(&record)
				_, failed := etcd.TryControl("put", "--lease="+leaseOf(r.Ref), "golock/"+r.Ref.Key.String()+"/h/"+id, string(record))
				if err := errors.Join(err, failed); err != nil {
					t.Error(err)
				}
			})
		}
		return server.Pass
	})
	admission, err := s.Join(background, r)
	testkit.Must(t, err)
	l, err := admission.Wait(background)
	testkit.Must(t, err)
	ExpectEntries(t, direct, "n", Counts{Holding: 1})
	Release(t, l)
}

// More waiters are replaced than fit in a transaction of etcd. What a holder that is replaced has on hold
// ends with it. A waiter hears of its eviction even after its lease has ended.
func TestReplaceMany(t *testing.T) {
	t.Parallel()
	url := etcdtest.StoreURL(t)
	s, server := open(t, url), etcdtest.Shared(t)
	holder := NewRequest(t, "n", Hold(time.Hour), Replace(locks.ReplaceRunning))
	_, err := s.Join(background, holder)
	testkit.Must(t, err)
	const count = 130
	var first locks.Ref
	var waiter locks.Admission
	for i := range count { // each one ahead of the others, as it would replace them otherwise
		r := NewRequest(t, "n", Replace(locks.ReplaceWaiting), Priority(i))
		admission, err := s.Join(background, r)
		testkit.Must(t, err)
		if i == 0 {
			first, waiter = r.Ref, admission
		}
	}
	newest, err := s.Join(background, NewRequest(t, "n", Replace(locks.ReplaceRunning), Priority(-1)))
	testkit.Must(t, err)
	if n := len(newest.Replaced()); n != count+1 {
		t.Errorf("%d are replaced, want %d", n, count+1)
	}
	ExpectEntries(t, s, "n", Counts{Holding: 1, Waiting: 1})
	testkit.Eventually(t, "the lease of the hold is gone", func() bool {
		return !strings.Contains(server.Control("lease", "list"), holdLeaseOf(holder.Ref))
	})
	server.Control("lease", "revoke", leaseOf(first))
	_, err = waiter.Wait(background)
	if !errors.As(err, new(*locks.EvictedError)) {
		t.Errorf("Wait = %v, want an EvictedError", err)
	}
}

// The answer to a request that has queued is lost, and its turn comes before it asks again.
func TestTurnBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	_, direct, proxy, s := startProxy(t)
	holder := AcquireAtOnce(t, direct, "n")
	var lost atomic.Bool
	var once sync.Once
	proxy.Judge(func(request string) server.Verdict {
		switch {
		case lost.Load():
			once.Do(func() {
				if err := holder.Release(background); err != nil {
					t.Error(err)
				}
			})
		case request == "join":
			lost.Store(true)
			return server.LoseReply
		}
		return server.Pass
	})
	Release(t, Acquire(t, s, "n"))
}

// A waiter at rest makes three requests in a TTL, at the front of the queue and further back. One of them writes its
// age.
func TestRequestsAtRest(t *testing.T) {
	t.Parallel()
	shared, url := etcdtest.Shared(t), etcdtest.StoreURL(t)
	direct, prefix := open(t, url), url[strings.LastIndex(url, "/"):]
	AcquireAtOnce(t, direct, "n")
	for place := 1; place <= 3; place++ {
		proxy := etcdtest.NewProxy(t, shared)
		s := open(t, proxy.URL()+prefix)
		var virtual locks.Instant // how far the clock of the waiter is ahead
		s.SetClock(func() locks.Instant { return locks.BootTime() + virtual })
		const ttl, rounds = time.Minute, 4
		r := NewRequest(t, "n", TTL(ttl))
		entry := s.EntryOf(r)
		defer entry.Close()
		a, _, err := entry.Ask(background, queue.Join)
		testkit.Must(t, err)
		if a.Place != place {
			t.Fatalf("place %d, want %d", a.Place, place)
		}
		kinds := func() (all []string) {
			for _, one := range proxy.Requests() {
				all = append(all, one.Request)
			}
			return all
		}
		testkit.Eventually(t, "it watches", func() bool { return slices.Contains(kinds(), "watch") })
		before, from := len(kinds()), virtual
		for virtual < from+locks.Instant(rounds*ttl-ttl/4) {
			virtual += locks.Instant(a.Nap.For)
			a, _, err = entry.Ask(background, queue.Join)
			testkit.Must(t, err)
		}
		made := kinds()[before:]
		if len(made) > 3*rounds {
			t.Errorf("place %d: %d requests in %d TTLs, want 3 in each: %q", place, len(made), rounds, made)
		}
		record := shared.Control("get", "--prefix", "--print-value-only", prefix[1:]+"/"+r.Ref.Key.String()+"/w/7fffffff/"+r.Ref.ID.String())
		var written struct{ Age time.Duration }
		testkit.Must(t, json.Unmarshal([]byte(record), &written))
		if written.Age < 2*ttl {
			t.Errorf("place %d: age %v is written, want that of the last reading: %s", place, written.Age, record)
		}
	}
}

// A waiter whose queue moves more often than it prolongs its lease reads often. It writes its age all the same.
func TestAgeInAMovingQueue(t *testing.T) {
	t.Parallel()
	shared, url := etcdtest.Shared(t), etcdtest.StoreURL(t)
	direct, s := open(t, url), open(t, url)
	var virtual locks.Instant // how far the clock of the waiter is ahead
	s.SetClock(func() locks.Instant { return locks.BootTime() + virtual })
	const ttl = time.Minute
	AcquireAtOnce(t, direct, "n")
	before := []*Waiter{Enqueue(t, direct, "n", Priority(1)), Enqueue(t, direct, "n", Priority(1))}
	r := NewRequest(t, "n", TTL(ttl))
	entry := s.EntryOf(r)
	defer entry.Close()
	ask := func() {
		a, _, err := entry.Ask(background, queue.Join)
		testkit.Must(t, err)
		if a.Verdict != queue.Queued || a.Place != 3 {
			t.Fatalf("%v at place %d, want place 3 in the queue", a.Verdict, a.Place)
		}
	}
	for ask(); virtual < locks.Instant(3*ttl); ask() {
		before[0].Leave()
		before = append(before[1:], Enqueue(t, direct, "n", Priority(1)))
		_, _, err := entry.Sleep(background, queue.Nap{For: testkit.Patience}, nil)
		testkit.Must(t, err)
		virtual += locks.Instant(ttl / 2)
	}
	prefix := url[strings.LastIndex(url, "/")+1:]
	text := shared.Control("get", "--prefix", "--print-value-only", prefix+"/"+r.Ref.Key.String()+"/w/7fffffff/"+r.Ref.ID.String())
	var written struct{ Age time.Duration }
	testkit.Must(t, json.Unmarshal([]byte(text), &written))
	if written.Age < 2*ttl {
		t.Errorf("after %v of waiting, the age %v is written: %s", 3*ttl, written.Age, text)
	}
}

// Two waiters lose their places at the same moment. The second one comes back first, and leaves the slot to the first.
func TestAllRejoin(t *testing.T) {
	t.Parallel()
	url := etcdtest.StoreURL(t)
	now := locks.BootTime() // stands still between the steps
	var entries []lease.Entry
	ask := func(i int, want queue.Verdict, place int) {
		t.Helper()
		a, _, err := entries[i].Ask(background, queue.Join)
		if err != nil || a.Verdict != want || a.Place != place {
			t.Fatalf("waiter %d: %v at place %d, %v; want %v at %d", i+1, a.Verdict, a.Place, err, want, place)
		}
	}
	AcquireAtOnce(t, open(t, url), "n")
	for i := range 2 {
		s := open(t, url)
		s.SetClock(func() locks.Instant { return now })
		entries = append(entries, s.EntryOf(NewRequest(t, "n")))
		defer entries[i].Close()
		ask(i, queue.Queued, i+1)
	}
	etcdtest.Shared(t).Control("del", "--prefix", url[strings.LastIndex(url, "/")+1:]+"/")
	for _, one := range entries {
		_, _, err := one.Sleep(background, queue.Nap{For: time.Hour}, nil) // until it hears of that
		testkit.Must(t, err)
	}
	ask(1, queue.Queued, 1)
	ask(0, queue.Queued, 1)
	now = now.Add(time.Second)
	ask(0, queue.Granted, 0)
}
