//go:build integration

// Exit codes of a command that ended by itself or by a time limit. (The others: testdata.)

package matrix_test

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/test/testkit"
)

// Some codes, and those that golock has for its own ends. The deep run tries all.
func TestEveryExitCodePasses(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	codes := []int{0, 1, 2, 64, 69, 70, 75, 78, 79, 124, 126, 127, 128, 129, 254, 255}
	if testkit.Deep() {
		codes = nil
		for code := range 256 {
			codes = append(codes, code)
		}
	}
	var calls []*testkit.Command
	for _, code := range codes {
		calls = append(calls, s.Lock(fmt.Sprint("job", code), "--", "sh", "-c", fmt.Sprint("exit ", code)))
	}
	for i, r := range testkit.RunAll(calls) {
		if r.Code != codes[i] || r.Stdout != "" || r.Stderr != "" {
			t.Errorf("exit %d: %v", codes[i], r)
		}
	}
}

// The signals that end a program, of the real-time ones the first and the last. The deep run tries all.
func TestDiesOfTheSignalOfItsCommand(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	survived := []syscall.Signal{
		unix.SIGCHLD, unix.SIGCONT, unix.SIGURG, unix.SIGWINCH, unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU,
	}
	var signals []syscall.Signal
	var calls []*testkit.Command
	for sig := syscall.Signal(1); sig <= 64; sig++ {
		middle := sig > 35 && sig < 64 && !testkit.Deep()
		if !middle && !slices.Contains(survived, sig) {
			signals = append(signals, sig)
			job := s.Lock(fmt.Sprint("job", int(sig)), "--", "sh", "-c", fmt.Sprintf("ulimit -c 0; kill -%d $$; exit 77", sig))
			calls = append(calls, job.Sh("ulimit -c unlimited"))
		}
	}
	for i, r := range testkit.RunAll(calls) {
		if r.Signal != signals[i] || r.Core || r.Stderr != "" {
			t.Errorf("command died of signal %d: %v", signals[i], r)
		}
	}
}

func TestTimeLimit(t *testing.T) {
	t.Parallel()
	const limit = "--time-limit=2"
	for _, c := range []struct {
		what   string
		flags  []string
		script string
		stdout string
		least  time.Duration // milliseconds
	}{
		{"TERM ends it", []string{limit}, "exec sleep 60", "", 2000},
		{"also a child that outlives it, by KILL", []string{limit, "--kill-after", "0.4"},
			`sh -c 'trap "" TERM; while :; do sleep 1; done' & wait`, "", 2000},
		{"also the children of a shell", []string{limit}, "sleep 60; exit 3", "", 2000},
		{"a polite command's own code does not count", []string{limit},
			`trap 'echo TERM; exit 0' TERM; sleep 60`, "TERM\n", 2000},
		{"TERM ignored, KILL after --kill-after", []string{limit, "--kill-after", "0.4"},
			`trap '' TERM; echo deaf; sleep 60; sleep 60`, "deaf\n", 2400},
		{"--kill-after 0 is KILL at once", []string{limit, "--kill-after=0"},
			`trap 'echo TERM' TERM; echo ready; sleep 60; sleep 60`, "ready\n", 2000},
		{"--signal", []string{limit, "--signal", "INT"},
			`trap 'echo INT; exit 0' INT; trap 'echo TERM; exit 0' TERM; sleep 60`, "INT\n", 2000},
		{"a stopped command is continued", []string{limit},
			`trap 'echo TERM; exit 0' TERM; kill -STOP $$; exit 5`, "TERM\n", 2000},
	} {
		t.Run(strings.ReplaceAll(c.what, " ", "_"), func(t *testing.T) {
			t.Parallel()
			s := newSandbox(t)
			r := s.Job(append(c.flags, "--", "sh", "-c", "exec 2>/dev/null; "+c.script)...).Run()
			if r.Code != 124 || r.Stdout != c.stdout || r.Took < c.least*time.Millisecond {
				t.Errorf("%v, want 124 with stdout %q after %d ms", r, c.stdout, c.least)
			}
			r.OneLine(t)
			s.IsFree()
			s.NoneLeft()
		})
	}
	s := newSandbox(t)
	s.Job("--time-limit=1h", "--", "sh", "-c", "exit 5").Run().Expect(t, 5)
}

// The limit is the command's: waiting for the slot does not use it up.
func TestTimeLimitBeginsWithTheCommand(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	holder := s.Hold("job")
	waiter := s.Job("--time-limit=4", "--", "sh", "-c", "echo running; read code; exit $code").Start()
	s.AwaitWaiters(waiter.PID)
	time.Sleep(4100 * time.Millisecond) // the limit would be over
	holder.Finish()
	waiter.Expect("running")
	waiter.Tell("6")
	waiter.Expects(6)
}

// If a limit leaves too few descriptors to start the command, golock says so before it waits, not when
// it has the slot.
func TestFewDescriptors(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	holder := s.Hold("job")
	var all []*testkit.Process
	for n := 4; n <= 28; n += 2 {
		p := s.Job("--", "true").Sh(fmt.Sprint("ulimit -n ", n)).Start()
		isWaiting := func() bool {
			return slices.ContainsFunc(s.List("job"), func(e testkit.Entry) bool { return e.PID == p.PID })
		}
		s.Eventually("it waits or has ended", func() bool { return !p.Running() || isWaiting() })
		all = append(all, p)
	}
	var early []bool
	for _, p := range all {
		early = append(early, !p.Running())
	}
	holder.Finish()
	for i, p := range all {
		r := p.Wait()
		if early[i] {
			r.Complaint(t, 69, "too many open files")
		} else if r.Code != 0 {
			t.Errorf("%d descriptors: waited, then %v", 4+2*i, r)
		}
	}
	if r := all[len(all)-1].Wait(); r.Code != 0 {
		t.Errorf("28 descriptors: %v", r)
	}
}
