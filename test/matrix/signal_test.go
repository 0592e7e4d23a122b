// Pins signals without a terminal: each one that golock can catch reaches the
// command's group once, in the order sent, from golock's very start on; golock
// outlives the command and never leaves one behind. While it waits, the signals
// that end a program end it at once and its place is free.

package matrix_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const realTime = ^uint64(0) &^ (1<<34 - 1) // 35 to 64 in a mask of signals

// forwarded are those that golock passes on, beside the real-time ones.
var forwarded = []syscall.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGABRT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGTERM,
	unix.SIGSTKFLT, unix.SIGCONT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGXCPU, unix.SIGXFSZ,
	unix.SIGVTALRM, unix.SIGWINCH, unix.SIGIO, unix.SIGPWR,
}

// recorder starts golock with a command that writes every signal it gets.
func (w *world) recorder(flags ...string) *proc {
	w.t.Helper()
	p := w.job(append(flags, "--", self, "@signals", "parent")...).start()
	p.expectPID("parent ready")
	return p
}

// listens waits until golock has handlers for the real-time signals too.
func (p *proc) listens() {
	p.t.Helper()
	await(p.t, "golock catches the real-time signals", func() bool { return caught(p.pid)&realTime == realTime })
}

func TestEverySignalReachesTheCommandOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.recorder()
	p.listens()
	all := slices.Clone(forwarded)
	for sig := syscall.Signal(35); sig <= 64; sig++ {
		all = append(all, sig)
	}
	want := map[string]int{}
	for range 2 {
		for _, sig := range all {
			p.signal(sig)
			p.expect(fmt.Sprint("parent ", int(sig)))
			want[strconv.Itoa(int(sig))]++
		}
		slices.Reverse(all)
	}
	// None came a second time later, none on its own.
	p.tell("counts")
	p.expect(jsonOf(t, want))
	p.tell("exit 3")
	p.wait().expectCode(t, 3)
}

func TestNeverForwarded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.recorder()
	p.listens()
	for range 3 {
		for _, sig := range []syscall.Signal{unix.SIGCHLD, unix.SIGPIPE, unix.SIGURG, unix.SIGPROF} {
			p.signal(sig)
			p.signal(unix.SIGUSR1) // comes after it
			p.expect("parent 10")
		}
	}
	p.tell("counts")
	p.expect(`{"10":12}`)
	p.tell("exit 0")
	if r := p.wait(); r.code != 0 || r.stderr != "" {
		t.Errorf("%v, want 0 and silence", r)
	}
}

// Forty of the kind that queues, sent as fast as the kernel takes them.
func TestRealTimeSignalsAreNotMerged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.recorder()
	p.listens()
	for sig := syscall.Signal(35); sig <= 64; sig++ {
		p.signal(sig)
	}
	got := map[string]int{}
	for range 30 {
		got[p.line()]++
	}
	for sig := 35; sig <= 64; sig++ {
		if n := got[fmt.Sprint("parent ", sig)]; n != 1 {
			t.Errorf("signal %d came %d times", sig, n)
		}
	}
	p.tell("exit 0")
	p.wait().expectCode(t, 0)
}

func TestSignalsReachTheGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.job("--", self, "@signals", "parent", "child").start()
	child := p.expectPID("child ready")
	parent := p.expectPID("parent ready")
	p.listens()
	if stat(parent).group == stat(p.pid).group || stat(parent).group != stat(child).group {
		t.Errorf("groups of golock, command and its child: %d, %d, %d", stat(p.pid).group, stat(parent).group, stat(child).group)
	}
	for _, sig := range append(slices.Clone(forwarded), 35, 64) {
		p.signal(sig)
		got := []string{p.line(), p.line()}
		slices.Sort(got)
		if want := []string{fmt.Sprint("child ", int(sig)), fmt.Sprint("parent ", int(sig))}; !slices.Equal(got, want) {
			t.Fatalf("the group wrote %q, want %q", got, want)
		}
	}
	p.tell("exit 0")
	p.wait().expectCode(t, 0)
}

func TestGolockOutlivesTheCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.recorder()
	for range 3 {
		for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT} {
			p.signal(sig)
			p.expect(fmt.Sprint("parent ", int(sig)))
		}
		w.isTaken()
	}
	p.tell("exit 9")
	if r := p.wait(); r.code != 9 || r.stderr != "" {
		t.Errorf("%v, want 9 and silence", r)
	}
	w.isFree()
}

// A command that stops and is continued is still the same command.
func TestCommandStoppedAndContinued(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.job("--", self, "@signals", "parent").start()
	command := p.expectPID("parent ready")
	p.tell("stop")
	p.expect("parent stopping")
	await(t, "the command stops", func() bool { return stopped(command) })
	w.isTaken()
	p.signal(unix.SIGCONT)
	p.expect("parent 18")
	p.tell("exit 4")
	p.wait().expectCode(t, 4)
}

// A signal that ends a program ends the command, or the golock that has not
// come to it yet, at whatever instant it comes, and never leaves a command
// behind.
func TestSignalsAtRandomInstants(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT} {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			w := newWorld(t)
			for i := range 61 {
				p := w.job("--", "sh", "-c", "echo started; exec sleep 1000").start()
				after := time.Duration(i) * 100 * time.Microsecond
				for time.Since(p.began) < after { // a sleep is not as exact
				}
				p.signal(sig)
				r := p.wait()
				started := len(p.rest()) > 0
				switch {
				case r.code == 128+int(sig):
				case r.signal == sig && !started: // the program had not begun
				case sig == unix.SIGQUIT && r.code == 2 && !started && strings.HasPrefix(r.stderr, "SIGQUIT: quit"):
					// The same, but that is how the Go runtime dies of it.
				default:
					t.Fatalf("sent after %v: %v, command started: %v", after, r, started)
				}
				w.noneNow()
				w.isFree()
			}
		})
	}
}

// Every other signal reaches the command too if golock had begun, of which a
// new file in the store is the sign, while it was taking the slot and starting
// the command: which here dies of it.
func TestSignalsWhileTheCommandIsBeingStarted(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{unix.SIGUSR1, unix.SIGALRM, unix.SIGPWR, unix.SIGABRT, unix.SIGTERM} {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			for i := range 40 {
				w := newWorld(t)
				p := w.job("--", "sleep", "1000").start()
				for !w.used() && p.running() && time.Since(p.began) < limit { // a sleep is not as exact
				}
				begun := time.Now()
				after := time.Duration(i) * 50 * time.Microsecond
				for time.Since(begun) < after {
				}
				p.signal(sig)
				p.wait().expectCode(t, 128+int(sig))
				w.noneNow()
			}
		})
	}
}

func TestRewrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.recorder("--rewrite=TERM:INT", "--rewrite", "HUP:USR1", "--rewrite=USR1:USR2", "--rewrite=SIGQUIT:0", "--rewrite=14:15", "--rewrite=40:SIGHUP", "--rewrite=SIGUSR2:41")
	p.listens()
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
		p.signal(unix.SIGQUIT) // dropped
		p.signal(c.sent)
		p.expect(fmt.Sprint("parent ", int(c.got)))
	}
	p.tell("exit 0")
	p.wait().expectCode(t, 0)
}

// golock's own stop signal is --signal, whatever is rewritten or passed on.
func TestStopSignalIsNotRewritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.recorder("--time-limit=0.3", "--signal=USR1", "--kill-after=0.3")
	got := []string{p.line(), p.line()} // CONT follows at once, the order is the kernel's
	slices.Sort(got)
	if !slices.Equal(got, []string{"parent 10", "parent 18"}) {
		t.Errorf("the command wrote %q, want USR1 and CONT", got)
	}
	r := p.wait()
	r.expectCode(t, 124)
	w.noneLeft()
}

// waiting is a holder, the waiter that a test is about, and one behind it.
func (w *world) waiting(flags ...string) (holder, waiter, behind *proc) {
	w.t.Helper()
	holder = w.holder()
	waiter = w.job(append(flags, "--", "sh", "-c", "echo running; sleep 1000")...).start()
	w.awaitWaiters(waiter.pid)
	behind = w.job("--", "echo", "my turn").start()
	w.awaitWaiters(waiter.pid, behind.pid)
	return holder, waiter, behind
}

func TestSignalsWhileWaiting(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT} {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			// A busy machine may take its time: one of several has to be quick.
			const promised = 100 * time.Millisecond
			var took []time.Duration
			for range 5 {
				w := newWorld(t)
				holder, waiter, behind := w.waiting()
				begin := time.Now()
				waiter.signal(sig)
				waiter.wait().expectCode(t, 128+int(sig))
				took = append(took, time.Since(begin))
				w.awaitWaiters(behind.pid)
				holder.finish()
				behind.expect("my turn")
				behind.wait().expectCode(t, 0)
				if wrote := waiter.rest(); wrote != nil {
					t.Fatalf("the command of the waiter was started: %q", wrote)
				}
				w.isFree()
				if took[len(took)-1] < promised {
					return
				}
			}
			t.Errorf("took %v, want less than %v", took, promised)
		})
	}
}

// A signal that does not end the waiting is delivered when the command is
// there, which here dies of it.
func TestOtherSignalsWhileWaitingAreKept(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM} {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			holder, waiter, behind := w.waiting()
			waiter.signal(sig)
			w.awaitWaiters(waiter.pid, behind.pid)
			holder.finish()
			waiter.wait().expectCode(t, 128+int(sig))
			behind.expect("my turn")
			behind.wait().expectCode(t, 0)
		})
	}
}

func TestHarmlessSignalsWhileWaiting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	holder, waiter, behind := w.waiting()
	for _, sig := range []syscall.Signal{unix.SIGCHLD, unix.SIGURG, unix.SIGPIPE, unix.SIGWINCH, unix.SIGCONT} {
		waiter.signal(sig)
	}
	w.awaitWaiters(waiter.pid, behind.pid)
	holder.finish()
	waiter.expect("running")
	waiter.signal(unix.SIGTERM)
	waiter.wait().expectCode(t, 143)
	behind.wait().expectCode(t, 0)
}

func jsonOf(t testing.TB, counts map[string]int) string {
	t.Helper()
	keys := make([]string, 0, len(counts))
	for k := range counts {
		keys = append(keys, k)
	}
	slices.Sort(keys) // as encoding/json sorts them
	var parts []string
	for _, k := range keys {
		parts = append(parts, fmt.Sprintf("%q:%d", k, counts[k]))
	}
	return "{" + strings.Join(parts, ",") + "}"
}
