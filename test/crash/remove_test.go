package crash_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// This file pins what remains when somebody removes lock files that are in
// use, every few milliseconds: exclusion, and that everybody is served.

func TestRemovedLockFiles(t *testing.T) {
	for _, s := range []strategy{
		strategies[3],
		{"one at a time, and killed", strategies[0].next},
	} {
		t.Run(s.name, func(t *testing.T) {
			c := newCampaign(t, s)
			removed := c.remover(rand.New(rand.NewPCG(c.random.Uint64(), 0)))
			end := c.end(6 * 2)
			for len(c.procs) < 30 || time.Now().Before(end) {
				c.populate(10)
				if c.name != strategies[3].name {
					c.attack()
				} else {
					within(5*time.Millisecond, c.live[0].isDone)
				}
			}
			n := removed()
			c.finish()
			t.Logf("%d lock files removed", n)
		})
	}
}

// remover removes lock files until it is told to stop; it tells how many.
func (c *run) remover(random *rand.Rand) (stop func() int) {
	var over atomic.Bool
	done := make(chan int, 1)
	go func() {
		n := 0
		for !over.Load() {
			files, _ := filepath.Glob(filepath.Join(c.dir, "locks", "*.lock"))
			for _, f := range files {
				if os.Remove(f) == nil {
					n++
				}
			}
			pass(time.Duration(random.Int64N(int64(6 * time.Millisecond))))
		}
		done <- n
	}()
	c.t.Cleanup(func() { over.Store(true) })
	return func() int {
		over.Store(true)
		return <-done
	}
}
