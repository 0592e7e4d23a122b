//go:build integration

package policy_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// run prepares a run of several names.
func (w *world) run(names []string, args ...string) *testkit.Command {
	argv := []string{"run", "--store", w.Store}
	for _, name := range names {
		argv = append(argv, "--name", name)
	}
	return w.Golock(append(argv, args...)...)
}

// areFree fails the test unless nobody holds or waits for any of the names.
func (w *world) areFree(names ...string) {
	w.T.Helper()
	for _, name := range names {
		w.Eventually(name+" is free", func() bool { return len(w.List(name)) == 0 })
	}
}

// holdsAndWaits returns when a run holds a and waits for b.
func (w *world) holdsAndWaits() {
	w.T.Helper()
	w.Eventually("a run holds a and waits for b", func() bool {
		r := w.Golock("ls", "--store", w.Store, "a").Run()
		return strings.Contains(r.Stdout, "holding, waits for b")
	})
}

// Runs take pairs of five names, named in any order, and some of them are killed. The kernel tells whether two
// commands with a common name overlap. (The deep run has more of them.)
func TestPairsOfNames(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		seed := testkit.Seed(t)
		t.Logf("LOCKTEST_SEED=%d", seed)
		rng := rand.New(rand.NewPCG(seed, 5))
		w.Script("pair", `exec 8>>lock.$1 9>>lock.$2
flock -n 8 && flock -n 9 || echo "$1 $2" >>overlaps
sleep 0.0$4
touch ran.$3
`)
		flags := []string{}
		if !w.IsLocal() {
			flags = []string{"--ttl", "10"} // what a watchdog gives back is free sooner
		}
		all := []string{"a", "b", "c", "d", "e"}
		var runs []*testkit.Process
		killed := map[int]bool{}
		for n := range testkit.Rounds(16, 60) {
			at := rng.Perm(len(all))
			pair := []string{all[at[0]], all[at[1]]}
			command := append(slices.Clone(flags), "--", "sh", "./pair", pair[0], pair[1], strconv.Itoa(n), strconv.Itoa(rng.IntN(9)))
			runs = append(runs, w.run(pair, command...).Begin())
			if rng.IntN(3) == 0 {
				victim := rng.IntN(len(runs))
				killed[victim] = true
				time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond) // a fault at any moment
				_ = syscall.Kill(runs[victim].PID, syscall.SIGKILL)
			}
		}
		for n, p := range runs {
			if r := p.Wait(); !killed[n] && (r.Code != 0 || !w.Exists(fmt.Sprint("ran.", n))) {
				t.Errorf("run %d: %v", n, r)
			}
		}
		if w.Exists("overlaps") {
			t.Errorf("commands overlap: %s", w.Read("overlaps"))
		}
		w.areFree(all...)
		w.NoneLeft()
	})
}

// The lease of a name that is held already is renewed while the run waits for the next one, much longer than it
// lasts. A run that waits is shown as holding, with what it waits for.
func TestFirstNameIsKept(t *testing.T) {
	t.Parallel()
	w := &world{testkit.New(t, redistest.StoreURL(t))}
	ttl := 4 * time.Second
	if testkit.Deep() { // a machine that is busy with other tests may miss the renewals of a second
		ttl = time.Second
	}
	holder := w.Hold("b")
	p := w.run([]string{"b", "a"}, "--ttl", ttl.String(), "--", "sh", "-c", `golock held; echo $? >held; golock run --store "$0" --name a -- true; echo $? >>held`, w.Store).Begin()
	w.holdsAndWaits()
	time.Sleep(ttl * 5 / 2)
	w.Lock("a", "-n", "--", "true").Run().Expect(t, 75)
	holder.Finish()
	if p.Expects(0); w.Read("held") != "0\n64\n" {
		t.Errorf("held: %q", w.Read("held"))
	}
	w.areFree("a", "b")
}

// A name that is held already is given back when the run does not get the next one, and no hold stays.
func TestGivenBackUnused(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		holder := w.Hold("b")
		var flags []string
		if !w.IsLocal() {
			flags = []string{"--ttl", "1h"} // so that nothing is free because its lease is over
		}
		start := func(more ...string) *testkit.Process {
			t.Helper()
			p := w.run([]string{"a", "b"}, slices.Concat(flags, []string{"--hold", "1h"}, more, []string{"--", "touch", "ran"})...).Begin()
			return p
		}
		start("-n").Expects(75, `golock: "b" is busy: held by`)
		w.areFree("a")
		start("--wait", "2").Expects(75, `golock: "b" is busy: held by`)
		w.areFree("a")
		for name, end := range map[string]func(p *testkit.Process){
			"INT":  func(p *testkit.Process) { p.Signal(syscall.SIGINT); p.DiesOf(syscall.SIGINT) },
			"KILL": func(p *testkit.Process) { p.Signal(syscall.SIGKILL); p.Wait() },
			"break": func(p *testkit.Process) {
				w.breaks("--name", "a")
				p.Expects(75, `golock: locks "a", "b": the slot was taken back: lock "a": evicted by user `, "nothing was started")
			},
		} {
			t.Log(name)
			p := start()
			w.holdsAndWaits()
			end(p)
			w.areFree("a")
		}
		// Inside a run that holds z nobody waits for b first.
		inside := append([]string{"run", "--store", w.Store, "--name", "z", "--name", "b", "--wait", "50"}, "--", "touch", "ran")
		w.Lock("z", slices.Concat([]string{"--", testkit.Golock}, inside)...).Run().Expect(t, 64, `golock: "z" is held by the enclosing run`)
		w.areFree("z")
		if w.Exists("ran") || len(w.List("b")) != 1 {
			t.Error("a command ran, or a waiter is left")
		}
		holder.Finish()
		w.NoneLeft()
	})
}

// While the command runs, the loss of one name ends it. All of them are free afterwards.
func TestOneNameIsLost(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		p := w.run([]string{"a", "b"}, "--", "sh", "-c", `trap 'golock held; echo $? >held; exit' TERM; echo $GOLOCK_HELD >began; sleep 100 & wait`).Begin()
		held := strings.TrimSpace(w.AwaitFile("began"))
		// A job that is not inside, though it has the variable as one of at(1) has it, finds the first name just busy.
		w.Lock("a", "-n", "--", "true").Setenv("GOLOCK_HELD="+held).Run().Expect(t, 75, `golock: "a" is busy: held by`)
		w.breaks("--name", "a")
		p.Expects(79, `golock: locks "a", "b": the slot was taken back: lock "a": evicted by user `, "the command was stopped")
		if got := w.Read("held"); got != "79\n" {
			t.Errorf("held: %q", got)
		}
		w.areFree("a", "b")
		w.NoneLeft()
	})
}

// A killed golock's command is dead, and both names are free, long before their leases end. On a local store the
// command keeps them.
func TestKilledWithSeveralNames(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		flags := []string{"--hold", "1s"}
		if !w.IsLocal() {
			flags = append(flags, "--ttl", "1h")
		}
		p := w.run([]string{"a", "b"}, append(flags, "--", "sh", "-c", "echo $$ >pid; exec sleep 100")...).Begin()
		pid := w.AwaitPID("pid")
		p.Signal(syscall.SIGKILL)
		p.Wait()
		if w.IsLocal() {
			for _, name := range []string{"a", "b"} {
				w.Lock(name, "-n", "--", "true").Run().Expect(t, 75)
			}
			w.Kill(pid)
		}
		w.areFree("a", "b")
		w.dead(pid)
	})
}

// A hold counts for all names from the start of the command, and stays whatever becomes of golock.
func TestHoldOfSeveralNames(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.run([]string{"a", "b"}, "--hold", "1h", "--", "true").Run().Expect(t, 0)
		w.run([]string{"c", "d"}, "--hold", "1h", "--", "/no/such/command").Run().Expect(t, 127)
		w.areFree("c", "d")
		for _, name := range []string{"a", "b"} {
			w.Lock(name, "-n", "--", "true").Run().Expect(t, 75, "its command has ended")
		}
	})
}

// An outage while the run waits for a name ends the run when the lease of the one before is over. One at the start of
// the hold does so too. A release without an answer neither hangs nor hides that of the other name. A store that has
// answered for the first name, and whose next answer takes longer than --wait, is not away.
func TestOutagesWithSeveralNames(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Shared(t))
	prefix := "&prefix=several" + strconv.Itoa(os.Getpid())
	w := &world{testkit.New(t, proxy.URL()+prefix)}
	direct := &world{testkit.OnStore(t, redistest.Shared(t).URL("quarantine=0")+prefix)}
	judge := func(what string) *atomic.Int64 {
		count := &atomic.Int64{}
		proxy.Judge(func(mode string) redistest.Verdict {
			if mode != what {
				return redistest.Pass
			}
			count.Add(1)
			return redistest.Hang
		})
		return count
	}
	pair := []string{"a", "b"}

	holder := direct.Hold("b")
	var joins atomic.Int64
	proxy.Judge(func(mode string) redistest.Verdict {
		if mode == "join" && joins.Add(1) > 1 {
			time.Sleep(1500 * time.Millisecond) // more than --wait
		}
		return redistest.Pass
	})
	w.run(pair, "--wait", "1", "--", "touch", "ran").Run().Expect(t, 75, `golock: "b" is busy: held by`)

	p := w.run(pair, "--ttl", "4", "--", "touch", "ran").Begin()
	direct.holdsAndWaits()
	judge("renew")
	p.Expects(69, `locks "a", "b": the slot could not be kept: no renewal for`, "nothing was started")
	holder.Finish()

	tries := judge("hold")
	w.run(pair, "--ttl", "4", "--hold", "1h", "--", "touch", "ran").Run().Expect(t, 69, "its hold cannot begin")
	if tries.Load() == 0 || w.Exists("ran") {
		t.Error("the hold began, or the command ran")
	}
	proxy.Judge(nil)
	direct.areFree("a", "b")

	judge("release")
	began := time.Now()
	w.run(pair, "--ttl", "4", "--", "true").Run().Expect(t, 0, "the slot could not be given back", `lock \"a\": redis`, `; lock \"b\": redis`)
	testkit.Lasted(t, began, time.Second, 20*time.Second)
	proxy.Judge(nil)
	direct.areFree("a", "b")
}

// A signal ends a run at once that holds a name, or whose holds begin, though the store does not answer. The
// watchdog gives back what the run could not, and ends the holds that have begun.
func TestSignalsDuringOutages(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Shared(t))
	prefix := "&prefix=signals" + strconv.Itoa(os.Getpid())
	w := &world{testkit.New(t, proxy.URL()+prefix)}
	direct := &world{testkit.OnStore(t, redistest.Shared(t).URL("quarantine=0")+prefix)}
	pair := []string{"a", "b"}
	var isAway atomic.Bool
	holds := make(chan int, 100)
	proxy.Judge(func(mode string) redistest.Verdict {
		switch {
		case mode == "hold":
			holds <- 1
			if len(holds) == 1 {
				return redistest.LoseReply // this hold has begun
			}
			return redistest.Hang
		case mode == "release" && isAway.Load():
			return redistest.Lose
		}
		return redistest.Pass
	})
	ends := func(p *testkit.Process, sig syscall.Signal) {
		t.Helper()
		isAway.Store(true)
		p.Signal(sig)
		r := p.DiesOf(sig)
		isAway.Store(false)
		if !strings.Contains(r.Stderr, "no answer in time: the watchdog tries for another") {
			t.Errorf("it waited for the store: %v", r)
		}
		direct.areFree("a")
	}

	holder := direct.Hold("b")
	p := w.run(pair, "--ttl", "1h", "--", "touch", "ran").Begin()
	direct.holdsAndWaits()
	ends(p, syscall.SIGINT)
	holder.Finish()

	p = w.run(pair, "--ttl", "1h", "--hold", "1h", "--", "touch", "ran").Begin()
	w.Eventually("a hold has begun, and is asked for again", func() bool { return len(holds) > 2 })
	ends(p, syscall.SIGTERM)
	direct.areFree("b")
	if w.Exists("ran") {
		t.Error("the command ran")
	}
	w.NoneLeft()
}
