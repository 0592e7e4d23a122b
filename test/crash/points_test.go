//go:build integration

package crash_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golock/test/testkit"
)

// instants is how many are tried of each kind, spread over its life. (The deep run tries more.)
var instants = testkit.Rounds(3, 20)

// A golock is killed at the begin or end of a system call, from the one that opens the store to its
// last: the others are served in their order, and nothing remains.
// Slow: each instant needs a run of its own under ptrace(2).
func TestKilledAtEverySystemCall(t *testing.T) {
	t.Parallel()
	for _, v := range []victim{
		{name: "the first of all", fresh: true},
		{name: "a holder"},
		{name: "one that becomes its command", flags: []string{"-F"}},
		{name: "one that is refused", flags: []string{"-n"}, queue: 2},
		{name: "a waiter", queue: 1},
		{name: "a waiter in a long queue", queue: 3},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			all := v.live(t, -1)
			step := max(all/instants, 1)
			for number := 1 + newRand(t).IntN(step); number <= all; number += step {
				if v.live(t, number); t.Failed() {
					t.Fatalf("killed at number %d of %d", number, all)
				}
			}
		})
	}
}

type victim struct {
	name  string
	flags []string
	queue int  // golocks that are there already, the first holds
	fresh bool // there is no lock file yet
}

// live runs one golock, kills it at the instant of that number, and returns how many instants there
// were.
func (v *victim) live(t *testing.T, number int) (n int) {
	w := newWorld(t, "")
	if !v.fresh {
		w.start().Wait()
	}
	var queue []*proc
	for i := range v.queue {
		if i == 0 {
			queue = append(queue, w.holding())
		} else {
			queue = append(queue, w.queued())
		}
	}
	dir, released := w.Store[len("local://"):], v.queue == 0
	w.trace(append(v.flags, "-v"), func(p *proc) syscall.Signal {
		if n == 0 && !hasOpen(p.PID, dir) {
			return 0
		}
		if !released && strings.Contains(p.Stderr(), " waiting") {
			released = true
			queue[0].release() // one that comes to wait gets the slot
		}
		if n++; n == number {
			return syscall.SIGKILL
		}
		return 0
	})
	if v.queue > 0 {
		queue[0].release()
	}
	queue = append(queue, w.start())
	w.finishInOrder(queue...)
	return n
}

// hasOpen reports whether a process has something in a directory open.
func hasOpen(pid int, dir string) bool {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	return slices.ContainsFunc(files, func(f string) bool {
		to, _ := os.Readlink(f)
		return strings.HasPrefix(to, dir)
	})
}
