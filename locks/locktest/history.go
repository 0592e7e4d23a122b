package locktest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"golock/test/testkit"
)

// The histories of a run have consecutive seeds. The same seed gives the same requests, but the machine
// decides in which order the workers make them.
const (
	historiesVariable = "LOCKTEST_HISTORIES" // a duration for each store
	histories         = 12                   // of a usual run
	deepHistories     = 100

	// latest is the longest time after which a waiter has a free slot. It is less than a third of the TTL,
	// after which a waiter asks by itself: so somebody must have woken it.
	latest     = 50 * time.Second
	historyTTL = 3 * time.Minute
)

// testHistories has several workers, each with stores of its own, do random
// things at the same time, and asks whether there is an order of all that
// happened, each thing somewhere between its beginning and its end, in which
// the model gives the same answers (Herlihy and Wing, Linearizability, 1990).
func testHistories(t *testing.T, w *world) {
	seed, more := testkit.Seed(t), moreRounds(t, &w.engine)
	if w.engine.Kill == nil { // a store may tell of an eviction by SIGTERM, and of the last one after the test
		signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM)
	}
	rounds, events, open := 0, 0, 0
	for ; more(rounds); rounds++ {
		c := newWorkload(t, w, seed+uint64(rounds), rounds)
		c.run()
		n, decided := c.judge()
		if events += n; !decided {
			open++
		}
		c.close()
		if t.Failed() {
			return
		}
	}
	t.Logf("%d histories from seed %d, %d events, %d not decided", rounds, seed, events, open)
}

// moreRounds reports whether there is one more history: a few in a usual run, more in a deep one, or
// for as long as LOCKTEST_HISTORIES says.
func moreRounds(t *testing.T, e *Engine) func(rounds int) bool {
	text := os.Getenv(historiesVariable)
	if text == "" {
		few := histories
		switch {
		case e.Kill != nil: // they cost nothing
			few = 2 * histories
		case len(e.Only) > 0:
			few = histories / 2
		}
		most := testkit.Rounds(few, deepHistories)
		return func(rounds int) bool { return rounds < most }
	}
	span, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s: %v", historiesVariable, err)
	}
	end := time.Now().Add(span)
	return func(rounds int) bool { return rounds == 0 || time.Now().Before(end) }
}

// now reads the clock of the history. It begins at 1, so that 0 is before all events.
func (c *workload) now() int64 { return int64(time.Since(c.began)) + 1 }

// record adds an event that happened between two moments.
func (c *workload) record(worker int, in input, out output, call, ret int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history = append(c.history, porcupine.Operation{
		ClientId: worker, Input: in, Output: out, Call: call, Return: ret,
	})
}

// recordOf adds an event of an entry.
func (c *workload) recordOf(m *member, k kind, out output, call, ret int64) {
	c.record(m.worker, input{kind: k, lock: m.lock, id: m.id}, out, call, ret)
}

// recordAnswer adds what a store has just said about an entry, and returns it as a word.
func (c *workload) recordAnswer(worker int, m *member, k kind, err error, call int64) string {
	word := outcome(err)
	if word == "evicted" && k != opRenew {
		word = "lost"
	}
	switch word {
	case "", "lost", "evicted":
		c.record(worker, input{kind: k, lock: m.lock, id: m.id}, output{word: word}, call, c.now())
	default:
		c.fail("%s %d: %w", k, m.id, err)
	}
	return word
}

// fail notes an answer that no store may give.
func (c *workload) fail(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken == nil {
		c.broken = fmt.Errorf(format, args...)
	}
}

func (c *workload) failed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken != nil
}

func (c *workload) run() {
	var workers sync.WaitGroup
	for n := range c.mix.workers {
		workers.Go(func() {
			rng := rand.New(rand.NewPCG(c.seed, uint64(n)+1))
			for range c.mix.steps {
				if c.failed() {
					return
				}
				c.step(n, rng)
				if c.mix.workers == 1 {
					c.list(n, rng.IntN(c.mix.locks))
				}
				if c.mix.pause > 0 {
					time.Sleep(time.Duration(rng.Int64N(int64(c.mix.pause))))
				}
			}
		})
	}
	workers.Wait()
	c.drain()
}

// never is the end of an event whose end nobody has seen.
const never = int64(1) << 62

// drain gives slots back until nobody waits any more: whatever has happened before, the store must give a free
// slot to the next waiter.
func (c *workload) drain() {
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		c.waits.Wait()
	}()
	defer func() {
		for _, m := range c.members {
			m.cancel()
		}
		<-waited
	}()
	for last := time.Now(); time.Since(last) <= latest; {
		nobodyWaits := false
		select {
		case <-waited: // all grants are known
			nobodyWaits = true
		case <-time.After(time.Millisecond):
		}
		held, staying := c.remaining()
		for _, m := range held {
			c.release(m)
		}
		for _, m := range staying {
			c.evict(m.worker, m)
		}
		if len(held)+len(staying) > 0 {
			last = time.Now()
		} else if nobodyWaits {
			return
		}
	}
	c.fail("nobody has held anything for %v, and somebody waits", latest)
}

// remaining returns the members that hold, and the released members whose hold keeps a slot. It returns each of
// the latter only once.
func (c *workload) remaining() (held, staying []*member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.members {
		switch {
		case m.lease == nil:
		case !m.released:
			held = append(held, m)
		case m.stays:
			m.stays = false
			staying = append(staying, m)
		}
	}
	return held, staying
}
