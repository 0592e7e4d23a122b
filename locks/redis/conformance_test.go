//go:build integration

package redis_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/locktest"
	"golock/locks/redis"
	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Library(m)) }

func TestConformance(t *testing.T) {
	locktest.Run(t, locktest.Engine{
		Fresh: func(t *testing.T) string { return redistest.StoreURL(t) },
		Open:  func(url string) (locks.Store, error) { return redis.Open(url) },
		TTL:   2 * time.Second,
	})
}

// Requests and replies are lost, connections cut, clients give up or vanish.
// Slow: who loses an answer waits until the next attempt.
func TestChaos(t *testing.T) {
	t.Parallel()
	_, direct, proxy, _ := startProxy(t)
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(testkit.Seed(t), 0))
	proxy.Judge(func(string) redistest.Verdict {
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
	locktest.Chaos(t, func() locks.Store { return open(t, proxy.URL()) }, func(int) { proxy.Cut() })
	// Of those who vanished a late request may make an entry. It ends.
	proxy.Replay()
	locktest.AwaitEntries(t, direct, "a", locktest.Counts{})
}

// The format that other versions read changes only together with its number. Of what differs each time
// only the form counts.
func TestFormat(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL("quarantine=0s"))
	locktest.Release(t, locktest.AcquireAtOnce(t, s, "n"))
	l := locktest.AcquireAtOnce(t, s, "n", locktest.Hold(time.Hour), locktest.Priority(1), locktest.Replace(locks.ReplaceRunning))
	locktest.Enqueue(t, s, "n", locktest.Priority(-1))
	testkit.Must(t, s.Evict(background, []locks.Ref{l.Grant().Ref}, "me")[0])
	text := ""
	keys := server.Do("KEYS", "*").([]any)
	slices.SortFunc(keys, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
	for _, key := range keys {
		kind, ask := server.Do("TYPE", key), []any{"HGETALL", key}
		if kind == "zset" {
			ask = []any{"ZRANGE", key, 0, -1, "WITHSCORES"}
		}
		var lines []string
		for pair := range slices.Chunk(server.Do(ask...).([]any), 2) {
			lines = append(lines, form(fmt.Sprint(sorted(pair[0]), " ", sorted(pair[1]))))
		}
		slices.Sort(lines)
		text += form(key.(string)) + " " + fmt.Sprint(kind) + "\n  " + strings.Join(lines, "\n  ") + "\n"
	}
	testkit.Format(t, server.Do("HGET", stateOf(t, server), "format"), text)
}

// sorted is a value, one of JSON with its fields in order, and without who it is.
func sorted(value any) any {
	var fields map[string]any
	if json.Unmarshal([]byte(fmt.Sprint(value)), &fields) != nil {
		return value
	}
	delete(fields, "owner")
	text, _ := json.Marshal(fields)
	return string(text)
}

// form replaces the IDs and the numbers in a text by constants, so that two texts can be compared.
func form(text string) string {
	text = regexp.MustCompile(`[0-9a-f]{32,}`).ReplaceAllString(text, "ID")
	return regexp.MustCompile(`[0-9]+(\.[0-9]+)?`).ReplaceAllString(text, "0")
}
