//go:build integration

package crash_test

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"testing"

	"golock/test/testkit"
)

// Many that queue one after the other are served in that order, with no
// inversion, whatever their weights.
func TestServedInTheOrderOfArrival(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		max   int
		mixed bool
	}{{1, false}, {3, false}, {16, true}} {
		t.Run(fmt.Sprintf("max=%d,mixed=%v", c.max, c.mixed), func(t *testing.T) {
			t.Parallel()
			random := newRand(t)
			w := newWorld(t, "")
			holder := w.holding(spec{max: c.max, weight: c.max})
			var queue []*proc
			var pids []int
			for i := range 60 {
				s := spec{max: c.max, weight: 1}
				if c.mixed {
					s.weight = 1 + random.IntN(c.max)
				}
				queue = append(queue, w.queued(s))
				pids = append(pids, queue[i].PID)
				if i%20 == 0 {
					w.refused(75, "-n")
				}
			}
			w.AwaitWaiters(pids...)
			holder.release()
			w.finishInOrder(queue...)
		})
	}
}

// Nobody overtakes one that waits for more units than are free, -n included.
func TestNobodyOvertakesAHeavierOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	holder := w.holding(spec{max: 3, weight: 2})
	heavy := w.queued(spec{max: 3, weight: 2})
	light := w.queued(spec{max: 3, weight: 1})
	shared := w.queued(spec{max: 0, weight: 1})
	// A refusal is a look at the same table: by then each of them had its turn.
	for range 5 {
		p := w.start(spec{max: 3, flags: []string{"-n"}})
		p.Expects(75)
	}
	for _, p := range []*proc{heavy, light, shared} {
		if w.begun(p) {
			t.Fatalf("golock %d runs, with weight %d", p.token, p.weight)
		}
	}
	holder.release()
	w.finishInOrder(holder, heavy, light, shared)
}

// Of many that come at once none is lost, and no two have the same fence.
func TestABurstLosesNobody(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 3} {
		t.Run(fmt.Sprintf("max=%d", limit), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "")
			gate, open, err := os.Pipe()
			testkit.Must(t, err)
			defer gate.Close()
			for range 80 {
				p, c := w.prepare(spec{max: limit})
				c.By(judge, "@after").Extra = []*os.File{gate}
				p.Process = c.Start()
			}
			open.Close()
			w.finish()
			slices.SortFunc(w.procs, func(a, b *proc) int { return cmp.Compare(a.fence, b.fence) })
			w.inOrder(w.procs...)
		})
	}
}
