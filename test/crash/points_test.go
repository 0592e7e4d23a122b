package crash_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// This file pins that a golock can be killed at the begin and at the end of
// every system call, from the one that opens the store to its last: those that
// are there and those that come are served in their order, and nothing remains.

// instants is how many are tried of each kind, spread over its life;
// GOLOCK_CAMPAIGN has all of them tried.
const instants = 12

func TestKilledAtEverySystemCall(t *testing.T) {
	for _, c := range []struct {
		name  string
		flags []string
		queue int  // golocks that are there already, the first holds
		fresh bool // there is no lock file yet
	}{
		{name: "the first of all", fresh: true},
		{name: "a holder"},
		{name: "one that becomes its command", flags: []string{"-F"}},
		{name: "one that is refused", flags: []string{"-n"}, queue: 2},
		{name: "a waiter", queue: 1},
		{name: "a waiter in a long queue", queue: 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			random := newRand(t)
			// killed lets one golock live until the instant of that number; it
			// gives how many there were.
			killed := func(number int) int {
				w := newWorld(t)
				defer w.clean()
				w.wanted = []string{""}
				if !c.fresh {
					w.start(spec{max: 1}).code()
				}
				first, release := w.lasting(spec{max: 1})
				var queue []*proc
				for i := range c.queue {
					if i == 0 {
						queue = append(queue, w.start(first))
						w.awaitBegin(queue[0])
					} else {
						queue = append(queue, w.queued(spec{max: 1}))
					}
				}
				// One that comes to wait gets the slot.
				var over atomic.Bool
				go func(waiting int) {
					within(limit, func() bool { return over.Load() || w.said("waiting") > waiting })
					release()
				}(w.said("waiting"))
				n := 0
				p, hit := w.trace(spec{max: 1, flags: slices.Concat(c.flags, []string{"-v"})}, func(p *proc) syscall.Signal {
					if n == 0 && !p.hasOpen(filepath.Join(w.dir, "locks")) {
						return 0
					}
					if n++; n == number {
						return syscall.SIGKILL
					}
					return 0
				})
				over.Store(true)
				p.killed = hit
				queue = append(queue, w.start(spec{max: 1}))
				w.drain()
				w.check()
				inOrder(t, queue, "fence", func(p *proc) int64 { return p.fence })
				if list := w.ls(); len(list) != 0 {
					t.Errorf("ls --json after the end: %+v", list)
				}
				if t.Failed() {
					t.Fatalf("killed at number %d: %v", number, hit)
				}
				return n
			}
			all := killed(-1)
			step := max(all/instants, 1)
			if campaign > 0 {
				step = 1
			}
			tried := 0
			for number := 1 + random.IntN(step); number <= all; number += step {
				killed(number)
				tried++
			}
			t.Logf("%d of %d instants", tried, all)
		})
	}
}

// hasOpen reports whether the golock has something in that directory open.
func (p *proc) hasOpen(dir string) bool {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.process.Pid))
	return slices.ContainsFunc(files, func(f string) bool {
		to, _ := os.Readlink(f)
		return strings.HasPrefix(to, dir)
	})
}
