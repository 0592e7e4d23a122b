//go:build integration

package guard_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"golock/test/testkit"
)

// After kill -9 of golock the whole family is dead and the slot is free long
// before the lease ends.
func TestKilledGolock(t *testing.T) {
	onLeased(t, func(t *testing.T, s *testkit.Sandbox) {
		h := newHousehold(s, long)
		next := h.successor()
		h.Signal(unix.SIGKILL)
		succeeds(next)
		h.dead()
		awaitDeath(s, "the guard", h.guard)
	})
}

// A golock that is stopped does not renew. The family is dead when the next one gets the slot;
// continued, golock ends with 79.
func TestStoppedGolock(t *testing.T) {
	onLeased(t, func(t *testing.T, s *testkit.Sandbox) {
		h := newHousehold(s, "--ttl", "5")
		next := h.successor()
		h.Signal(unix.SIGSTOP)
		succeeds(next)
		h.dead()
		h.Signal(unix.SIGCONT)
		h.Expects(79, "held up")
	})
}

// A command that ended while golock was stopped keeps its exit code.
func TestEndedWhileGolockWasStopped(t *testing.T) {
	s := shared(t)
	h := s.Job("--ttl", "5", "--", "sh", "-c", "echo command $$; read x; exit 7").Start()
	pid := h.ExpectPID("command")
	h.Signal(unix.SIGSTOP)
	h.Tell("")
	awaitDeath(s, "the command", pid)
	s.Job("--", "true").Run().Expect(t, 0) // which waits for the end of the lease
	h.Signal(unix.SIGCONT)
	h.Expects(7)
}

// Without its guard golock ends the run and says so.
func TestKilledGuard(t *testing.T) {
	s := shared(t)
	for range 2 {
		h := newHousehold(s, long)
		next := h.successor()
		s.MustSignal(h.guard, unix.SIGKILL)
		h.Expects(70, "watchdog")
		h.dead()
		succeeds(next)
	}
}

// A guard that was stopped is continued.
func TestStoppedGuard(t *testing.T) {
	s := shared(t)
	r := s.Job(long, "--", "sh", "-c", "echo command $$; exec sleep 1000").Start()
	pid := r.ExpectPID("command")
	s.MustSignal(testkit.StatOf(pid).Parent, unix.SIGSTOP)
	s.MustSignal(pid, unix.SIGTERM)
	r.DiesOf(unix.SIGTERM)
}

// So is one that was stopped before the command started.
func TestStoppedGuardOfAWaiter(t *testing.T) {
	s := shared(t)
	h := newHousehold(s, long)
	waiter := s.Job("--", "echo", "started").Start()
	s.MustSignal(testkit.AwaitGuard(t, waiter.PID), unix.SIGSTOP)
	h.Signal(unix.SIGKILL)
	waiter.Expects(0)
}

// If the guard is killed before the command starts, golock starts another one.
func TestKilledGuardOfAWaiter(t *testing.T) {
	s := shared(t)
	h := newHousehold(s, long)
	waiter := s.Job("--", "sh", "-c", `tr '\0' '\n' </proc/$$/environ | grep -c ^GOLOCK_ID=`).Start()
	s.Kill(testkit.AwaitGuard(t, waiter.PID))
	h.Signal(unix.SIGKILL)
	waiter.Expect("1")
	waiter.Expects(0)
}

// With both killed at once the kernel still kills the command itself.
func TestBothKilled(t *testing.T) {
	s := shared(t)
	h := newHousehold(s, "--ttl", "2")
	h.Signal(unix.SIGSTOP) // so that it cannot act on the death of the guard
	s.MustSignal(h.guard, unix.SIGKILL)
	h.Signal(unix.SIGKILL)
	awaitDeath(s, "the command", h.family[0])
	for _, pid := range h.family[1:] {
		s.Kill(pid)
	}
	succeeds(h.successor())
}

// A signal to the guard, which is the parent of the command, reaches the command once, and the guard
// goes on.
func TestGuardPassesSignalsOn(t *testing.T) {
	s := shared(t)
	r := s.Job(long, "--", "sh", "-c", `for s in HUP INT QUIT USR1 USR2 ALRM TERM; do
		trap "echo $s" $s
	done; echo command $$; while :; do sleep 0.1; done`).Start()
	pid := r.ExpectPID("command")
	guard := testkit.StatOf(pid).Parent
	for name, sig := range map[string]unix.Signal{"HUP": unix.SIGHUP, "INT": unix.SIGINT, "QUIT": unix.SIGQUIT,
		"USR1": unix.SIGUSR1, "USR2": unix.SIGUSR2, "ALRM": unix.SIGALRM, "TERM": unix.SIGTERM} {
		s.MustSignal(guard, sig)
		r.Expect(name)
	}
	for _, sig := range []unix.Signal{unix.SIGPIPE, unix.SIGCHLD, unix.SIGURG} { // which are not
		s.MustSignal(guard, sig)
	}
	r.Signal(unix.SIGUSR1)
	r.Expect("USR1")
	s.MustSignal(pid, unix.SIGKILL)
	r.DiesOf(unix.SIGKILL)
}

// The guard keeps none of the caller's files open: a reader that waits for the end of the command's
// output does not wait for it. And it is small.
func TestGuardKeepsNothing(t *testing.T) {
	h := newHousehold(shared(t), long)
	place := fmt.Sprintf("/proc/%d/", h.guard)
	links, err := os.ReadDir(place + "fd")
	testkit.Must(t, err)
	for _, l := range links {
		to, _ := os.Readlink(place + "fd/" + l.Name())
		theirs, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", h.family[0], l.Name()))
		if to == theirs && to != os.DevNull {
			t.Errorf("descriptor %s of the guard is %s, as the command's", l.Name(), to)
		}
	}
	text, err := os.ReadFile(place + "smaps_rollup")
	testkit.Must(t, err)
	private := 0
	for line := range strings.Lines(string(text)) {
		var key string
		var n int
		if fmt.Sscan(line, &key, &n); strings.HasPrefix(key, "Private_") {
			private += n
		}
	}
	if private == 0 || private > 1536 {
		t.Errorf("the guard has %d KiB of its own, want at most 1536", private)
	}
}
