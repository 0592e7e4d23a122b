package crash_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
)

// This file pins the order: hundreds that queue one after the other are served
// in that order, with no inversion, whatever their weights; nobody overtakes
// one that waits for more units than are free, -n included; and of hundreds
// that come at once none is lost.

// crowd is how many queue up.
const crowd = 200

func TestServedInTheOrderOfArrival(t *testing.T) {
	for _, c := range []struct {
		max   int
		mixed bool
	}{{1, false}, {3, false}, {16, false}, {16, true}} {
		t.Run(fmt.Sprintf("max=%d,mixed=%v", c.max, c.mixed), func(t *testing.T) {
			random := newRand(t)
			w := newWorld(t)
			w.wanted = []string{""}
			all, release := w.lasting(spec{max: c.max, weight: c.max})
			holder := w.start(all)
			w.awaitBegin(holder)
			var queue []*proc
			for i := range crowd {
				s := spec{max: c.max, weight: 1}
				if c.mixed {
					s.weight = 1 + random.IntN(c.max)
				}
				queue = append(queue, w.queued(s))
				if i%20 == 0 {
					p := w.start(spec{max: c.max, flags: []string{"-n"}})
					if p.code() != 75 {
						t.Fatalf("-n behind %d waiters: %v", len(queue), p.state)
					}
				}
			}
			for i, e := range w.ls()[1:] {
				if e.PID != queue[i].process.Pid || e.Position != i+1 {
					t.Fatalf("ls: position %d, process %d; want %d, %d", e.Position, e.PID, i+1, queue[i].process.Pid)
				}
			}
			release()
			w.drain()
			w.check()
			inOrder(t, queue, "fence", func(p *proc) int64 { return p.fence })
			if c.max == 1 {
				inOrder(t, queue, "start", func(p *proc) int64 { return p.at })
			}
			w.nothingLeft()
		})
	}
}

// inOrder fails the test if by does not grow along the queue.
func inOrder(t *testing.T, queue []*proc, what string, by func(*proc) int64) {
	t.Helper()
	for i, p := range queue[1:] {
		if by(p) <= by(queue[i]) {
			t.Errorf("inversion: %s of number %d is %d, of the one before %d", what, i+1, by(p), by(queue[i]))
		}
	}
}

func TestNobodyOvertakesAHeavierOne(t *testing.T) {
	w := newWorld(t)
	w.wanted = []string{""}
	two, release := w.lasting(spec{max: 3, weight: 2})
	holder := w.start(two)
	w.awaitBegin(holder)
	heavy := w.queued(spec{max: 3, weight: 2})
	light := w.queued(spec{max: 3, weight: 1})
	shared := w.queued(spec{max: 0, weight: 1})
	// A refusal is a look at the same table: by then each of them had its turn.
	for range 20 {
		if p := w.start(spec{max: 3, flags: []string{"-n"}}); p.code() != 75 {
			t.Fatalf("-n while a heavier one waits for the free unit: %v", p.state)
		}
	}
	for _, p := range []*proc{heavy, light, shared} {
		if w.begun(p) {
			t.Fatalf("golock %d runs, with weight %d", p.token, p.weight)
		}
	}
	release()
	w.drain()
	w.check()
	inOrder(t, []*proc{holder, heavy, light, shared}, "fence", func(p *proc) int64 { return p.fence })
}

func TestABurstLosesNobody(t *testing.T) {
	for _, limit := range []int{1, 3} {
		t.Run(fmt.Sprintf("max=%d", limit), func(t *testing.T) {
			w := newWorld(t)
			s, start := w.lasting(spec{max: limit})
			pipe := s.stdin
			for range crowd {
				w.startAfter(spec{max: limit}, pipe)
			}
			start()
			w.drain()
			w.check()
			byFence := slices.SortedFunc(slices.Values(w.procs), func(a, b *proc) int { return cmp.Compare(a.fence, b.fence) })
			inOrder(t, byFence, "fence", func(p *proc) int64 { return p.fence })
			w.nothingLeft()
		})
	}
}
