//go:build integration

// Pins who keeps the slot and who is ended: descendants with and without
// --tree, the kill of golock itself, --exec, runs inside runs, PID 1.

package matrix_test

import (
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golock/test/testkit"
)

// A daemon that the command left behind does not keep the slot.
func TestDaemonDoesNotKeepTheSlot(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	s.Job("--", "sh", "-c", "setsid sleep 1000 & sleep 1000 & exit 4").Run().Expect(t, 4)
	s.IsFree()
	if n := len(s.Living()); n != 2 {
		t.Errorf("%d processes are left, want the two daemons", n)
	}
}

// With --tree the run lasts as long as the last descendant.
func TestTreeWaitsForAll(t *testing.T) {
	t.Parallel()
	for range 3 {
		s := newSandbox(t)
		p := s.Job("--tree", "--", "sh", "-c", "setsid sh -c 'echo $$ >pid; while ! test -e end; do sleep 0.01; done' & exit 6").Start()
		daemon := awaitPID(s, "pid")
		s.IsTaken()
		if !p.Running() || !testkit.Alive(daemon) {
			t.Fatal("golock ended before the daemon")
		}
		s.Script("end", "")
		p.Expects(6)
		s.NoneNow()
		s.IsFree()
	}
}

// Stopping it stops them all: those that left the group, and with KILL those
// that ignore TERM.
func TestTreeStopsAll(t *testing.T) {
	t.Parallel()
	const family = `setsid sh -c 'echo $$ >d1; sleep 1000; :' & sh -c 'trap "" TERM; echo $$ >d2; while :; do sleep 1; done' & setsid sh -c 'trap "" TERM; echo $$ >d3; while :; do sleep 1; done' &`
	for _, end := range []string{"TERM", "limit"} {
		s := newSandbox(t)
		flags := []string{"--tree", "--kill-after", "0.3"}
		if end == "limit" {
			flags = append(flags, "--time-limit", "0.5")
		}
		p := s.Job(append(flags, "--", "sh", "-c", family+" wait")...).Start()
		for _, d := range []string{"d1", "d2", "d3"} {
			awaitPID(s, d)
		}
		want := 124
		if end == "TERM" {
			p.Signal(syscall.SIGTERM)
			want = 143
		}
		p.Expects(want)
		s.NoneNow()
		s.IsFree()
	}
}

// A time limit ends the whole group, also those that outlive its first process.
func TestTimeLimitEndsTheGroup(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	s.Job("--time-limit", "0.3", "--kill-after", "0.3", "--", "sh", "-c", `sh -c 'trap "" TERM; while :; do sleep 1; done' & wait`).Run().Expect(t, 124)
	s.NoneNow()
	s.IsFree()
}

// kill -9 of golock: the slot stays while the command or a child of it lives,
// and is free at once with --close.
func TestKilledGolock(t *testing.T) {
	t.Parallel()
	s := testkit.New(t, "")
	p := s.Job("--", "sh", "-c", "sleep 1000 & echo child $!; echo command $$; wait").Start()
	child, command := p.ExpectPID("child"), p.ExpectPID("command")
	p.Signal(syscall.SIGKILL)
	p.Wait()
	s.IsTaken()
	if e := s.List("job"); len(e) != 1 || !e[0].Orphaned {
		t.Errorf("golock ls shows %+v, want one orphaned holder", e)
	}
	s.Kill(command)
	s.IsTaken()
	next := s.Job("--", "true").Start()
	s.AwaitWaiters(next.PID)
	s.Kill(child)
	next.Expects(0)

	for _, flag := range []string{"-o", "--close"} {
		p := s.Job(flag, "--", "sh", "-c", "echo in; sleep 1000").Start()
		p.Expect("in")
		p.Signal(syscall.SIGKILL)
		p.Wait()
		s.IsFree()
	}
}

// --exec: the same process, its own code and signals; the slot lasts until the
// last one that inherited it ends.
func TestExec(t *testing.T) {
	t.Parallel()
	s := testkit.New(t, "")
	for _, flag := range []string{"-F", "--exec", "--no-fork"} {
		p := s.Job(flag, "--", "sh", "-c", "echo command $$; read a; sleep 1000 >/dev/null & echo child $!; exit 9").Start()
		if pid := p.ExpectPID("command"); pid != p.PID {
			t.Errorf("the command is %d, golock was %d", pid, p.PID)
		}
		s.IsTaken()
		p.Tell("")
		child := p.ExpectPID("child")
		p.Expects(9)
		s.IsTaken()
		s.Kill(child)
		s.IsFree()
	}
	s.Job("-F", "nosuch").Run().Complaint(t, 127, "nosuch")
	s.IsFree()
	if r := s.Job("-F", "--", "sh", "-c", "kill -USR1 $$").Run(); r.Signal != syscall.SIGUSR1 {
		t.Errorf("%v, want death by USR1", r)
	}
	for _, flags := range [][]string{{"-o"}, {"--time-limit=1"}, {"--kill-after=1"}, {"--signal=INT"}, {"--rewrite=TERM:INT"}, {"--ok-exit=3"}, {"--tree"}} {
		s.Job(append(flags, "-F", "--", "touch", "ran")...).Run().Complaint(t, 64, "--exec")
	}
	if s.Exists("ran") {
		t.Error("something was started")
	}
	// One that waits can be stopped, and its place is gone.
	holder := s.Holder()
	waiter := s.Job("-F", "--", "true").Start()
	s.AwaitWaiters(waiter.PID)
	waiter.Signal(syscall.SIGTERM)
	waiter.Expects(143)
	s.AwaitWaiters()
	holder.Finish()
}

// Runs inside runs never wait for those around them.
func TestNested(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	inner := func(flags ...string) []string {
		return append([]string{testkit.Golock, "run", "--store", s.Store, "--name", "job"}, flags...)
	}
	r := s.Job(append([]string{"--max", "2", "--"}, inner("--max", "2", "--", "sh", "-c", "echo $GOLOCK_SLOT $GOLOCK_HELD")...)...).Run()
	if fields := strings.Fields(r.Stdout); r.Code != 0 || len(fields) != 2 || fields[0] != "1" || len(strings.Split(fields[1], ",")) != 2 {
		t.Errorf("%v, want slot 1 and two IDs", r)
	}
	r = s.Job(append([]string{"--", "sh", "-c", `echo $GOLOCK_ID >id; exec "$@"`, "sh"}, inner("--", "true")...)...).Run()
	r.Complaint(t, 64, s.AwaitFile("id"))
	s.Job(append([]string{"--"}, inner("-n", "--", "true")...)...).Run().Complaint(t, 75, "job")
	s.Job("--", testkit.Golock, "run", "--store", s.Store, "--name", "other", "--", "true").Run().Expect(t, 0)
	s.IsFree()
}

// In a PID namespace of its own golock is PID 1: it reaps what becomes its
// child, honours TERM and loses no code.
func TestPID1(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	ns := []string{"unshare", "-pf", "--mount-proc", "--kill-child"}
	if r := s.Job("--", self, "@orphans", "20").By(ns...).Run(); r.Code != 0 || strings.TrimSpace(r.Stdout) != "clean" {
		t.Errorf("%v, want no zombies", r)
	}
	for code := 1; code < 256; code += 17 {
		s.Job("--", "sh", "-c", "(exit 1) & (exit 2) & exit "+strconv.Itoa(code)).By(ns...).Run().Expect(t, code)
	}
	p := s.Job("--", "sh", "-c", "trap 'exit 17' TERM; echo in; while :; do sleep 0.01; done").By(ns...).Start()
	p.Expect("in")
	if first := testkit.Children(p.PID); len(first) != 1 || !s.Signal(first[0], syscall.SIGTERM) {
		t.Fatalf("PID 1 has ended; there are %s", s.All())
	}
	p.Expects(17)
	s.IsFree()
}

// The places of all that were killed come free, and what is left needs no
// cleaning.
func TestNothingToClean(t *testing.T) {
	t.Parallel()
	s := testkit.New(t, "")
	for range 5 {
		p := s.Job("--", "sh", "-c", "echo in; exec sleep 1000").Start()
		p.Expect("in")
		q := s.Job("--", "true").Start()
		s.AwaitWaiters(q.PID)
		q.Signal(syscall.SIGKILL)
		q.Wait()
		commands := testkit.Children(p.PID)
		p.Signal(syscall.SIGKILL)
		p.Wait()
		for _, pid := range commands {
			s.Kill(pid)
		}
		s.Eventually("the slot comes free", func() bool { return s.Job("-n", "--", "true").Run().Code == 0 })
	}
	if e := s.List("job"); len(e) != 0 {
		t.Errorf("left over: %+v", e)
	}
	files := testkit.Output(t, "", "find", strings.TrimPrefix(s.Store, "local://"), "-type", "f")
	if strings.Count(files, "\n") != 1 {
		t.Errorf("files in the store: %s", files)
	}
}
