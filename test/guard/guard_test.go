package guard_test

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/redis"
)

// After kill -9 of golock the whole family is dead in no time, and the slot is
// free long before the lease ends.
func TestKilledGolock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var worst, longest time.Duration
	for range 20 {
		h := w.household("--ttl", "60")
		next := w.successor(h)
		h.signal(unix.SIGKILL)
		worst = max(worst, h.allDead(time.Second))
		longest = max(longest, w.succeeds(next))
		if !h.guard.diesWithin(limit) {
			t.Fatal("the guard stays")
		}
	}
	t.Logf("dead after at most %v, the slot free %v later", worst, longest)
	if longest > 5*time.Second {
		t.Errorf("the slot was free after %v only", longest)
	}
}

// A golock that is stopped does not renew. The family is dead when the slot
// goes to the next one, every time; continued, golock says 79.
func TestStoppedGolock(t *testing.T) {
	t.Parallel()
	for i := range 20 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			h := w.household("--ttl", "1")
			next := w.successor(h)
			h.signal(unix.SIGSTOP)
			w.succeeds(next)
			h.allDead(0)
			h.signal(unix.SIGCONT)
			h.expectCode(79, "held up")
		})
	}
}

// A command that has ended before a golock that was stopped goes on has done
// nothing wrong.
func TestEndedWhileGolockWasStopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.golock("--ttl", "1", "--", "sh", "-c", "echo $$; sleep 0.3; exit 7")
	pid, _ := strconv.Atoi(h.line())
	p := watch(t, pid)
	h.signal(unix.SIGSTOP)
	if !p.diesWithin(limit) {
		t.Fatal("the command does not end")
	}
	time.Sleep(1500 * time.Millisecond) // until the lease is over
	h.signal(unix.SIGCONT)
	h.expectCode(7)
}

// Without its guard golock ends the run and says so.
func TestKilledGuard(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 5 {
		h := w.household()
		next := w.successor(h)
		h.guard.signal(t, unix.SIGKILL)
		h.expectCode(70, "guard")
		h.allDead(0)
		w.succeeds(next)
	}
}

// A guard that was stopped is continued.
func TestStoppedGuard(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.golock("--", "sh", "-c", "echo $$; exec sleep 1000")
	pid, _ := strconv.Atoi(r.line())
	command := watch(t, pid)
	watch(t, parent(t, pid)).signal(t, unix.SIGSTOP)
	command.signal(t, unix.SIGTERM)
	r.expectCode(143)
}

// One that was stopped before the command is started, too.
func TestStoppedGuardOfAWaiter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.household()
	waiter := w.golock("--", "echo", "started")
	w.guardOf(waiter).signal(t, unix.SIGSTOP)
	begin := time.Now()
	h.signal(unix.SIGKILL)
	waiter.expectCode(0)
	if took := time.Since(begin); took > limit/4 {
		t.Errorf("the next one ran after %v", took)
	}
}

// One that is killed before the command is started has another one started in its
// place.
func TestKilledGuardOfAWaiter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.household()
	waiter := w.golock("--", "sh", "-c", "tr '\\0' '\\n' </proc/$$/environ | grep -c ^GOLOCK_ID=")
	guard := w.guardOf(waiter)
	guard.signal(t, unix.SIGKILL)
	if !guard.diesWithin(limit) {
		t.Fatal("the guard lives")
	}
	h.signal(unix.SIGKILL)
	if n := waiter.line(); n != "1" {
		t.Errorf("the command has %s IDs", n)
	}
	waiter.expectCode(0)
}

// With both killed at once the kernel still kills the command itself.
func TestBothKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 5 {
		h := w.household("--ttl", "1")
		h.signal(unix.SIGSTOP) // so that neither can be quicker than the other is killed
		h.guard.signal(t, unix.SIGSTOP)
		h.signal(unix.SIGKILL)
		h.guard.signal(t, unix.SIGKILL)
		if !h.family[0].diesWithin(limit) {
			t.Fatal("the command lives")
		}
		for _, p := range h.family[1:] {
			if p.lives() {
				p.signal(t, unix.SIGKILL)
			}
		}
		w.succeeds(w.successor(h))
	}
}

// No signal that can be caught moves the guard, and none of them reaches the
// command through it.
func TestGuardIsDeaf(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.golock("--", "sh", "-c", `for s in HUP INT QUIT USR1 USR2 ALRM TERM TSTP TTIN TTOU; do trap "echo $s" $s; done; echo $$; while :; do sleep 0.05; done`)
	pid, _ := strconv.Atoi(r.line())
	command := watch(t, pid)
	guard := watch(t, parent(t, pid))
	for sig := unix.Signal(1); sig <= 64; sig++ {
		switch sig {
		case unix.SIGKILL, unix.SIGSTOP, unix.SIGILL, unix.SIGTRAP, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGSYS, 32, 33, 34:
			continue
		}
		guard.signal(t, sig)
	}
	r.signal(unix.SIGUSR1)
	if line := r.line(); line != "USR1" {
		t.Errorf("the command got %q, want USR1 alone", line)
	}
	if !guard.lives() {
		t.Error("the guard is dead")
	}
	command.signal(t, unix.SIGKILL)
	r.expectCode(137)
}

// The guard keeps nothing open that was the caller's: whoever waits for the end
// of the command's output does not wait for it.
func TestGuardKeepsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.household()
	links, err := os.ReadDir("/proc/" + strconv.Itoa(h.guard.pid) + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		to, _ := os.Readlink("/proc/" + strconv.Itoa(h.guard.pid) + "/fd/" + l.Name())
		theirs, _ := os.Readlink("/proc/" + strconv.Itoa(h.family[0].pid) + "/fd/" + l.Name())
		if to == theirs && to != "/dev/null" {
			t.Errorf("descriptor %s of the guard is %s, as the command's", l.Name(), to)
		}
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(h.guard.pid) + "/smaps_rollup")
	if err != nil {
		t.Fatal(err)
	}
	private := 0
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && strings.HasPrefix(f[0], "Private_") {
			n, _ := strconv.Atoi(f[1])
			private += n
		}
	}
	t.Logf("private memory of the guard: %d KiB", private)
	if private > 1536 {
		t.Errorf("the guard has %d KiB of its own, want at most 1536", private)
	}
}

// A guard does nothing for anybody but golock.
func TestGuardByHand(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"", "0 0 touch /nonexistent/x", "100 0 true", "x 0 true"} {
		out, err := exec.Command("bash", "-c", `exec -a golock-guard "$0" `+args, golock).CombinedOutput()
		exit, ok := err.(*exec.ExitError)
		if !ok || exit.ExitCode() != 64 || !strings.HasPrefix(string(out), "golock: ") {
			t.Errorf("arguments %q: %v, output %q; want exit code 64", args, err, out)
		}
	}
}

// A server that is silent for longer than the lease: stop signal, KILL, 79.
func TestOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.golock("--ttl", "2", "--", "sh", "-c", `trap 'echo stopped; exit 3' TERM; echo $$; while :; do sleep 0.05; done`)
	r.line()
	w.server.Stop()
	if line := r.line(); line != "stopped" {
		t.Errorf("the command wrote %q", line)
	}
	r.expectCode(79, "could not be kept")

	w.server.Continue()
	h := w.household("--ttl", "2")
	w.server.Stop()
	h.allDead(3 * time.Second)
	w.server.Continue()
	h.expectCode(79)
}

// A shorter one is told, and nothing more.
func TestShortOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.golock("--ttl", "6", "--", "sh", "-c", `trap 'echo stopped; exit 3' TERM; echo $$; sleep 6; exit 4`)
	r.line()
	time.Sleep(1800 * time.Millisecond)
	w.server.Stop()
	time.Sleep(1500 * time.Millisecond)
	w.server.Continue()
	r.expectCode(4, "cannot be renewed")
	if n := strings.Count(r.stderr.String(), "\n"); n != 1 {
		t.Errorf("%d lines on stderr: %s", n, r.stderr)
	}
}

// With --on-lost warn the command goes on and its code counts.
func TestOnlyWarn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.golock("--ttl", "1", "--on-lost", "warn", "--", "sh", "-c", `echo $$; echo $PPID; sleep 2.5; exit 5`)
	r.line()
	if ppid := r.line(); ppid != strconv.Itoa(r.cmd.Process.Pid) {
		t.Errorf("the command is a child of %s, not of golock", ppid)
	}
	w.server.Stop()
	time.Sleep(1500 * time.Millisecond)
	w.server.Continue()
	r.expectCode(5, "the slot is lost")
}

// A slot that was taken back ends the command at once, long before the lease
// would have ended.
func TestTakenBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	store, err := redis.Open(w.url())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	h := w.household("--ttl", "3", "--kill-after", "0.1")
	for e, err := range store.Entries(context.Background(), "job") {
		if err != nil {
			t.Fatal(err)
		}
		if e.State == locks.Holding {
			if err := store.Attach(e.Ref).Release(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
	}
	h.expectCode(79, "not held any more")
	h.allDead(0)
}
