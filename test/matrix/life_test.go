// Pins who keeps the slot and who is ended: descendants with and without
// --tree, the kill of golock itself, --exec, runs inside runs, PID 1.

package matrix_test

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A daemon that the command left behind does not keep the slot.
func TestDaemonDoesNotKeepTheSlot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.job("--", "sh", "-c", "setsid sleep 1000 & sleep 1000 & exit 4").run().expectCode(t, 4)
	w.isFree()
	if n := len(w.living()); n != 2 {
		t.Errorf("%d processes are left, want the two daemons", n)
	}
}

// With --tree the run lasts as long as the last descendant.
func TestTreeWaitsForAll(t *testing.T) {
	t.Parallel()
	for range 10 {
		w := newWorld(t)
		p := w.job("--tree", "--", "sh", "-c", "setsid sh -c 'echo $$ >pid; while ! test -e end; do sleep 0.01; done' & exit 6").start()
		daemon := awaitPID(t, w.path("pid"))
		w.isTaken()
		if !p.running() || !alive(daemon) {
			t.Fatal("golock ended before the daemon")
		}
		w.script("end", "")
		p.wait().expectCode(t, 6)
		w.noneNow()
		w.isFree()
	}
}

// Stopping it stops them all: those that left the group, and with KILL those
// that ignore TERM.
func TestTreeStopsAll(t *testing.T) {
	t.Parallel()
	const family = `setsid sh -c 'echo $$ >d1; sleep 1000; :' & sh -c 'trap "" TERM; echo $$ >d2; while :; do sleep 1; done' & setsid sh -c 'trap "" TERM; echo $$ >d3; while :; do sleep 1; done' &`
	for _, end := range []string{"TERM", "limit"} {
		w := newWorld(t)
		flags := []string{"--tree", "--kill-after", "0.3"}
		if end == "limit" {
			flags = append(flags, "--time-limit", "0.5")
		}
		p := w.job(append(flags, "--", "sh", "-c", family+" wait")...).start()
		for _, d := range []string{"d1", "d2", "d3"} {
			awaitPID(t, w.path(d))
		}
		want := 124
		if end == "TERM" {
			p.signal(syscall.SIGTERM)
			want = 143
		}
		p.wait().expectCode(t, want)
		w.noneNow()
		w.isFree()
	}
}

// A time limit ends the whole group, also those that outlive its first process.
func TestTimeLimitEndsTheGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.job("--time-limit", "0.3", "--kill-after", "0.3", "--", "sh", "-c", `sh -c 'trap "" TERM; while :; do sleep 1; done' & wait`).run().expectCode(t, 124)
	w.noneNow()
	w.isFree()
}

// kill -9 of golock: the slot stays while the command or a child of it lives,
// and is free at once with --close.
func TestKilledGolock(t *testing.T) {
	t.Parallel()
	w := newLocalWorld(t)
	p := w.job("--", "sh", "-c", "sleep 1000 & echo child $!; echo command $$; wait").start()
	child, command := p.expectPID("child"), p.expectPID("command")
	p.signal(syscall.SIGKILL)
	p.wait()
	w.isTaken()
	if e := w.ls(); len(e) != 1 || !e[0].Orphaned {
		t.Errorf("golock ls shows %+v, want one orphaned holder", e)
	}
	w.kill(command)
	w.isTaken()
	next := w.job("--", "true").start()
	w.awaitWaiters(next.pid)
	w.kill(child)
	next.wait().expectCode(t, 0)

	for _, flag := range []string{"-o", "--close"} {
		p := w.job(flag, "--", "sh", "-c", "echo in; sleep 1000").start()
		p.expect("in")
		p.signal(syscall.SIGKILL)
		p.wait()
		w.isFree()
	}
}

// --exec: the same process, its own code and signals; the slot lasts until the
// last one that inherited it ends.
func TestExec(t *testing.T) {
	t.Parallel()
	w := newLocalWorld(t)
	for _, flag := range []string{"-F", "--exec", "--no-fork"} {
		p := w.job(flag, "--", "sh", "-c", "echo command $$; read a; sleep 1000 >/dev/null & echo child $!; exit 9").start()
		if pid := p.expectPID("command"); pid != p.pid {
			t.Errorf("the command is %d, golock was %d", pid, p.pid)
		}
		w.isTaken()
		p.tell("")
		child := p.expectPID("child")
		p.wait().expectCode(t, 9)
		w.isTaken()
		w.kill(child)
		w.isFree()
	}
	w.job("-F", "nosuch").run().complaint(t, 127, "nosuch")
	w.isFree()
	if r := w.job("-F", "--", "sh", "-c", "kill -USR1 $$").run(); r.signal != syscall.SIGUSR1 {
		t.Errorf("%v, want death by USR1", r)
	}
	for _, flags := range [][]string{{"-o"}, {"--time-limit=1"}, {"--kill-after=1"}, {"--signal=INT"}, {"--rewrite=TERM:INT"}, {"--ok-exit=3"}, {"--tree"}} {
		w.job(append(flags, "-F", "--", "touch", "ran")...).run().complaint(t, 64, "--exec")
	}
	if exists(w.path("ran")) {
		t.Error("something was started")
	}
	// One that waits can be stopped, and its place is gone.
	holder := w.holder()
	waiter := w.job("-F", "--", "true").start()
	w.awaitWaiters(waiter.pid)
	waiter.signal(syscall.SIGTERM)
	waiter.wait().expectCode(t, 143)
	w.awaitWaiters()
	holder.finish()
}

// Runs inside runs never wait for those around them.
func TestNested(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	inner := func(flags ...string) []string {
		return append([]string{golock, "run", "--store", w.store, "--name", "job"}, flags...)
	}
	r := w.job(append([]string{"--max", "2", "--"}, inner("--max", "2", "--", "sh", "-c", "echo $GOLOCK_SLOT $GOLOCK_HELD")...)...).run()
	if fields := strings.Fields(r.stdout); r.code != 0 || len(fields) != 2 || fields[0] != "1" || len(strings.Split(fields[1], ",")) != 2 {
		t.Errorf("%v, want slot 1 and two IDs", r)
	}
	r = w.job(append([]string{"--", "sh", "-c", `echo $GOLOCK_ID >id; exec "$@"`, "sh"}, inner("--", "true")...)...).run()
	r.complaint(t, 64, awaitFile(t, w.path("id")))
	w.job(append([]string{"--"}, inner("-n", "--", "true")...)...).run().complaint(t, 75, "job")
	w.job("--", golock, "run", "--store", w.store, "--name", "other", "--", "true").run().expectCode(t, 0)
	w.isFree()
}

// In a PID namespace of its own golock is PID 1: it reaps what becomes its
// child, honours TERM and loses no code.
func TestPID1(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ns := []string{"unshare", "-pf", "--mount-proc", "--kill-child"}
	if r := w.job("--", self, "@orphans", "20").by(ns...).run(); r.code != 0 || strings.TrimSpace(r.stdout) != "clean" {
		t.Errorf("%v, want no zombies", r)
	}
	for i := range 60 {
		code := i * 4
		w.job("--", "sh", "-c", "(exit 1) & (exit 2) & exit "+strconv.Itoa(code)).by(ns...).run().expectCode(t, code)
	}
	p := w.job("--", "sh", "-c", "trap 'exit 17' TERM; echo in; while :; do sleep 0.01; done").by(ns...).start()
	p.expect("in")
	var golockPID int
	await(t, "golock is there", func() bool {
		for _, pid := range children(p.pid) {
			golockPID = pid
		}
		return golockPID != 0
	})
	if !w.signal(golockPID, syscall.SIGTERM) {
		t.Fatalf("PID 1 has ended; there are %s", w.all())
	}
	p.wait().expectCode(t, 17)
	w.isFree()
}

// The places of all that were killed come free, and what is left needs no
// cleaning.
func TestNothingToClean(t *testing.T) {
	t.Parallel()
	w := newLocalWorld(t)
	for i := range 20 {
		p := w.job("--", "sh", "-c", "echo in; exec sleep 1000").start()
		p.expect("in")
		q := w.job("--", "true").start()
		w.awaitWaiters(q.pid)
		q.signal(syscall.SIGKILL)
		q.wait()
		for _, pid := range children(p.pid) {
			w.kill(pid)
		}
		_ = p.process.Kill() // which may have ended by now
		p.wait()
		began := time.Now()
		await(t, fmt.Sprintf("the slot comes free in round %d", i), func() bool { return w.job("-n", "--", "true").run().code == 0 })
		if d := time.Since(began); d > 2*time.Second {
			t.Errorf("the slot came free after %v", d)
		}
	}
	if e := w.ls(); len(e) != 0 {
		t.Errorf("left over: %+v", e)
	}
	if out := output(t, "", "find", strings.TrimPrefix(w.store, "local://"), "-type", "f"); strings.Count(out, "\n") != 1 {
		t.Errorf("files in the store: %s", out)
	}
}
