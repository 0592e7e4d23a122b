//go:build integration

// Pins the exit codes: the command's own 256 and 128+N pass unchanged, 126 and
// 127 are given as execvp(3) would have it, 124 and 75 are golock's own. (64 and 78 are in
// testdata.) Where nothing was started there is no trace of the command, nothing on
// stdout, one line on stderr that names the culprit, and the slot is free.

package matrix_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/test/testkit"
)

func TestEveryExitCodePasses(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	step := 1
	if leased() { // the guard hands on the rest as it does these
		step = 5
	}
	var calls []*testkit.Command
	for code := 0; code < 256; code += step {
		calls = append(calls, s.Lock(fmt.Sprint("job", code), "--", "sh", "-c", fmt.Sprint("exit ", code)))
	}
	for i, r := range testkit.RunAll(calls) {
		if r.Code != i*step || r.Stdout != "" || r.Stderr != "" {
			t.Errorf("exit %d: %v", i*step, r)
		}
	}
}

func TestEveryDeathBySignalIs128PlusN(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	survived := []syscall.Signal{
		unix.SIGCHLD, unix.SIGCONT, unix.SIGURG, unix.SIGWINCH, unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU,
		32, 33, // the C library's own; a test binary that has one hands them on blocked
	}
	var signals []syscall.Signal
	var calls []*testkit.Command
	for sig := syscall.Signal(1); sig <= 64; sig++ {
		if !slices.Contains(survived, sig) {
			signals = append(signals, sig)
			calls = append(calls, s.Lock(fmt.Sprint("job", int(sig)), "--", "sh", "-c", fmt.Sprintf("kill -%d $$; exit 77", sig)))
		}
	}
	for i, r := range testkit.RunAll(calls) {
		if r.Code != 128+int(signals[i]) || r.Stderr != "" {
			t.Errorf("command died of signal %d: %v", signals[i], r)
		}
	}
}

// The command is looked for as execvp(3) does. The same table holds for
// `timeout 60 COMMAND`, but for the empty name, which that takes for usage.
func TestCommandIsFoundAsByExecvp(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	noShebang := s.Script("no-shebang", "echo run by sh: \"$@\"\nexit 5\n")
	s.Script("empty", "")
	s.Script("here", "#!/bin/sh\nexit 6\n")
	s.Script("bad-interpreter", "#!/nonexistent/interpreter\n")
	for _, d := range []string{"refused", "allowed", "folder", "folder/here"} {
		testkit.Must(t, os.Mkdir(s.Path(d), 0o755))
	}
	testkit.Must(t, os.WriteFile(s.Path("plain"), []byte("#!/bin/sh\nexit 1\n"), 0o644))
	testkit.Must(t, os.WriteFile(s.Path("refused/tool"), []byte("#!/bin/sh\nexit 1\n"), 0o644))
	testkit.Must(t, os.Rename(s.Script("tool", "#!/bin/sh\nexit 7\n"), s.Path("allowed/tool")))
	const usual = "PATH=/usr/bin:/bin"
	for _, c := range []struct {
		what    string
		path    string // the variable, or "" for unset
		command []string
		code    int
		stdout  string
	}{
		{"a file that may not be executed", usual, []string{"./plain"}, 126, ""},
		{"a directory", usual, []string{"./folder"}, 126, ""},
		{"a name too long", usual, []string{"./" + strings.Repeat("x", 5000)}, 126, ""},
		{"a path that is not there", usual, []string{"./missing"}, 127, ""},
		{"a name that is not there", usual, []string{"golock-no-such-program"}, 127, ""},
		{"an interpreter that is not there", usual, []string{"./bad-interpreter"}, 127, ""},
		{"an empty name", usual, []string{""}, 127, ""},
		{"no interpreter line", usual, []string{"./no-shebang", "a b", "c"}, 5, "run by sh: a b c\n"},
		{"no interpreter line, absolute path", usual, []string{noShebang}, 5, "run by sh:\n"},
		{"no interpreter line, found on PATH", usual + ":" + s.Dir, []string{"no-shebang", "d"}, 5, "run by sh: d\n"},
		{"an empty file", usual, []string{"./empty"}, 0, ""},
		{"PATH unset", "", []string{"sh", "-c", "exit 3"}, 3, ""},
		{"PATH unset, not there", "", []string{"golock-no-such-program"}, 127, ""},
		{"PATH unset does not mean here", "", []string{"here"}, 127, ""},
		{"PATH empty means here", "PATH=", []string{"here"}, 6, ""},
		{"PATH empty, not there", "PATH=", []string{"sh"}, 127, ""},
		{"first element empty", "PATH=:/usr/bin:/bin", []string{"here"}, 6, ""},
		{"last element empty", "PATH=/usr/bin:/bin:", []string{"here"}, 6, ""},
		{"middle element empty", "PATH=/usr/bin::/bin", []string{"here"}, 6, ""},
		{"relative element", "PATH=allowed", []string{"tool"}, 7, ""},
		{"no empty element", usual, []string{"here"}, 127, ""},
		{"first refused, then allowed", "PATH=refused:allowed", []string{"tool"}, 7, ""},
		{"only refused", "PATH=refused:/usr/bin", []string{"tool"}, 126, ""},
		{"first a directory, then the file", "PATH=folder:", []string{"here"}, 6, ""},
		{"first a file as element", "PATH=plain:missing:allowed", []string{"tool"}, 7, ""},
	} {
		// -n: the one before has left the slot free.
		call := s.Job(append([]string{"-n", "--"}, c.command...)...)
		call.Env = call.Env[2:] // without PATH and LC_ALL
		if c.path != "" {
			call.Env = append(call.Env, c.path)
		}
		r := call.Run()
		if r.Code != c.code || r.Stdout != c.stdout {
			t.Errorf("%s: %v, want %d with stdout %q", c.what, r, c.code, c.stdout)
			continue
		}
		if c.code == 126 || c.code == 127 {
			r.OneLine(t, strings.Trim(c.command[0], "./x"))
		} else if r.Stderr != "" {
			t.Errorf("%s: stderr is %q, want nothing", c.what, r.Stderr)
		}
	}
	s.IsFree()
}

func TestNoSlotInTime(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	holder := s.Holder()
	defer holder.Finish()
	// A server that is slow to answer has to be reached in that time.
	wait := 500 * time.Millisecond
	if leased() {
		wait = 4 * time.Second
	}
	table := []struct {
		flags string
		code  int
		waits bool
	}{
		{"-n", 75, false},
		{"-n -E 3", 3, false},
		{"-w WAIT", 75, true},
		{"-w WAIT -E 0", 0, true},
		{"-w WAIT -E 8", 8, true},
	}
	var calls []*testkit.Command
	for _, c := range table {
		flags := strings.ReplaceAll(c.flags, "WAIT", wait.String())
		calls = append(calls, s.Job(append(strings.Fields(flags), "--", "touch", "started")...))
	}
	progress := regexp.MustCompile("(?m)^golock: waiting for .*\n") // after a second
	for i, r := range testkit.RunAll(calls) {
		c := table[i]
		r.Stderr = progress.ReplaceAllString(r.Stderr, "")
		if r.Code != c.code || r.Stdout != "" || c.waits && r.Took < wait {
			t.Errorf("%s: %v, want %d and nothing on stdout", c.flags, r, c.code)
		}
		if c.code == 0 && r.Stderr != "" {
			t.Errorf("%s: stderr is %q, want silence", c.flags, r.Stderr)
		}
		if c.code != 0 {
			r.OneLine(t, "job")
		}
	}
	if s.Exists("started") {
		t.Error("a command was started")
	}
	s.AwaitWaiters()
}

func TestTimeLimit(t *testing.T) {
	t.Parallel()
	const limit = "--time-limit=1"
	for _, c := range []struct {
		what   string
		flags  []string
		script string
		stdout string
		least  time.Duration // milliseconds
	}{
		{"TERM ends it", []string{limit}, "exec sleep 60", "", 1000},
		{"also the children of a shell", []string{limit}, "sleep 60; exit 3", "", 1000},
		{"a polite command's own code does not count", []string{limit},
			`trap 'echo TERM; exit 0' TERM; sleep 60`, "TERM\n", 1000},
		{"TERM ignored, KILL after --kill-after", []string{limit, "--kill-after", "0.4"},
			`trap '' TERM; echo deaf; sleep 60; sleep 60`, "deaf\n", 1400},
		{"--kill-after 0 is KILL at once", []string{limit, "--kill-after=0"},
			`trap 'echo TERM' TERM; echo ready; sleep 60; sleep 60`, "ready\n", 1000},
		{"--signal", []string{limit, "--signal", "INT"},
			`trap 'echo INT; exit 0' INT; trap 'echo TERM; exit 0' TERM; sleep 60`, "INT\n", 1000},
		{"--signal by number", []string{limit, "--signal=10"},
			`trap 'echo USR1; exit 0' USR1; sleep 60`, "USR1\n", 1000},
		{"--signal with SIG", []string{limit, "--signal=SIGUSR2"},
			`trap 'echo USR2; exit 0' USR2; sleep 60`, "USR2\n", 1000},
		{"a stopped command is continued", []string{limit},
			`trap 'echo TERM; exit 0' TERM; kill -STOP $$; exit 5`, "TERM\n", 1000},
		{"from the environment", nil, `trap '' TERM; sleep 60; sleep 60`, "", 1400},
	} {
		t.Run(strings.ReplaceAll(c.what, " ", "_"), func(t *testing.T) {
			t.Parallel()
			s := newSandbox(t)
			job := s.Job(append(c.flags, "--", "sh", "-c", "exec 2>/dev/null; "+c.script)...)
			if c.flags == nil {
				job.Setenv("GOLOCK_TIME_LIMIT=1", "GOLOCK_KILL_AFTER=0.4")
			}
			r := job.Run()
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
	holder := s.Holder()
	waiter := s.Job("--time-limit=1", "--", "sh", "-c", "echo running; read code; exit $code").Start()
	s.AwaitWaiters(waiter.PID)
	time.Sleep(1100 * time.Millisecond) // the limit would be over
	holder.Finish()
	waiter.Expect("running")
	waiter.Tell("6")
	waiter.Expects(6)
}

// A limit on descriptors that leaves too few to start the command shows before
// golock waits, not when it has the slot. (With a few less the Go runtime dies, with
// code 2, of its first timer or connection.)
func TestFewDescriptors(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	holder := s.Holder()
	var all []*testkit.Process
	for n := 8; n <= 28; n += 2 {
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
		if want := []int{0, 2}; early[i] && !slices.Contains([]int{2, 69, 126}, r.Code) || !early[i] && !slices.Contains(want, r.Code) {
			t.Errorf("%d descriptors: ended before the slot was free: %v; %v", 8+2*i, early[i], r)
		}
	}
	if r := all[len(all)-1].Wait(); r.Code != 0 {
		t.Errorf("28 descriptors: %v", r)
	}
}
