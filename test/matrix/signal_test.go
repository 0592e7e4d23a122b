//go:build integration

// Signals without a terminal: each one that golock can catch reaches the command's group once, in the
// order sent, from the start of golock on; golock outlives the command. While it waits, a signal that
// ends a program ends golock at once, and its place in the queue is free.

package matrix_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/test/testkit"
)

const realTime = ^uint64(0) &^ (1<<34 - 1) // 35 to 64 in a mask of signals

// forwarded are those that golock passes on, beside the real-time ones.
var forwarded = []syscall.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGABRT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGTERM,
	unix.SIGSTKFLT, unix.SIGCONT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGXCPU, unix.SIGXFSZ,
	unix.SIGVTALRM, unix.SIGWINCH, unix.SIGIO, unix.SIGPWR,
}

// listens waits until golock has handlers for the real-time signals too.
func listens(p *testkit.Process) {
	p.T.Helper()
	testkit.Eventually(p.T, "golock catches the real-time signals", func() bool { return testkit.Caught(p.PID)&realTime == realTime })
}

// The command and its child, which are a group of their own, get each signal once.
func TestEverySignalReachesTheCommandOnce(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	p := s.Job("--", self, "@signals", "parent", "child").Start()
	child, parent := p.ExpectPID("child ready"), p.ExpectPID("parent ready")
	listens(p)
	group := func(pid int) int { return testkit.StatOf(pid).Group }
	if group(parent) == group(p.PID) || group(parent) != group(child) {
		t.Errorf("groups of golock, command and its child: %d, %d, %d", group(p.PID), group(parent), group(child))
	}
	all := slices.Clone(forwarded)
	for sig := syscall.Signal(35); sig <= 64; sig++ {
		all = append(all, sig)
	}
	want := map[int]int{}
	for range 2 {
		for _, sig := range all {
			p.Signal(sig)
			got := []string{p.Line(), p.Line()}
			slices.Sort(got)
			if want := []string{fmt.Sprint("child ", int(sig)), fmt.Sprint("parent ", int(sig))}; !slices.Equal(got, want) {
				t.Fatalf("the group wrote %q, want %q", got, want)
			}
			want[int(sig)]++
		}
		slices.Reverse(all)
	}
	// None came a second time later, none on its own.
	p.Tell("counts")
	counts, err := json.Marshal(want) // sorted, as the command's
	testkit.Must(t, err)
	p.Expect(string(counts))
	p.Tell("exit 3")
	p.Expects(3)
}

func TestNeverForwarded(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	p := s.Job("--", self, "@signals", "parent").Start()
	p.ExpectPID("parent ready")
	listens(p)
	for range 3 {
		for _, sig := range []syscall.Signal{unix.SIGCHLD, unix.SIGPIPE, unix.SIGURG, unix.SIGPROF, 32, 33, 34} {
			p.Signal(sig)
			p.Signal(unix.SIGUSR1) // comes after it
			p.Expect("parent 10")
		}
	}
	p.Tell("counts")
	p.Expect(`{"10":21}`)
	p.Tell("exit 0")
	if r := p.Wait(); r.Code != 0 || r.Stderr != "" {
		t.Errorf("%v, want 0 and silence", r)
	}
}

// A signal that the caller ignores is the command's, which may handle it. The command starts with it
// ignored; a golock that waits ignores it.
func TestIgnoredSignals(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	list := []syscall.Signal{
		unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGALRM, unix.SIGTERM, unix.SIGTSTP, unix.SIGXCPU, 40,
	}
	const ignore = "trap '' HUP INT QUIT USR1 ALRM TERM TSTP XCPU 40"
	holder := s.Hold("job")
	p := s.Job("--", "sh", "-c", `grep SigIgn /proc/$$/status; exec "$@"`, "sh", self, "@signals", "parent").Sh(ignore).Start()
	s.AwaitWaiters(p.PID)
	for _, sig := range list {
		p.Signal(sig)
	}
	s.AwaitWaiters(p.PID)
	holder.Finish()
	var mask uint64
	if _, err := fmt.Sscanf(p.Line(), "SigIgn:\t%x", &mask); err != nil {
		t.Fatal(err)
	}
	p.ExpectPID("parent ready")
	for range 20 {
		for _, sig := range list {
			if mask&(1<<(sig-1)) == 0 {
				t.Errorf("signal %d is not ignored when the command starts: %x", sig, mask)
			}
			p.Signal(sig)
			p.Expect(fmt.Sprint("parent ", int(sig)))
		}
	}
	p.Tell("exit 3")
	p.Expects(3)
	// A waiter that ignores TERM can be evicted.
	holder = s.Hold("job")
	p = s.Job("--", "true").Sh(ignore).Start()
	s.AwaitWaiters(p.PID)
	for _, e := range s.List("job") {
		if e.PID == p.PID {
			s.Golock("break", "--store", s.Store, "--id", e.ID).Run().Expect(t, 0)
		}
	}
	p.Expects(75)
	holder.Finish()
	// And golock dies of it nevertheless.
	const dies = `$SIG{$ARGV[0]} = "DEFAULT"; kill $ARGV[0], $$; sleep 1000`
	for name, sig := range map[string]syscall.Signal{"INT": unix.SIGINT, "TERM": unix.SIGTERM} {
		s.Job("--", "perl", "-e", dies, name).Sh(ignore).Start().DiesOf(sig)
	}
}

// faults are the signals of a process's own mistakes.
var faults = []syscall.Signal{unix.SIGILL, unix.SIGTRAP, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGSYS}

// A fault signal from another process ends the run: the command is not left without a golock.
func TestFaultSignalEndsTheRun(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	for _, sig := range faults {
		p := s.Job("--", "sh", "-c", "echo started; exec sleep 1000").Start()
		p.Expect("started")
		p.Signal(sig)
		p.Expects(70, "the command was stopped")
		s.NoneLeft()
		s.IsFree()
	}
	holder, waiter, behind := waiting(s)
	waiter.Signal(unix.SIGSEGV)
	waiter.Expects(70)
	s.AwaitWaiters(behind.PID)
	holder.Finish()
	behind.Expects(0)
}

// Signals that golock causes itself are not the command's.
func TestOwnSignalsAreNotPassedOn(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	full := s.Path("full") // grows no further: each line that golock writes there gives it XFSZ
	testkit.Must(t, os.WriteFile(full, make([]byte, 1<<20), 0o600))
	r := s.Job("-v", "--", "sh", "-c", "sleep 0.1; exit 5").Sh("ulimit -f 1024; exec 2>>" + full).Run()
	r.Expect(t, 5)
}

// A signal that ends a program ends the command, or golock before it starts one, at whatever instant
// it comes. No command is left behind. The deep run tries three times as many instants of each signal.
func TestSignalsAtManyInstants(t *testing.T) {
	t.Parallel()
	step := time.Duration(testkit.Rounds(2400, 800)) * time.Microsecond
	for i, sig := range []syscall.Signal{
		unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGALRM, unix.SIGABRT, unix.SIGPWR, 40,
	} {
		t.Run(strconv.Itoa(int(sig)), func(t *testing.T) {
			t.Parallel()
			s := newSandbox(t)
			for after := time.Duration(i) * step / 9; after <= 8*time.Millisecond; after += step {
				job := s.Job("--", "sh", "-c", "echo started; exec sleep 1000")
				began := time.Now()
				p := job.Start()
				for time.Since(began) < after { // a sleep is not as exact
				}
				p.Signal(sig)
				r := p.Wait()
				started := len(p.Rest()) > 0
				if r.Signal != sig {
					t.Fatalf("sent after %v: %v, command started: %v", after, r, started)
				}
				if started {
					s.NoneNow()
				} else { // the signal may have come before golock caught any: a watchdog that had begun ends by itself
					s.NoneLeft()
				}
				if s.IsLocal() {
					s.IsFree()
				} else { // golock does not wait for a slow server, which then waits for the lease's end
					s.Eventually("the slot is free", func() bool { return s.Job("-n", "--", "true").Run().Code == 0 })
				}
			}
		})
	}
}

// A golock that gets a signal before it catches any ends by that signal, as any program does, and not
// with the Go runtime's code 2. So does another command than run. The deep run tries five times as many
// instants. It is the same on all stores, as golock knows none yet.
func TestSignalsInTheFirstInstants(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	signals := slices.Concat(faults[:6], []syscall.Signal{unix.SIGQUIT, unix.SIGABRT, unix.SIGSTKFLT})
	rounds := testkit.Rounds(8, 40)
	step := 3 * time.Millisecond / time.Duration(rounds)
	for i := range rounds {
		for j, sig := range signals {
			after := time.Duration(i)*step + time.Duration(j)*step/9
			golock := s.Job("--", "true")
			if i%4 == 0 {
				golock = s.Golock("version")
			}
			p := golock.Begin()
			for began := time.Now(); time.Since(began) < after; { // a sleep is not as exact
			}
			_ = unix.Kill(p.PID, sig) // a zombie at worst: it is reaped by Wait
			if r := p.Wait(); r.Signal != sig && !slices.Contains([]int{0, 70, 128 + int(sig)}, r.Code) || strings.Contains(r.Stderr, "goroutine") {
				t.Fatalf("signal %d after %v: %v", sig, after, r)
			}
		}
	}
}

// The same at the one instant that is the worst: the Go runtime has installed its handlers and creates
// its second thread, and no code of golock has run yet.
func TestSignalsBeforeMain(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	for name, sig := range map[string]syscall.Signal{"QUIT": unix.SIGQUIT, "ABRT": unix.SIGABRT, "STKFLT": unix.SIGSTKFLT} {
		r := s.Job("--", "true").By("strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=clone", "-e", "inject=clone:signal="+name+":when=1").Run()
		if r.Signal != sig || r.Stderr != "" {
			t.Errorf("%s: %v", name, r)
		}
	}
}

// waiting is a holder, the waiter that a test is about, and one behind it.
func waiting(s *testkit.Sandbox) (holder, waiter, behind *testkit.Process) {
	s.T.Helper()
	holder = s.Hold("job")
	waiter = s.Job("--", "echo", "running").Start()
	s.AwaitWaiters(waiter.PID)
	behind = s.Job("--", "echo", "my turn").Start()
	s.AwaitWaiters(waiter.PID, behind.PID)
	return holder, waiter, behind
}

// On other stores than local some signals stand for all, but in the deep run: what differs is how the
// place in the queue is left.
func TestSignalsWhileWaiting(t *testing.T) {
	t.Parallel()
	ending := []syscall.Signal{
		unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGALRM, unix.SIGUSR1, 40,
		unix.SIGPIPE, unix.SIGPROF, unix.SIGXCPU, unix.SIGXFSZ,
	}
	if leased() {
		ending = testkit.Spread(ending, 4)
	}
	s := newSandbox(t)
	holder := s.Hold("job")
	behind := s.Job("--", "echo", "my turn").Start()
	s.AwaitWaiters(behind.PID)
	for _, sig := range ending {
		waiter := s.Job("--priority", "1", "--", "echo", "running").Start()
		s.AwaitWaiters(waiter.PID, behind.PID)
		for _, harmless := range []syscall.Signal{unix.SIGCHLD, unix.SIGURG, unix.SIGWINCH, unix.SIGCONT, 32, 33, 34} {
			waiter.Signal(harmless)
		}
		s.AwaitWaiters(waiter.PID, behind.PID)
		waiter.Signal(sig)
		waiter.DiesOf(sig) // while the slot is held
		s.AwaitWaiters(behind.PID)
		if wrote := waiter.Rest(); wrote != nil {
			t.Fatalf("signal %d: the command of the waiter was started: %q", sig, wrote)
		}
	}
	holder.Finish()
	behind.Expect("my turn")
	behind.Expects(0)
	s.IsFree()
}
