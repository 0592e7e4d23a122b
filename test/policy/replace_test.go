//go:build integration

package policy_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"

	"golock/test/testkit"
)

// inside is a command that notes if another one is inside, ends in its own time
// when it is told to, and otherwise waits for the file "end".
const inside = `trap 'sleep 0.02; rmdir in; exit 0' TERM
mkdir in || echo two >>bad
echo $0 >>order
until test -e end; do sleep 0.01; done
rmdir in`

// Many runs, each to replace those before it: never two commands at once, the
// last one stays, and everybody is told.
func TestReplaceUnderLoad(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		var all []*testkit.Process
		for i := range 20 {
			all = append(all, w.Job("--replace", "running", "--", "sh", "-c", inside, strconv.Itoa(i)).Begin())
			if i%4 == 0 { // the others come as quickly as they can be started
				w.Eventually("one is inside", func() bool { return w.Exists("in") })
			}
		}
		w.Eventually("one is left, and it runs", func() bool {
			left := slices.DeleteFunc(slices.Clone(all), func(p *testkit.Process) bool { return !p.Running() })
			entries := w.List("job")
			return len(left) == 1 && len(entries) == 1 && entries[0].State == "holding"
		})
		testkit.Must(t, os.WriteFile(w.Path("end"), nil, 0o600))
		won := 0
		for i, p := range all {
			switch r := p.Wait(); r.Code {
			case 0:
				won++
			case 75, 79:
				r.Expect(t, r.Code, "evicted by a newer run that replaces it: pid ")
			case 143: // a waiter that was told by TERM and had no time to find out why
				if !w.IsLocal() {
					t.Errorf("run %d: %v", i, r)
				}
			default:
				t.Errorf("run %d: %v", i, r)
			}
		}
		if won != 1 || w.Exists("bad") {
			t.Errorf("%d runs were not replaced; two commands were inside at once: %v", won, w.Exists("bad"))
		}
	})
}

// The new command starts when the old one is dead, also if that takes KILL.
func TestReplaceStubborn(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		old := w.sh(stubborn, "--replace", "running", "--kill-after", "0.5")
		pid := w.AwaitPID("pid")
		next := w.sh(fmt.Sprintf("! kill -0 %d", pid), "--replace", "running")
		old.Expects(79, `golock: lock "job": the slot was taken back: evicted by `, "; the command was stopped\n")
		next.Expects(0, "replaced pid "+strconv.Itoa(old.PID))
	})
}

// With waiting, only waiters are replaced.
func TestReplaceWaiting(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		holder := w.Job("--replace", "running", "--", "sh", "-c", inside, "holder").Begin()
		w.AwaitFile("order")
		old := w.Job("--replace", "waiting", "-E", "7", "--", "touch", "ran").Begin()
		w.AwaitWaiters(old.PID)
		plain := w.Job("--", "true").Begin()
		w.AwaitWaiters(old.PID, plain.PID)
		newest := w.sh("echo newest >>order", "--replace", "waiting", "-q")
		if r := old.Wait(); r.Code != 7 && !(w.IsLocal() && r.Code == 143) {
			t.Errorf("%v, want 7 (143: it was told by TERM and had no time to find out why)", r)
		}
		w.AwaitWaiters(plain.PID, newest.PID)
		testkit.Must(t, os.WriteFile(w.Path("end"), nil, 0o600))
		holder.Expects(0)
		plain.Expects(0)
		if r := newest.Expects(0); r.Stderr != "" {
			t.Errorf("-q: %q", r.Stderr)
		}
		if w.Exists("ran") {
			t.Error("the old one has run")
		}
	})
}
