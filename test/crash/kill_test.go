//go:build integration

package crash_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"
)

// Exclusion and release hold when golocks and commands are killed at any moment
// of their lives, and nothing remains to be cleaned up. (test/campaign does it
// for long, and with more faults.)
func TestKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(*rand.Rand) spec{
		"one at a time": func(*rand.Rand) spec { return spec{max: 1} },
		"sixteen":       func(r *rand.Rand) spec { return spec{max: 16, weight: 1 + r.IntN(r.IntN(16)+1)} },
		"readers":       readers,
		"changing max":  func(r *rand.Rand) spec { return spec{max: []int{2, 5, 0}[r.IntN(3)]} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &crowd{world: newWorld(t, ""), random: newRand(t), next: next}
			for kills := 0; kills < 25; {
				c.populate(8)
				p := c.live[c.random.IntN(len(c.live))]
				switch c.random.IntN(4) {
				case 0: // young
					p = c.newcomer()
					pass(c.some(4 * time.Millisecond))
					kills += count(p.kill())
				case 1:
					kills += count(p.kill())
				case 2:
					kills += count(p.killCommand())
				case 3:
					kills += count(p.kill() && p.killCommand())
				}
			}
			c.finish()
		})
	}
}

// The same when somebody removes the lock files that are in use, again and
// again.
func TestRemovedLockFiles(t *testing.T) {
	t.Parallel()
	c := &crowd{world: newWorld(t, ""), random: newRand(t), next: readers}
	for removed := 0; removed < 100; pass(c.some(4 * time.Millisecond)) {
		c.populate(8)
		files, _ := filepath.Glob(filepath.Join(c.Store[len("local://"):], "*.lock"))
		for _, f := range files {
			removed += count(os.Remove(f) == nil)
		}
		if removed%3 == 0 {
			c.live[c.random.IntN(len(c.live))].kill()
		}
	}
	c.finish()
}

func readers(r *rand.Rand) spec {
	if r.IntN(4) == 0 {
		return spec{max: 1, judge: "x"}
	}
	return spec{max: 0, judge: "s"}
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// crowd is a world with a number of short runs.
type crowd struct {
	*world
	random *rand.Rand
	next   func(*rand.Rand) spec
	live   []*proc // not known to have ended
}

func (c *crowd) some(most time.Duration) time.Duration {
	return time.Duration(c.random.Int64N(int64(most)))
}

// populate sees to it that n run or wait.
func (c *crowd) populate(n int) {
	c.live = slices.DeleteFunc(c.live, func(p *proc) bool { return !p.Running() })
	for len(c.live) < n {
		c.live = append(c.live, c.newcomer())
	}
}

// newcomer starts a golock; some become their command, some do not wait long.
func (c *crowd) newcomer() *proc {
	s := c.next(c.random)
	s.hold = c.some(6 * time.Millisecond)
	switch c.random.IntN(10) {
	case 0:
		s.flags = []string{"-F"}
	case 1:
		s.flags = []string{"-w", strconv.FormatFloat(c.some(30*time.Millisecond).Seconds(), 'f', 6, 64), "-q"}
	}
	return c.start(s)
}

// pass lets a random time pass, exactly: time.Sleep is too coarse for the first
// milliseconds of a life. Nothing is ordered by it.
func pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		if time.Until(end) > 2*time.Millisecond {
			time.Sleep(time.Millisecond)
		}
	}
}
