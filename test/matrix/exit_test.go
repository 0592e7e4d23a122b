// Pins the exit codes: the command's own 256 and 128+N pass unchanged, 126 and
// 127 are given as execvp(3) would have it, 124, 75, 64 and 78 are golock's
// own. Where nothing was started there is no trace of the command, nothing on
// stdout, one line on stderr that names the culprit, and the slot is free.

package matrix_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestEveryExitCodePasses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var calls []*call
	for code := range 256 {
		calls = append(calls, w.golock("run", "--store", w.store, "--name", fmt.Sprint("job", code), "--", "sh", "-c", fmt.Sprint("exit ", code)))
	}
	for code, r := range runAll(calls) {
		if r.code != code || r.stdout != "" || r.stderr != "" {
			t.Errorf("exit %d: %v", code, r)
		}
	}
}

func TestEveryDeathBySignalIs128PlusN(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	survived := map[syscall.Signal]bool{
		unix.SIGCHLD: true, unix.SIGCONT: true, unix.SIGURG: true, unix.SIGWINCH: true,
		unix.SIGSTOP: true, unix.SIGTSTP: true, unix.SIGTTIN: true, unix.SIGTTOU: true,
		32: true, 33: true, // the C library's own; a test binary that has one hands them on blocked
	}
	for sig := syscall.Signal(1); sig <= 64; sig++ {
		if survived[sig] {
			continue
		}
		r := w.job("--", "sh", "-c", fmt.Sprintf("kill -%d $$; exit 77", sig)).run()
		if r.code != 128+int(sig) || r.stderr != "" {
			t.Errorf("command died of signal %d: %v, want %d", sig, r, 128+sig)
		}
	}
	w.isFree()
}

// The command is looked for as execvp(3) does. The same table holds for
// `timeout 60 COMMAND`, but for the empty name, which that takes for usage.
func TestCommandIsFoundAsByExecvp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	noShebang := w.script("no-shebang", "echo run by sh: \"$@\"\nexit 5\n")
	w.script("empty", "")
	w.script("here", "#!/bin/sh\nexit 6\n")
	w.script("bad-interpreter", "#!/nonexistent/interpreter\n")
	for _, d := range []string{"refused", "allowed", "folder", "folder/here"} {
		must(t, os.Mkdir(w.path(d), 0o755))
	}
	must(t, os.WriteFile(w.path("plain"), []byte("#!/bin/sh\nexit 1\n"), 0o644))
	must(t, os.WriteFile(w.path("refused/tool"), []byte("#!/bin/sh\nexit 1\n"), 0o644))
	must(t, os.Rename(w.script("tool", "#!/bin/sh\nexit 7\n"), w.path("allowed/tool")))
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
		{"no interpreter line, found on PATH", usual + ":" + w.dir, []string{"no-shebang", "d"}, 5, "run by sh: d\n"},
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
		call := w.job(append([]string{"--"}, c.command...)...)
		call.env = []string{w.mark}
		if c.path != "" {
			call.env = append(call.env, c.path)
		}
		r := call.run()
		if r.code != c.code || r.stdout != c.stdout {
			t.Errorf("%s: %v, want %d with stdout %q", c.what, r, c.code, c.stdout)
			continue
		}
		if c.code == 126 || c.code == 127 {
			r.oneLine(t, strings.Trim(c.command[0], "./x"))
		} else if r.stderr != "" {
			t.Errorf("%s: stderr is %q, want nothing", c.what, r.stderr)
		}
		w.isFree()
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOKExit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	holder := w.holder()
	defer holder.finish()
	other := func(args ...string) *call {
		return w.golock(append([]string{"run", "--store", w.store, "--name", "other"}, args...)...)
	}
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
		r := other(append(c.flags, "--", "sh", "-c", c.script)...).run()
		if r.code != c.code || r.stderr != "" {
			t.Errorf("%q with %q: %v, want %d", c.flags, c.script, r, c.code)
		}
	}
	// It is about the command's code: a command that never ran has none.
	w.job("-n", "--ok-exit=75", "--", "true").run().complaint(t, 75, "job")
	other("--ok-exit=127", "--", "golock-no-such-program").run().complaint(t, 127)
}

func TestNoSlotInTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	holder := w.holder()
	defer holder.finish()
	for _, c := range []struct {
		flags []string
		env   []string
		code  int
		waits bool
	}{
		{[]string{"-n"}, nil, 75, false},
		{[]string{"--no-wait"}, nil, 75, false},
		{[]string{"--nonblock"}, nil, 75, false},
		{[]string{"--nb"}, nil, 75, false},
		{[]string{"--wait", "0"}, nil, 75, false},
		{[]string{"-w0"}, nil, 75, false},
		{[]string{"--wait=0s"}, nil, 75, false},
		{[]string{"-n", "-E", "3"}, nil, 3, false},
		{[]string{"-nE3"}, nil, 3, false},
		{[]string{"-n", "-E0"}, nil, 0, false},
		{[]string{"-n", "--conflict-exit-code", "255"}, nil, 255, false},
		{[]string{"-n"}, []string{"GOLOCK_CONFLICT_EXIT_CODE=9"}, 9, false},
		{[]string{"-n"}, []string{"GOLOCK_CONFLICT_EXIT_CODE=0"}, 0, false},
		{[]string{"-n"}, []string{"GOLOCK_CONFLICT_EXIT_CODE="}, 75, false},
		{[]string{"-n", "-E4"}, []string{"GOLOCK_CONFLICT_EXIT_CODE=9"}, 4, false},
		{nil, []string{"GOLOCK_WAIT=0"}, 75, false},
		{[]string{"--wait", "0.5"}, nil, 75, true},
		{[]string{"-w", "500ms"}, nil, 75, true},
		{[]string{"-w.5"}, nil, 75, true},
		{nil, []string{"GOLOCK_WAIT=0.5"}, 75, true},
		{[]string{"--wait", "0.5"}, []string{"GOLOCK_WAIT=1h"}, 75, true},
		{[]string{"--wait", "0.5", "-E", "0"}, nil, 0, true},
		{[]string{"--wait", "0.5", "-E", "8"}, nil, 8, true},
	} {
		r := w.job(append(c.flags, "--", "touch", "started")...).setenv(c.env...).run()
		what := fmt.Sprintf("%q %q", c.flags, c.env)
		if r.code != c.code || r.stdout != "" {
			t.Errorf("%s: %v, want %d and nothing on stdout", what, r, c.code)
		}
		if c.code == 0 && r.stderr != "" {
			t.Errorf("%s: stderr is %q, want silence", what, r.stderr)
		}
		if c.code != 0 {
			r.oneLine(t, "job")
		}
		if least := 500 * time.Millisecond; c.waits && (r.took < least || r.took > 3*least) || !c.waits && r.took > 3*least {
			t.Errorf("%s: took %v", what, r.took)
		}
	}
	if exists(w.path("started")) {
		t.Error("a command was started")
	}
	w.awaitWaiters()
}

func TestTimeLimit(t *testing.T) {
	t.Parallel()
	const limit = "--time-limit=0.3"
	for _, c := range []struct {
		what   string
		flags  []string
		env    []string
		script string
		code   int
		stdout string
		least  time.Duration
		most   time.Duration
	}{
		{"TERM ends it", []string{limit}, nil, "exec sleep 60", 124, "", 300, 5000},
		{"also the children of a shell", []string{limit}, nil, "sleep 60; exit 3", 124, "", 300, 5000},
		{"a polite command's own code does not count", []string{limit}, nil,
			`trap 'echo TERM; exit 0' TERM; sleep 60`, 124, "TERM\n", 300, 5000},
		{"TERM ignored, KILL after --kill-after", []string{limit, "--kill-after", "0.4"}, nil,
			`trap '' TERM; echo deaf; sleep 60; sleep 60`, 124, "deaf\n", 700, 5000},
		{"--kill-after 0 is KILL at once", []string{limit, "--kill-after=0"}, nil,
			`trap 'echo TERM' TERM; echo ready; sleep 60; sleep 60`, 124, "ready\n", 300, 5000},
		{"--signal", []string{limit, "--signal", "INT"}, nil,
			`trap 'echo INT; exit 0' INT; trap 'echo TERM; exit 0' TERM; sleep 60`, 124, "INT\n", 300, 5000},
		{"--signal by number", []string{limit, "--signal=10"}, nil,
			`trap 'echo USR1; exit 0' USR1; sleep 60`, 124, "USR1\n", 300, 5000},
		{"--signal with SIG", []string{limit, "--signal=SIGUSR2"}, nil,
			`trap 'echo USR2; exit 0' USR2; sleep 60`, 124, "USR2\n", 300, 5000},
		{"a stopped command is continued", []string{limit}, nil,
			`trap 'echo TERM; exit 0' TERM; kill -STOP $$; exit 5`, 124, "TERM\n", 300, 5000},
		{"from the environment", nil, []string{"GOLOCK_TIME_LIMIT=0.3", "GOLOCK_KILL_AFTER=0.4"},
			`trap '' TERM; sleep 60; sleep 60`, 124, "", 700, 5000},
		{"over in time", []string{"--time-limit=1h"}, nil, "exit 5", 5, "", 0, 5000},
	} {
		t.Run(strings.ReplaceAll(c.what, " ", "_"), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			r := w.job(append(c.flags, "--", "sh", "-c", "exec 2>/dev/null; "+c.script)...).setenv(c.env...).run()
			if r.code != c.code || r.stdout != c.stdout {
				t.Errorf("%v, want %d with stdout %q", r, c.code, c.stdout)
			}
			if r.took < c.least*time.Millisecond || r.took > c.most*time.Millisecond {
				t.Errorf("took %v, want %d to %d ms", r.took, c.least, c.most)
			}
			if c.code == 124 {
				r.oneLine(t)
			}
			w.isFree()
			w.noneLeft()
		})
	}
}

// The limit is the command's: waiting for the slot does not use it up.
func TestTimeLimitBeginsWithTheCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	holder := w.holder()
	waiter := w.job("--time-limit=1", "--", "sh", "-c", "echo running; read code; exit $code").start()
	w.awaitWaiters(waiter.pid)
	await(t, "the limit would be over", func() bool { return time.Since(waiter.began) > 1100*time.Millisecond })
	holder.finish()
	waiter.expect("running")
	waiter.tell("6")
	waiter.wait().expectCode(t, 6)
}

// usage is one way to call golock wrongly.
type usage struct {
	args  []string // after run --store S --name job; "%" in front: after golock
	names []string // one of these is in the message
}

func TestWrongFlagsAre64(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cmd := func(flags ...string) []string { return append(flags, "--", "touch", "started") }
	table := []usage{
		{cmd("--bogus"), []string{"--bogus"}},
		{cmd("--no-wiat"), []string{"--no-wiat"}},
		{cmd("-z"), []string{"-z"}},
		{cmd("--max"), []string{"--max"}},
		{cmd("--max=0"), []string{"--max"}},
		{cmd("--max=-1"), []string{"--max"}},
		{cmd("--max=x"), []string{"--max"}},
		{cmd("--max=1.5"), []string{"--max"}},
		{cmd("--max="), []string{"--max"}},
		{cmd("--max=99999999999999999999"), []string{"--max"}},
		{cmd("--max=2", "--shared"), []string{"--max", "--shared"}},
		{cmd("-s", "--max=2"), []string{"--max", "--shared"}},
		{cmd("-x", "--max=2"), []string{"--max", "--exclusive"}},
		{cmd("-s", "-x"), []string{"--shared", "--exclusive"}},
		{cmd("--weight=0"), []string{"--weight"}},
		{cmd("--weight=-1"), []string{"--weight"}},
		{cmd("--weight=x"), []string{"--weight"}},
		{cmd("--weight=2"), []string{"--weight"}},
		{cmd("--max=2", "--weight=3"), []string{"--weight"}},
		{cmd("--wait=x"), []string{"--wait"}},
		{cmd("--wait=-1"), []string{"--wait"}},
		{cmd("--wait=5 s"), []string{"--wait"}},
		{cmd("--wait=5x"), []string{"--wait"}},
		{cmd("-w", "later"), []string{"--wait", "-w"}},
		{cmd("-n", "--wait=5"), []string{"--wait", "--no-wait", "-n"}},
		{cmd("-E256"), []string{"-E", "--conflict-exit-code"}},
		{cmd("-E", "-1"), []string{"-E", "--conflict-exit-code"}},
		{cmd("-E", "x"), []string{"-E", "--conflict-exit-code"}},
		{cmd("--conflict-exit-code=1.0"), []string{"-E", "--conflict-exit-code"}},
		{cmd("--max-queue=-1"), []string{"--max-queue"}},
		{cmd("--max-queue=x"), []string{"--max-queue"}},
		{cmd("--priority=x"), []string{"--priority"}},
		{cmd("--priority=1.5"), []string{"--priority"}},
		{cmd("--replace=all"), []string{"--replace"}},
		{cmd("--hold=x"), []string{"--hold"}},
		{cmd("--hold=-1"), []string{"--hold"}},
		{cmd("--time-limit=x"), []string{"--time-limit"}},
		{cmd("--time-limit=-1"), []string{"--time-limit"}},
		{cmd("--kill-after=x"), []string{"--kill-after"}},
		{cmd("--kill-after=-1"), []string{"--kill-after"}},
		{cmd("--signal=NONSENSE"), []string{"--signal"}},
		{cmd("--signal=65"), []string{"--signal"}},
		{cmd("--signal=-1"), []string{"--signal"}},
		{cmd("--signal="), []string{"--signal"}},
		{cmd("--rewrite=TERM"), []string{"--rewrite"}},
		{cmd("--rewrite=TERM:"), []string{"--rewrite"}},
		{cmd("--rewrite=:TERM"), []string{"--rewrite"}},
		{cmd("--rewrite=NONSENSE:TERM"), []string{"--rewrite"}},
		{cmd("--rewrite=TERM:NONSENSE"), []string{"--rewrite"}},
		{cmd("--rewrite=TERM:65"), []string{"--rewrite"}},
		{cmd("--rewrite=0:TERM"), []string{"--rewrite"}},
		{cmd("--rewrite=TERM:INT:HUP"), []string{"--rewrite"}},
		{cmd("--ok-exit=256"), []string{"--ok-exit"}},
		{cmd("--ok-exit=-1"), []string{"--ok-exit"}},
		{cmd("--ok-exit=x"), []string{"--ok-exit"}},
		{cmd("--ttl=0.5"), []string{"--ttl"}},
		{cmd("--ttl=x"), []string{"--ttl"}},
		{cmd("--on-lost=nothing"), []string{"--on-lost"}},
		{cmd("--log-format=xml"), []string{"--log-format"}},
		{cmd("--store=nonsense://x"), []string{"--store", "nonsense"}},
		{cmd("--store=etcd://localhost"), []string{"etcd"}},
		{cmd("--name="), []string{"--name"}},
		{cmd("--name=" + strings.Repeat("n", 256)), []string{"--name"}},
		{cmd("--name=a\nb"), []string{"--name"}},
		{cmd("--name=a\x7f"), []string{"--name"}},
		{cmd("--name=a\u0085"), []string{"--name"}},
		{cmd("--name=\xff"), []string{"--name"}},
		{cmd("--timeout=5"), []string{"--timeout"}},
		{cmd("--timeout", "5"), []string{"--timeout"}},
		{[]string{}, []string{"command", "COMMAND"}},
		{[]string{"--"}, []string{"command", "COMMAND"}},
		{[]string{"%", "run", "--store", w.store, "--", "touch", "started"}, []string{"--name"}},
		{[]string{"%", "rnu", "--name=job", "--", "touch", "started"}, []string{"rnu"}},
		{[]string{"%", "--bogus"}, []string{"--bogus"}},
		{[]string{"%", "ls", "--bogus"}, []string{"--bogus"}},
	}
	if !leased() { // nothing is leased there
		for _, flag := range []string{"--ttl=30s", "--on-lost=warn", "--show-args"} {
			table = append(table, usage{cmd(flag), []string{"--ttl", "--on-lost", "--show-args"}})
		}
	} else {
		table = append(table, usage{cmd("--on-lost=panic"), []string{"--on-lost"}}, usage{cmd("--close"), []string{"--close"}}, usage{cmd("-F"), []string{"--exec"}})
	}
	var calls []*call
	for _, u := range table {
		c := w.job(u.args...)
		if len(u.args) > 0 && u.args[0] == "%" {
			c = w.golock(u.args[1:]...)
		}
		calls = append(calls, c)
	}
	results := runAll(calls)
	for i, u := range table {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Logf("%.200q", u.args)
			results[i].complaint(t, 64, u.names...)
		})
	}
	if exists(w.path("started")) {
		t.Error("a command was started")
	}
	if list := w.ls(); len(list) > 0 {
		t.Errorf("something was queued: %v", list)
	}
	// Who comes from another tool is told what is called how here.
	r := w.job("--timeout=5", "--", "touch", "started").run()
	for _, word := range []string{"--wait", "--time-limit"} {
		if !strings.Contains(r.stderr, word) {
			t.Errorf("--timeout: stderr is %q, want it to name %s", r.stderr, word)
		}
	}
}

func TestWrongEnvironmentIs78(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	table := []string{
		"GOLOCK_MAX=0", "GOLOCK_MAX=-1", "GOLOCK_MAX=x", "GOLOCK_MAX=1.5",
		"GOLOCK_WAIT=x", "GOLOCK_WAIT=-1",
		"GOLOCK_CONFLICT_EXIT_CODE=256", "GOLOCK_CONFLICT_EXIT_CODE=-1", "GOLOCK_CONFLICT_EXIT_CODE=x",
		"GOLOCK_TIME_LIMIT=x", "GOLOCK_TIME_LIMIT=-1",
		"GOLOCK_KILL_AFTER=x", "GOLOCK_KILL_AFTER=-1",
		"GOLOCK_LOG_FORMAT=xml",
		"GOLOCK_STORE=nonsense://x",
		"GOLOCK_NAME=a\nb", "GOLOCK_NAME=\xff", "GOLOCK_NAME=" + strings.Repeat("n", 256),
		"GOLOCK_CONFIG=" + w.path("no-such-file.toml"),
	}
	var calls []*call
	for _, setting := range table {
		name, _, _ := strings.Cut(setting, "=")
		args := []string{"run"}
		if name != "GOLOCK_STORE" {
			args = append(args, "--store", w.store)
		}
		if name != "GOLOCK_NAME" {
			args = append(args, "--name", "job")
		}
		calls = append(calls, w.golock(append(args, "--", "touch", "started")...).setenv(setting))
	}
	results := runAll(calls)
	for i, setting := range table {
		name, _, _ := strings.Cut(setting, "=")
		t.Run(fmt.Sprint(i, "_", name), func(t *testing.T) {
			t.Logf("%.100q", setting)
			if name == "GOLOCK_CONFIG" { // the file's name is as good
				results[i].complaint(t, 78, name, "no-such-file.toml")
				return
			}
			results[i].complaint(t, 78, name)
		})
	}
	if exists(w.path("started")) {
		t.Error("a command was started")
	}
}

// Empty variables count as unset, and one without a meaning here is ignored.
func TestHarmlessEnvironment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, env := range [][]string{
		{
			"GOLOCK_NAME=", "GOLOCK_STORE=", "GOLOCK_MAX=", "GOLOCK_WAIT=", "GOLOCK_CONFLICT_EXIT_CODE=", "GOLOCK_HOLD=", "GOLOCK_TIME_LIMIT=",
			"GOLOCK_KILL_AFTER=", "GOLOCK_TTL=", "GOLOCK_ON_LOST=", "GOLOCK_REPORT=", "GOLOCK_LOG_FORMAT=", "GOLOCK_CONFIG=",
		},
		{"GOLOCK_TTL=30s", "GOLOCK_ON_LOST=stop"},
		{"GOLOCK_MAX=3", "GOLOCK_NAME=other", "GOLOCK_STORE=redis://127.0.0.1:1"},
	} {
		if r := w.job("--max=1", "--", "sh", "-c", "exit 3").setenv(env...).run(); r.code != 3 || r.stderr != "" {
			t.Errorf("%q: %v, want 3 and silence", env, r)
		}
	}
	// The environment is enough.
	r := w.golock("run", "--", "sh", "-c", `echo "$GOLOCK_LOCK_NAME"; exit 4`).setenv("GOLOCK_NAME=job", "GOLOCK_STORE="+w.store).run()
	if r.code != 4 || r.stdout != "job\n" {
		t.Errorf("all from the environment: %v", r)
	}
}
