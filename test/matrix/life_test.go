//go:build integration

// Descendants of the command with and without --tree, and golock as PID 1.

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
	s := newSandbox(t)
	const script = "setsid sh -c 'echo $$ >pid; while ! test -e end; do sleep 0.1; done' & exit 6"
	p := s.Job("--tree", "--", "sh", "-c", script).Start()
	daemon := s.AwaitPID("pid")
	s.IsTaken()
	if !p.Running() || !testkit.Alive(daemon) {
		t.Fatal("golock ended before the daemon")
	}
	s.Write("end", "")
	p.Expects(6)
	s.NoneNow()
	s.IsFree()
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
			s.AwaitPID(d)
		}
		if end == "TERM" {
			p.Signal(syscall.SIGTERM)
			p.DiesOf(syscall.SIGTERM)
		} else {
			p.Expects(124)
		}
		s.NoneNow()
		s.IsFree()
	}
}

// In a PID namespace of its own golock is PID 1: it reaps what becomes its
// child, honours TERM and loses no code.
func TestPID1(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	ns := []string{"unshare", "-pf", "--mount-proc", "--kill-child"}
	const orphans = `for i in $(seq 20); do sh -c 'sleep 0.05 &'; done; while ps -eo comm= | grep -q ^sleep; do :; done`
	s.Job("--", "sh", "-c", orphans).By(ns...).Run().Expect(t, 0)
	for code := 1; code < 256; code += 50 {
		s.Job("--", "sh", "-c", "(exit 1) & (exit 2) & exit "+strconv.Itoa(code)).By(ns...).Run().Expect(t, code)
	}
	for _, sig := range []int{2, 9, 15, 40} { // the kernel spares PID 1: it exits
		s.Job("--", "sh", "-c", "kill -"+strconv.Itoa(sig)+" $$").By(ns...).Run().Expect(t, 128+sig)
	}
	p := s.Job("--", "sh", "-c", "trap 'exit 17' TERM; echo in; while :; do sleep 0.1; done").By(ns...).Start()
	p.Expect("in")
	for _, first := range testkit.Children(p.PID) {
		s.MustSignal(first, syscall.SIGTERM)
	}
	p.Expects(17)
	s.IsFree()
}

// A run of the name in the environment of another one is nested, and refused, only if its golock descends
// from that of the other. A job that at(1) started with the same environment waits.
func TestWaitingUnlessNested(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	const command = `env | grep ^GOLOCK_ >env; "$@" -- true 2>nested; echo "nested $?"; read -r line`
	nested := s.Job().Argv
	p := s.Job(append([]string{"--", "sh", "-c", command, "sh"}, nested...)...).Start()
	p.Expect("nested 64")
	if text := s.Read("nested"); !strings.Contains(text, "enclosing run") {
		t.Errorf("the nested run says %s", text)
	}
	queued := s.Job("--", "echo", "ran").Setenv(strings.Fields(s.Read("env"))...).Start()
	s.AwaitWaiters(queued.PID)
	p.Tell("end")
	p.Expects(0)
	queued.Expect("ran")
	queued.Expects(0)
}
