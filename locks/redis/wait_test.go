//go:build integration

package redis_test

import (
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"golock/locks"
	"golock/locks/locktest"
	"golock/locks/redis"
	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// A published grant is not accepted if the last Ask was too long ago: too little of the
// lease is left.
func TestGivenTooLate(t *testing.T) {
	t.Parallel()
	server, url := startServer(t)
	holder := locktest.AcquireAtOnce(t, open(t, url), "n", locktest.TTL(locktest.LongTTL))
	s := open(t, url)
	var ahead atomic.Int64 // of the waiter's clock
	redis.SetClock(s, func() locks.Instant { return locks.BootTime().Add(time.Duration(ahead.Load())) })
	w := locktest.Enqueue(t, s, "n", locktest.TTL(locktest.LongTTL))
	awaitWaiters(t, server, 1)
	ahead.Store(int64(locktest.LongTTL/3 + time.Second))
	late := locks.BootTime().Add(time.Duration(ahead.Load()))
	locktest.Release(t, holder)
	l := w.ExpectGrant()
	if asked := l.Term().Asked; asked < late {
		t.Errorf("the lease counts from %v before the late moment", late.Sub(asked))
	}
	locktest.Release(t, l)
}

// A lease from a published grant outlasts an outage of the promised length: an attempt that
// hangs has to fail, and the next renewal or the end of the command take their time.
func TestGivenWithEnoughLeft(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, time.Minute, time.Hour} {
		for _, killAfter := range []time.Duration{0, 10 * time.Second} {
			window, try := min(killAfter, ttl/6), min(ttl/10, time.Second)
			outage := ttl*2/3 - window - try*3/2
			const roundTrip = 10 * time.Millisecond
			const most = 100 * time.Millisecond
			needs := outage + try + min(ttl/40, most) + roundTrip + max(window, min(ttl/20, most))
			if left := (locks.Term{TTL: ttl}).End().Sub(0) - redis.MaxGrantAge(ttl); left < needs {
				t.Errorf("ttl %v, kill-after %v: %v is left, and it takes %v", ttl, killAfter, left, needs)
			}
		}
	}
}

// One release can make room for many, which need not ask. It does not read all holders for
// each of them: the server serves nobody else meanwhile.
func TestGivenToMany(t *testing.T) {
	t.Parallel()
	server, url := startServer(t)
	const many = 100
	holder := locktest.AcquireAtOnce(t, open(t, url), "n", locktest.Limit(many), locktest.Weight(many))
	waiters := make([]*locktest.Waiter, many)
	for i := range waiters {
		waiters[i] = locktest.Enqueue(t, open(t, url), "n", locktest.Limit(many))
	}
	last := locktest.Enqueue(t, open(t, url), "n", locktest.Limit(many))
	awaitWaiters(t, server, many+1)
	reads, runs := calls(server, "hget"), scripts(server)
	locktest.Release(t, holder)
	if got := calls(server, "hget") - reads; got > 10*many {
		t.Errorf("%d records were read for %d grants", got, many)
	}
	fences, slots := map[int64]bool{}, map[int]bool{}
	for i, w := range waiters {
		g := w.ExpectGrant().Grant()
		fences[g.Fence], slots[g.Slots[0]] = true, true
		if len(fences) != i+1 || len(slots) != i+1 || g.Slots[0] >= many {
			t.Errorf("waiter %d: %+v", i, g)
		}
	}
	// The last makes sure that the one before it has come; a few may have looked by themselves.
	if got := scripts(server) - runs; got > many/10 {
		t.Errorf("%d script runs for %d grants", got, many)
	}
	last.ExpectWaiting()
}

// A server that has come back with its data grants nothing before the quarantine is over,
// even if the first step is a release.
func TestGivenNothingAfterARestart(t *testing.T) {
	t.Parallel()
	server, s, holder, w := startQueue(t, locktest.TTL(locktest.LongTTL))
	server.Do("HSET", stateOf(t, server), "run", strings.Repeat("0", 40)) // as if it had been another server
	quarantined := open(t, server.SocketURL("quarantine=20s")).Attach(holder.Grant().Ref)
	testkit.Must(t, quarantined.Release(background))
	locktest.ExpectEntries(t, s, "n", locktest.Counts{Waiting: 1})
	w.ExpectWaiting()
}

// A message about an old grant is not accepted: it answers another Ask.
func TestGivenLongAgo(t *testing.T) {
	t.Parallel()
	server, _, holder, w := startQueue(t)
	channel := channels(server)[0].(string)
	keys, id, _ := strings.Cut(channel, "c:")
	record := func() map[string]any { return recordOf(t, server, keys+"e", id) }
	old := record()
	server.Do("PUBLISH", channel, "0")
	testkit.Eventually(t, "it has looked again", func() bool { return record()["join"] != old["join"] })
	old["fence"], old["slots"] = "7", "0"
	epoch := server.Do("HGET", keys+"s", "epoch").(string)
	looks := record()["join"]
	server.Do("PUBLISH", channel, toJSON(t, map[string]any{"epoch": epoch, "record": old}))
	testkit.Eventually(t, "it asks what that is", func() bool { return record()["join"] != looks })
	w.ExpectWaiting()
	locktest.Release(t, holder)
	if f := w.ExpectGrant().Grant().Fence; f == 7 {
		t.Error("an old grant was taken")
	}
}

// subscribe subscribes to a channel on a server.
func subscribe(t *testing.T, server *redistest.Server, channel string) *goredis.PubSub {
	t.Helper()
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
	t.Cleanup(func() { client.Close() })
	sub := client.Subscribe(background, channel)
	t.Cleanup(func() { sub.Close() })
	_, err := sub.Receive(background)
	testkit.Must(t, err)
	return sub
}

// A subscriber of a replica is told to ask, and of no grant: the master could not know
// whether it receives the message.
func TestGivenToNobodyElsewhere(t *testing.T) {
	t.Parallel()
	server, direct, proxy, behind := startProxy(t)
	holder := locktest.AcquireAtOnce(t, direct, "n")
	locktest.Enqueue(t, behind, "n")
	awaitWaiters(t, server, 1)
	sub := subscribe(t, server.Replica(), channels(server)[0].(string))
	proxy.Refuse(true)
	proxy.Cut()
	testkit.Eventually(t, "the waiter is cut off", func() bool { return len(channels(server)) == 0 })
	locktest.Release(t, holder)
	m, err := sub.ReceiveMessage(background)
	testkit.Must(t, err)
	proxy.Refuse(false)
	if strings.Contains(m.Payload, "record") {
		t.Errorf("published: %s", m.Payload)
	}
}

// A renewal that puts a holder back, on a server whose clock is behind, may grant a slot in
// the same step: with a higher fence than that of the holder.
func TestGivenBesideAHolderPutBack(t *testing.T) {
	t.Parallel()
	server, s := startStore(t)
	locktest.AcquireAtOnce(t, s, "n", locktest.Limit(2))
	names := strings.TrimSuffix(stateOf(t, server), "s")
	server.Do("HSET", names+"s", "fence", strconv.FormatInt(time.Now().Add(time.Hour).UnixMicro(), 10))
	holder := locktest.AcquireAtOnce(t, s, "n", locktest.Limit(2))
	server.Do("FLUSHALL")
	for range 2 {
		locktest.AcquireAtOnce(t, s, "n", locktest.Limit(2), locktest.TTL(time.Second))
	}
	r := locktest.NewRequest(t, "n", locktest.Limit(2))
	_, err := s.Join(background, r) // and does not look when those are over
	testkit.Must(t, err)
	id := hex.EncodeToString(r.Ref.ID[:])
	subscribe(t, server, names+"c:"+id)
	record := recordOf(t, server, names+"e", id)
	record["join"] = 1
	server.Do("HSET", names+"e", id, toJSON(t, record))
	testkit.Eventually(t, "the short leases are over", func() bool { return locktest.CountEntries(t, s, "n").Holding == 0 })
	locktest.Renew(t, holder)
	for _, e := range locktest.List(t, s, "n") {
		if e.Ref == r.Ref && (e.State != locks.Holding || e.Fence <= holder.Grant().Fence) {
			t.Errorf("%s, fence %d after %d", e.State, e.Fence, holder.Grant().Fence)
		}
	}
}

// A term counts from before the question was sent, that of a published grant from the last
// one. A renewal prolongs it.
func TestTerm(t *testing.T) {
	t.Parallel()
	server, _, proxy, s := startProxy(t)
	var now atomic.Int64
	redis.SetClock(s, func() locks.Instant { return locks.Instant(now.Load()) })
	proxy.Judge(func(mode string) redistest.Verdict { // time passes while a question is under way
		if mode == "join" || mode == "renew" {
			now.Add(100)
		}
		return redistest.Pass
	})
	now.Store(1000)
	holder := locktest.AcquireAtOnce(t, s, "n", locktest.TTL(7*time.Second))
	if got := holder.Term(); got.Asked != 1000 || got.TTL != 7*time.Second {
		t.Errorf("term %+v", got)
	}
	now.Store(2000)
	locktest.Renew(t, holder)
	if got := holder.Term(); got.Asked != 2000 {
		t.Errorf("term %+v", got)
	}
	w := locktest.Enqueue(t, s, "n", locktest.TTL(9*time.Second))
	awaitWaiters(t, server, 1)
	locktest.Release(t, holder)
	got := w.ExpectGrant().Term()
	if got.Asked < 2200 || int64(got.Asked) >= now.Load() || got.TTL != 9*time.Second {
		t.Errorf("term %+v", got)
	}
	attached := s.Attach(w.Lease.Grant().Ref)
	now.Store(30000)
	if term, err := attached.Renew(background); err != nil || term.Asked != 30000 || term.TTL != 9*time.Second {
		t.Errorf("Renew = %+v, %v", term, err)
	}
}

// A waiter that becomes the second is told so at once, not when it asks next: it can
// prepare then.
func TestNear(t *testing.T) {
	t.Parallel()
	server, s := startStore(t)
	holder := locktest.AcquireAtOnce(t, s, "n")
	first, second := locktest.Enqueue(t, s, "n"), locktest.Enqueue(t, s, "n")
	near := make(chan struct{}, 100)
	locktest.Enqueue(t, s, "n", func(r *locks.Request) {
		r.Hooks.OnPlace = func(place int) {
			if place <= 2 {
				near <- struct{}{}
			}
		}
	})
	awaitWaiters(t, server, 3)
	locktest.Release(t, holder)
	l := first.ExpectGrant()
	select {
	case <-near:
		t.Error("told to be near with two in front")
	default:
	}
	locktest.Release(t, l)
	server.Do("CLIENT", "PAUSE", 20000, "WRITE") // nobody's look is answered
	select {
	case <-near:
	case <-time.After(10 * time.Second):
		t.Error("not told")
	}
	server.Do("CLIENT", "UNPAUSE")
	locktest.Release(t, second.ExpectGrant())
}

// Waiters that came together do not ask together ever after. A waiter costs the server one
// script run in a third of its TTL. Slow: it counts those of a few thirds.
func TestLooksApart(t *testing.T) {
	t.Parallel()
	server, url := startServer(t)
	const waiters, short = 30, 9 * time.Second
	holder := locktest.AcquireAtOnce(t, open(t, url), "n", locktest.TTL(locktest.LongTTL))
	store := open(t, url)
	var all []*locktest.Waiter
	for range waiters {
		all = append(all, locktest.Enqueue(t, store, "n", locktest.TTL(short)))
	}
	awaitWaiters(t, server, waiters)
	testkit.Eventually(t, "all have looked after subscribing", func() bool { return scripts(server) >= 1+2*waiters })
	// The moment in which a waiter counts as dead is its TTL after its last look.
	key := strings.TrimSuffix(stateOf(t, server), "s") + "d"
	deadlines := func() (ends []float64) {
		for pair := range slices.Chunk(server.Do("ZRANGE", key, "0", "-1", "WITHSCORES").([]any), 2) {
			end, err := strconv.ParseFloat(pair[1].(string), 64)
			testkit.Must(t, err)
			ends = append(ends, end)
		}
		return ends
	}
	before, start := scripts(server), time.Now()
	for range 3 {
		first := slices.Max(deadlines())
		testkit.Eventually(t, "all have looked once more", func() bool { return slices.Min(deadlines()) > first })
	}
	ends := deadlines()
	if apart := slices.Max(ends) - slices.Min(ends); apart < float64((short / 3 / 4).Milliseconds()) {
		t.Errorf("all look within %v ms of a third of %v", apart, short)
	}
	// One round more may just have been beginning at either end.
	got, took := scripts(server)-before, time.Since(start)
	if due := waiters * (took.Seconds()/(short.Seconds()/3) + 1); float64(got) > due {
		t.Errorf("%d script runs by %d waiters in %v", got, waiters, took)
	}
	holder.Release(background)
	for _, w := range all {
		locktest.Release(t, w.ExpectGrant())
	}
}
