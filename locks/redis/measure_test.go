//go:build integration

package redis_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	. "golock/locks/locktest"
	"golock/test/testkit"
)

// Waiters that have come in the same moment do not look in the same moment ever
// after. One that sleeps costs the server one script run in a third of its TTL.
// Slow: it counts the questions of a few thirds of a TTL.
func TestLooksApart(t *testing.T) {
	t.Parallel()
	server, url := steady(t)
	const waiters, short = 30, 9 * time.Second
	holder := Take(t, open(t, url), "n", TTL(LongTTL))
	store := open(t, url)
	var all []*Waiter
	for range waiters {
		all = append(all, Queue(t, store, "n", TTL(short)))
	}
	listening(t, server, waiters)
	testkit.Eventually(t, "all have looked after subscribing", func() bool { return scripts(server) >= 1+2*waiters })
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
		Release(t, w.Granted())
	}
}
