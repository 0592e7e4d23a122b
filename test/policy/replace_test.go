package policy_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"
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
		const crowd = 25
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		var all []*proc
		for i := range crowd {
			all = append(all, w.run("job", "--replace", "running", "--", "sh", "-c", inside, fmt.Sprint(i)))
			time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
		}
		left := func() (n int) {
			for _, p := range all {
				select {
				case <-p.ended:
				default:
					n++
				}
			}
			return n
		}
		w.eventually("one is left", func() bool { return left() == 1 })
		w.eventually("and it runs", func() bool {
			entries := w.ls("job")
			return len(entries) == 1 && entries[0].State == "holding"
		})
		if err := os.WriteFile(w.path("end"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		won := 0
		for i, p := range all {
			switch code := p.code(); code {
			case 0:
				won++
			case 75, 79:
				p.expect(code, "evicted by a newer run that replaces it: pid ")
			default:
				t.Errorf("run %d: code %d, stderr %q", i, code, p.said())
			}
		}
		if won != 1 {
			t.Errorf("%d runs were not replaced", won)
		}
		if w.exists("bad") {
			t.Error("two commands were inside at once")
		}
	})
}

// The new command starts when the old one is dead, also if that takes KILL.
func TestReplaceStubborn(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		old := w.run("job", "--replace", "running", "--kill-after", "0.5", "--", "sh", "-c", `trap "" TERM; echo $$ >old; while :; do sleep 0.05; done`)
		pid := w.await("old")
		next := w.run("job", "--replace", "running", "--", "sh", "-c", `kill -0 `+pid+` 2>/dev/null && echo alive >bad; true`)
		old.expect(79, "the slot was taken back")
		next.expect(0, "replaced pid "+fmt.Sprint(old.cmd.Process.Pid))
		if w.exists("bad") {
			t.Error("the old command was alive")
		}
	})
}

// With waiting, only waiters are replaced.
func TestReplaceWaiting(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		holder := w.run("job", "--replace", "running", "--", "sh", "-c", inside, "holder")
		w.await("order")
		old := w.run("job", "--replace", "waiting", "-E", "7", "--", "touch", "ran")
		w.waiting("job", 1)
		plain := w.run("job", "--", "true")
		w.waiting("job", 2)
		newest := w.run("job", "--replace", "waiting", "-q", "--", "sh", "-c", "echo newest >>order")
		old.expect(7, "evicted by a newer run")
		w.waiting("job", 2)
		if err := os.WriteFile(w.path("end"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, p := range []*proc{holder, plain, newest} {
			p.expect(0)
		}
		if newest.said() != "" {
			t.Errorf("-q: %q", newest.said())
		}
		if w.exists("ran") {
			t.Error("the old one has run")
		}
	})
}
