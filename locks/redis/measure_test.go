//go:build integration

package redis_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golock/locks"
	. "golock/locks/locktest"
	"golock/locks/redis"
	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// Waiters that have come in the same moment do not look in the same moment ever
// after.
// Slow: it counts the questions of a few thirds of a TTL.
func TestLooksApart(t *testing.T) {
	t.Parallel()
	server, url := steady(t)
	const waiters, short = 30, 12 * time.Second
	holder := Take(t, open(t, url), "n", TTL(LongTTL))
	store := open(t, url)
	var all []*Waiter
	for range waiters {
		all = append(all, Queue(t, store, "n", TTL(short)))
	}
	listening(t, server, waiters)
	// The moment in which a waiter counts as dead is its TTL after its last look.
	deadlines := func() (ends []float64) {
		for _, key := range server.Do("KEYS", "*:d").([]any) {
			for i, text := range server.Do("ZRANGE", key, "0", "-1", "WITHSCORES").([]any) {
				if end, err := strconv.ParseFloat(text.(string), 64); i%2 == 1 && err == nil {
					ends = append(ends, end)
				}
			}
		}
		return ends
	}
	first := slices.Max(deadlines())
	testkit.Eventually(t, "all have looked once more", func() bool { return slices.Min(deadlines()) > first })
	ends := deadlines()
	if apart := slices.Max(ends) - slices.Min(ends); apart < float64((short / 3 / 4).Milliseconds()) {
		t.Errorf("all look within %v ms of a third of %v", apart, short)
	}
	holder.Release(background)
	for _, w := range all {
		Release(t, w.Granted())
	}
}

// A waiter that sleeps costs the server one script run in a third of its TTL.
// Slow: it counts the questions of a few thirds of a TTL.
func TestIdleWaiters(t *testing.T) {
	t.Parallel()
	server, url := steady(t)
	const waiters, short = 30, 3 * time.Second
	holder := Take(t, open(t, url), "n", TTL(LongTTL))
	var all []*Waiter
	for range waiters {
		all = append(all, Queue(t, open(t, url), "n", TTL(short)))
	}
	listening(t, server, waiters)
	runs := func() int {
		n := 0
		for _, command := range []string{"evalsha", "eval"} {
			text := server.Info("commandstats", "cmdstat_"+command)
			calls, _, _ := strings.Cut(strings.TrimPrefix(text, "calls="), ",")
			c, _ := strconv.Atoi(calls)
			n += c
		}
		return n
	}
	testkit.Eventually(t, "all have looked after subscribing", func() bool { return runs() >= 1+2*waiters })
	before, start := runs(), time.Now()
	time.Sleep(2 * short / 3)
	// Two rounds are due, and one may just have been beginning at either end.
	if got, due := runs()-before, waiters*(int(time.Since(start)/(short/3))+1); got > due {
		t.Errorf("%d script runs by %d waiters in %v", got, waiters, time.Since(start))
	}
	holder.Release(background)
	for _, w := range all {
		Release(t, w.Granted())
	}
}

// BenchmarkAcquire takes and gives back a free slot.
func BenchmarkAcquire(b *testing.B) {
	s := open(b, redistest.Start(b).SocketURL("quarantine=0"))
	for b.Loop() {
		ticket, err := s.Join(background, NewRequest(b, "n"))
		if err != nil {
			b.Fatal(err)
		}
		l, err := ticket.Wait(background)
		if err != nil {
			b.Fatal(err)
		}
		Release(b, l)
	}
}

// BenchmarkHandOff measures from the call of Release to the return of the
// waiter's Wait.
func BenchmarkHandOff(b *testing.B) {
	url := redistest.Start(b).SocketURL("quarantine=0")
	s, other := open(b, url), open(b, url)
	var last locks.RenewableLease
	{
		ticket, err := s.Join(background, NewRequest(b, "n"))
		if err != nil {
			b.Fatal(err)
		}
		l, _ := ticket.Wait(background)
		last = l.(locks.RenewableLease)
	}
	var took []time.Duration
	for b.Loop() {
		b.StopTimer()
		w := Queue(b, other, "n")
		time.Sleep(5 * time.Millisecond) // it has subscribed and looked
		b.StartTimer()
		start := time.Now()
		Release(b, last)
		last = w.Granted()
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "us-median")
	b.ReportMetric(float64(took[len(took)*9/10].Microseconds()), "us-p90")
	Release(b, last)
}

func ExampleStore_URL() {
	s, err := redis.Open("redis://app:secret@lock.example/2?quarantine=5s")
	fmt.Println(s.URL(), err)
	// Output: redis://app@lock.example:6379/2?quarantine=5s <nil>
}
