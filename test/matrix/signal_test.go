//go:build integration

// Pins signals without a terminal: each one that golock can catch reaches the
// command's group once, in the order sent, from golock's very start on; golock
// outlives the command and never leaves one behind. While it waits, the signals
// that end a program end it at once and its place is free.

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

// recorder starts golock with a command that writes every signal it gets.
func recorder(s *testkit.Sandbox, flags ...string) *testkit.Process {
	s.T.Helper()
	p := s.Job(append(flags, "--", self, "@signals", "parent")...).Start()
	p.ExpectPID("parent ready")
	return p
}

// listens waits until golock has handlers for the real-time signals too.
func listens(p *testkit.Process) {
	p.T.Helper()
	testkit.Eventually(p.T, "golock catches the real-time signals", func() bool { return testkit.Caught(p.PID)&realTime == realTime })
}

func TestEverySignalReachesTheCommandOnce(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	p := recorder(s)
	listens(p)
	all := slices.Clone(forwarded)
	for sig := syscall.Signal(35); sig <= 64; sig++ {
		all = append(all, sig)
	}
	want := map[int]int{}
	for range 2 {
		for _, sig := range all {
			p.Signal(sig)
			p.Expect(fmt.Sprint("parent ", int(sig)))
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
	p := recorder(s)
	listens(p)
	for range 3 {
		for _, sig := range []syscall.Signal{unix.SIGCHLD, unix.SIGPIPE, unix.SIGURG, unix.SIGPROF} {
			p.Signal(sig)
			p.Signal(unix.SIGUSR1) // comes after it
			p.Expect("parent 10")
		}
	}
	p.Tell("counts")
	p.Expect(`{"10":12}`)
	p.Tell("exit 0")
	if r := p.Wait(); r.Code != 0 || r.Stderr != "" {
		t.Errorf("%v, want 0 and silence", r)
	}
}

// faults are signals by which the kernel tells a process of its own mistake, and
// the one that the C library keeps for itself.
var faults = []syscall.Signal{unix.SIGILL, unix.SIGTRAP, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGSYS, 34}

// A fault's signal that another process sends leaves no command alone.
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

// The parent of a command is golock or, on a store with leases, its guard.
func TestSignalToTheParent(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	r := s.Job("--", "sh", "-c", "trap 'exit 6' USR1; kill -USR1 $PPID; while :; do sleep 0.1; done").Run()
	r.Expect(t, 6)
}

// Forty of the kind that queues, sent as fast as the kernel takes them.
func TestRealTimeSignalsAreNotMerged(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	p := recorder(s)
	listens(p)
	for sig := syscall.Signal(35); sig <= 64; sig++ {
		p.Signal(sig)
	}
	got := map[string]int{}
	for range 30 {
		got[p.Line()]++
	}
	for sig := 35; sig <= 64; sig++ {
		if n := got[fmt.Sprint("parent ", sig)]; n != 1 {
			t.Errorf("signal %d came %d times", sig, n)
		}
	}
	p.Tell("exit 0")
	p.Expects(0)
}

func TestSignalsReachTheGroup(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	p := s.Job("--", self, "@signals", "parent", "child").Start()
	child := p.ExpectPID("child ready")
	parent := p.ExpectPID("parent ready")
	listens(p)
	if testkit.StatOf(parent).Group == testkit.StatOf(p.PID).Group || testkit.StatOf(parent).Group != testkit.StatOf(child).Group {
		t.Errorf("groups of golock, command and its child: %d, %d, %d", testkit.StatOf(p.PID).Group, testkit.StatOf(parent).Group, testkit.StatOf(child).Group)
	}
	for _, sig := range append(slices.Clone(forwarded), 35, 64) {
		p.Signal(sig)
		got := []string{p.Line(), p.Line()}
		slices.Sort(got)
		if want := []string{fmt.Sprint("child ", int(sig)), fmt.Sprint("parent ", int(sig))}; !slices.Equal(got, want) {
			t.Fatalf("the group wrote %q, want %q", got, want)
		}
	}
	p.Tell("exit 0")
	p.Expects(0)
}

func TestGolockOutlivesTheCommand(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	p := recorder(s)
	for range 3 {
		for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT} {
			p.Signal(sig)
			p.Expect(fmt.Sprint("parent ", int(sig)))
		}
		s.IsTaken()
	}
	p.Tell("exit 9")
	if r := p.Wait(); r.Code != 9 || r.Stderr != "" {
		t.Errorf("%v, want 9 and silence", r)
	}
	s.IsFree()
}

// A command that stops and is continued is still the same command.
func TestCommandStoppedAndContinued(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	p := s.Job("--", self, "@signals", "parent").Start()
	command := p.ExpectPID("parent ready")
	p.Tell("stop")
	p.Expect("parent stopping")
	s.Eventually("the command stops", func() bool { return testkit.Stopped(command) })
	s.IsTaken()
	p.Signal(unix.SIGCONT)
	p.Expect("parent 18")
	p.Tell("exit 4")
	p.Expects(4)
}

// A signal that ends a program ends the command, or the golock that has not
// come to it yet, at whatever instant it comes, and never leaves a command
// behind.
func TestSignalsAtManyInstants(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{
		unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGALRM, unix.SIGABRT, unix.SIGPWR, 40,
	} {
		t.Run(strconv.Itoa(int(sig)), func(t *testing.T) {
			t.Parallel()
			s := newSandbox(t)
			for after := time.Duration(0); after <= 8*time.Millisecond; after += 400 * time.Microsecond {
				job := s.Job("--", "sh", "-c", "echo started; exec sleep 1000")
				began := time.Now()
				p := job.Start()
				for time.Since(began) < after { // a sleep is not as exact
				}
				p.Signal(sig)
				r := p.Wait()
				started := len(p.Rest()) > 0
				early := r.Signal == sig || r.Code == 2 && strings.HasPrefix(r.Stderr, "SIG") // that is how the Go runtime dies of QUIT and ABRT
				if r.Code != 128+int(sig) && (!early || started) {
					t.Fatalf("sent after %v: %v, command started: %v", after, r, started)
				}
				if early { // of a signal that came before golock caught any; a watchdog that had begun ends by itself
					s.NoneLeft()
				} else {
					s.NoneNow()
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

func TestRewrite(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	p := recorder(s, "--rewrite=TERM:INT", "--rewrite", "HUP:USR1", "--rewrite=USR1:USR2", "--rewrite=SIGQUIT:0", "--rewrite=14:15", "--rewrite=40:SIGHUP", "--rewrite=SIGUSR2:41")
	listens(p)
	for _, c := range []struct{ sent, got syscall.Signal }{
		{unix.SIGTERM, unix.SIGINT},
		{unix.SIGINT, unix.SIGINT},
		{unix.SIGHUP, unix.SIGUSR1}, // not chained
		{unix.SIGUSR1, unix.SIGUSR2},
		{unix.SIGALRM, unix.SIGTERM},
		{40, unix.SIGHUP},
		{unix.SIGUSR2, 41},
		{41, 41},
	} {
		p.Signal(unix.SIGQUIT) // dropped
		p.Signal(c.sent)
		p.Expect(fmt.Sprint("parent ", int(c.got)))
	}
	p.Tell("exit 0")
	p.Expects(0)
}

// golock's own stop signal is --signal, whatever is rewritten or passed on.
func TestStopSignalIsNotRewritten(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	p := recorder(s, "--time-limit=0.3", "--signal=USR1", "--kill-after=0.3")
	got := []string{p.Line(), p.Line()} // CONT follows at once, the order is the kernel's
	slices.Sort(got)
	if !slices.Equal(got, []string{"parent 10", "parent 18"}) {
		t.Errorf("the command wrote %q, want USR1 and CONT", got)
	}
	r := p.Wait()
	r.Expect(t, 124)
	s.NoneLeft()
}

// waiting is a holder, the waiter that a test is about, and one behind it.
func waiting(s *testkit.Sandbox) (holder, waiter, behind *testkit.Process) {
	s.T.Helper()
	holder = s.Holder()
	waiter = s.Job("--", "sh", "-c", "echo running; sleep 1000").Start()
	s.AwaitWaiters(waiter.PID)
	behind = s.Job("--", "echo", "my turn").Start()
	s.AwaitWaiters(waiter.PID, behind.PID)
	return holder, waiter, behind
}

func TestSignalsWhileWaiting(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGALRM, unix.SIGUSR1, 40} {
		t.Run(strconv.Itoa(int(sig)), func(t *testing.T) {
			t.Parallel()
			s := newSandbox(t)
			holder, waiter, behind := waiting(s)
			waiter.Signal(sig)
			waiter.Expects(128 + int(sig)) // while the slot is held
			s.AwaitWaiters(behind.PID)
			holder.Finish()
			behind.Expect("my turn")
			behind.Expects(0)
			if wrote := waiter.Rest(); wrote != nil {
				t.Fatalf("the command of the waiter was started: %q", wrote)
			}
			s.IsFree()
		})
	}
}

func TestHarmlessSignalsWhileWaiting(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	holder, waiter, behind := waiting(s)
	for _, sig := range []syscall.Signal{unix.SIGCHLD, unix.SIGURG, unix.SIGPIPE, unix.SIGWINCH, unix.SIGCONT} {
		waiter.Signal(sig)
	}
	s.AwaitWaiters(waiter.PID, behind.PID)
	holder.Finish()
	waiter.Expect("running")
	waiter.Signal(unix.SIGTERM)
	waiter.Expects(143)
	behind.Expects(0)
}
