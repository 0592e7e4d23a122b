//go:build integration

// Pins the exit codes: the command's own 256 and 128+N pass unchanged, 126 and
// 127 are given as execvp(3) would have it, 124, 75, 64 and 78 are golock's
// own. Where nothing was started there is no trace of the command, nothing on
// stdout, one line on stderr that names the culprit, and the slot is free.

package matrix_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
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

func TestOKExit(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	holder := s.Holder()
	defer holder.Finish()
	for _, c := range []struct {
		flags  []string
		script string
		code   int
	}{
		{[]string{"--ok-exit", "3"}, "exit 3", 0},
		{[]string{"--ok-exit", "3"}, "exit 4", 4},
		{[]string{"--ok-exit=3", "--ok-exit=4"}, "exit 3", 0},
		{[]string{"--ok-exit=3", "--ok-exit=4"}, "exit 4", 0},
		{[]string{"--ok-exit=3", "--ok-exit=4"}, "exit 5", 5},
		{[]string{"--ok-exit=0", "--ok-exit=255"}, "exit 255", 0},
		{[]string{"--ok-exit=0"}, "exit 1", 1},
		{[]string{"--ok-exit=143"}, "kill -TERM $$", 0},
		{[]string{"--ok-exit=143"}, "kill -KILL $$", 137},
		{[]string{"--ok-exit=75"}, "exit 75", 0},
	} {
		r := s.Lock("other", append(c.flags, "--", "sh", "-c", c.script)...).Run()
		if r.Code != c.code || r.Stderr != "" {
			t.Errorf("%q with %q: %v, want %d", c.flags, c.script, r, c.code)
		}
	}
	// It is about the command's code: a command that never ran has none.
	s.Job("-n", "--ok-exit=75", "--", "true").Run().Complaint(t, 75, "job")
	s.Lock("other", "--ok-exit=127", "--", "golock-no-such-program").Run().Complaint(t, 127)
}

func TestNoSlotInTime(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	holder := s.Holder()
	defer holder.Finish()
	table := []struct {
		flags string
		env   string
		code  int
		waits bool
	}{
		{"-n", "", 75, false},
		{"--no-wait", "", 75, false},
		{"--nonblock", "", 75, false},
		{"--nb", "", 75, false},
		{"--wait 0", "", 75, false},
		{"-w0", "", 75, false},
		{"--wait=0s", "", 75, false},
		{"-n -E 3", "", 3, false},
		{"-nE3", "", 3, false},
		{"-n -E0", "", 0, false},
		{"-n --conflict-exit-code 255", "", 255, false},
		{"-n", "CONFLICT_EXIT_CODE=9", 9, false},
		{"-n", "CONFLICT_EXIT_CODE=0", 0, false},
		{"-n", "CONFLICT_EXIT_CODE=", 75, false},
		{"-n -E4", "CONFLICT_EXIT_CODE=9", 4, false},
		{"", "WAIT=0", 75, false},
		{"--wait 0.5", "", 75, true},
		{"-w 500ms", "", 75, true},
		{"-w.5", "", 75, true},
		{"", "WAIT=0.5", 75, true},
		{"--wait WAIT", "WAIT=1h", 75, true},
		{"--wait WAIT -E 0", "", 0, true},
		{"--wait WAIT -E 8", "", 8, true},
	}
	// A server that is slow to answer has to be reached in that time.
	wait := 500 * time.Millisecond
	if leased() {
		wait = 4 * time.Second
		table = append(table[:2:2], table[len(table)-3:]...) // the rest is the same everywhere
	}
	var calls []*testkit.Command
	for _, c := range table {
		flags := strings.ReplaceAll(c.flags, "WAIT", wait.String())
		call := s.Job(append(strings.Fields(flags), "--", "touch", "started")...)
		calls = append(calls, call.Setenv("GOLOCK_"+c.env))
	}
	progress := regexp.MustCompile("(?m)^golock: waiting for .*\n") // after a second
	for i, r := range testkit.RunAll(calls) {
		c := table[i]
		r.Stderr = progress.ReplaceAllString(r.Stderr, "")
		if r.Code != c.code || r.Stdout != "" || c.waits && r.Took < wait {
			t.Errorf("%s %s: %v, want %d and nothing on stdout", c.flags, c.env, r, c.code)
		}
		if c.code == 0 && r.Stderr != "" {
			t.Errorf("%s %s: stderr is %q, want silence", c.flags, c.env, r.Stderr)
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

// Flags that are wrong by themselves; the message names the flag.
const wrongFlags = `--bogus --no-wiat -z --max --max=0 --max=-1 --max=x --max=1.5 --max=
	--max=99999999999999999999 --weight=0 --weight=-1 --weight=x --weight=2
	--wait=x --wait=-1 --wait=5x --conflict-exit-code=1.0 --max-queue=-1 --max-queue=x
	--priority=x --priority=1.5 --replace=all --hold=x --hold=-1 --time-limit=x --time-limit=-1
	--kill-after=x --kill-after=-1 --signal=NONSENSE --signal=65 --signal=-1 --signal=
	--rewrite=TERM --rewrite=TERM: --rewrite=:TERM --rewrite=NONSENSE:TERM
	--rewrite=TERM:NONSENSE --rewrite=TERM:65 --rewrite=0:TERM --rewrite=TERM:INT:HUP
	--ok-exit=256 --ok-exit=-1 --ok-exit=x --ttl=0.5 --ttl=x --on-lost=nothing
	--log-format=xml --store=nonsense://x --store=etcd://localhost --name= --timeout=5`

func TestWrongFlagsAre64(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	type usage struct {
		names string // one of these is in the message
		args  []string
	}
	var table []usage
	for flag := range strings.FieldsSeq(wrongFlags) {
		name, _, _ := strings.Cut(flag, "=")
		table = append(table, usage{name, []string{flag}})
	}
	table = append(table, []usage{
		{"--shared", []string{"--max=2", "--shared"}},
		{"--shared", []string{"--max=2", "-s"}},
		{"--exclusive", []string{"--max=2", "-x"}},
		{"--shared", []string{"-s", "-x"}},
		{"--weight", []string{"--max=2", "--weight=3"}},
		{"--wait", []string{"-w", "later"}},
		{"--wait", []string{"--wait=5 s"}},
		{"--wait", []string{"-n", "--wait=5"}},
		{"--conflict-exit-code -E", []string{"-E256"}},
		{"--conflict-exit-code -E", []string{"-E", "-1"}},
		{"--conflict-exit-code -E", []string{"-E", "x"}},
		{"--name", []string{"--name=" + strings.Repeat("n", 256)}},
		{"--name", []string{"--name=a\nb"}},
		{"--name", []string{"--name=a\x7f"}},
		{"--name", []string{"--name=a\u0085"}},
		{"--name", []string{"--name=\xff"}},
	}...)
	if leased() { // the rest is the same everywhere
		table = []usage{
			{"--on-lost", []string{"--on-lost=panic"}},
			{"--close", []string{"--close"}},
			{"--exec", []string{"-F"}},
		}
	} else {
		for _, flag := range []string{"--ttl=30s", "--on-lost=warn", "--show-args"} {
			table = append(table, usage{"--ttl --on-lost --show-args", []string{flag}})
		}
	}
	var calls []*testkit.Command
	for _, u := range table {
		calls = append(calls, s.Job(append(u.args, "--", "touch", "started")...))
	}
	for _, u := range []usage{
		{"command COMMAND", []string{"run", "--name=job"}},
		{"command COMMAND", []string{"run", "--name=job", "--"}},
		{"--name", []string{"run", "--store", s.Store, "--", "touch", "started"}},
		{"rnu", []string{"rnu", "--name=job", "--", "touch", "started"}},
		{"--bogus", []string{"--bogus"}},
		{"--bogus", []string{"ls", "--bogus"}},
	} {
		table, calls = append(table, u), append(calls, s.Golock(u.args...))
	}
	for i, r := range testkit.RunAll(calls) {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Logf("%.200q", table[i].args)
			r.Complaint(t, 64, strings.Fields(table[i].names)...)
		})
	}
	if s.Exists("started") {
		t.Error("a command was started")
	}
	s.AwaitWaiters()
	// Who comes from another tool is told what is called how here.
	s.Job("--timeout=5", "--", "true").Run().Expect(t, 64, "--wait", "--time-limit")
}

func TestWrongEnvironmentIs78(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	table := strings.Fields(`MAX=0 MAX=-1 MAX=x MAX=1.5 WAIT=x WAIT=-1 CONFLICT_EXIT_CODE=256
		CONFLICT_EXIT_CODE=-1 CONFLICT_EXIT_CODE=x TIME_LIMIT=x TIME_LIMIT=-1 KILL_AFTER=x
		KILL_AFTER=-1 LOG_FORMAT=xml STORE=nonsense://x STORE= CONFIG=no-such-file.toml`)
	table = append(table, "NAME=a\nb", "NAME=\xff", "NAME="+strings.Repeat("n", 256))
	if leased() { // the rest is the same everywhere
		table = table[:1]
	}
	var calls []*testkit.Command
	for _, setting := range table {
		args := []string{"run"}
		if !strings.HasPrefix(setting, "STORE") {
			args = append(args, "--store", s.Store)
		}
		if !strings.HasPrefix(setting, "NAME") {
			args = append(args, "--name", "job")
		}
		calls = append(calls, s.Golock(append(args, "--", "touch", "started")...).Setenv("GOLOCK_"+setting))
	}
	for i, r := range testkit.RunAll(calls) {
		name, _, _ := strings.Cut(table[i], "=")
		t.Run(fmt.Sprint(i, "_", name), func(t *testing.T) {
			t.Logf("%.100q", table[i])
			r.Complaint(t, 78, "GOLOCK_"+name, "no-such-file.toml")
		})
	}
	if s.Exists("started") {
		t.Error("a command was started")
	}
}

// Empty variables count as unset or are overridden by a flag, and one without a
// meaning here is ignored.
func TestHarmlessEnvironment(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	for _, env := range [][]string{
		{
			"GOLOCK_NAME=", "GOLOCK_STORE=", "GOLOCK_MAX=", "GOLOCK_WAIT=", "GOLOCK_CONFLICT_EXIT_CODE=", "GOLOCK_HOLD=", "GOLOCK_TIME_LIMIT=",
			"GOLOCK_KILL_AFTER=", "GOLOCK_TTL=", "GOLOCK_ON_LOST=", "GOLOCK_REPORT=", "GOLOCK_LOG_FORMAT=", "GOLOCK_CONFIG=",
		},
		{"GOLOCK_TTL=30s", "GOLOCK_ON_LOST=stop"},
		{"GOLOCK_MAX=3", "GOLOCK_NAME=other", "GOLOCK_STORE=redis://127.0.0.1:1"},
	} {
		if r := s.Job("--max=1", "--", "sh", "-c", "exit 3").Setenv(env...).Run(); r.Code != 3 || r.Stderr != "" {
			t.Errorf("%q: %v, want 3 and silence", env, r)
		}
	}
	// The environment is enough.
	r := s.Golock("run", "--", "sh", "-c", `echo "$GOLOCK_LOCK_NAME"; exit 4`).Setenv("GOLOCK_NAME=job", "GOLOCK_STORE="+s.Store).Run()
	if r.Code != 4 || r.Stdout != "job\n" {
		t.Errorf("all from the environment: %v", r)
	}
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
