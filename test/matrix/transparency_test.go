//go:build integration

// Pins that the command cannot tell golock from its caller: arguments, the
// descriptors themselves, directory, umask, limits, environment, ignored
// signals and priority arrive unchanged; what golock adds are seven variables
// and, numbered from 100, its lock. Also that nothing that can be wrong with
// golock's stderr costs the command's code or the slot.

package matrix_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

func TestArguments(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	for _, args := range [][]string{
		{},
		{""},
		{"", "", "x", ""},
		{"\xff\xfe", "a\x80b", "\xc3\x28", "ä", "\ufffd"},
		{"\n", "a\nb", "\t", "\x01", "\x7f", " a  b "},
		{"--", "-n", "--", "--name=x", "--bogus", "-"},
		{"$HOME", "*", "`x`", `\`, `"`, "'", "~", "%s", "a,b", "a=b", "@file"},
		{strings.Repeat("long", 25_000), strings.Repeat("\xff", 100_000)},
	} {
		r := s.Job(append([]string{"--", self, "@args"}, args...)...).Run()
		var got [][]byte
		if err := json.Unmarshal([]byte(r.Stdout), &got); r.Code != 0 || err != nil {
			t.Fatalf("%.100q: %v", args, r)
		}
		if !slices.EqualFunc(args, got, func(a string, b []byte) bool { return a == string(b) }) {
			t.Errorf("the command got %.200q, want %.200q", got, args)
		}
	}
	// Without "--" the first word that is no flag begins the command, also if
	// it looks like nothing a command is called. Its own name is as typed.
	testkit.Must(t, os.Symlink(self, s.Path("\xff b")))
	r := s.Job("./\xff b", "@args", "--name", "-n", "\xfe").Run()
	if want := jsonBytes("--name", "-n", "\xfe"); r.Stdout != want {
		t.Errorf("%v, want stdout %q", r, want)
	}
	for _, command := range [][]string{{"cat", "/proc/self/cmdline"}, {"/bin/cat", "/proc/self/cmdline"}} {
		r := s.Job(command...).Run()
		if want := strings.Join(command, "\x00") + "\x00"; r.Stdout != want {
			t.Errorf("the command line is %q, want %q", r.Stdout, want)
		}
	}
}

func jsonBytes(args ...string) string {
	var raw [][]byte
	for _, a := range args {
		raw = append(raw, []byte(a))
	}
	text, _ := json.Marshal(raw)
	return string(text) + "\n"
}

// Exactly one "--" is golock's.
func TestOneDoubleDashIsGolocks(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	s.Script("--", "#!/bin/sh\necho \"$#\" \"$@\"\n")
	call := s.Job("--", "--", "--", "x").Setenv("PATH=" + s.Dir + ":/usr/bin:/bin")
	call.Env = slices.DeleteFunc(call.Env, func(s string) bool { return strings.HasPrefix(s, "PATH=/usr/local") })
	if r := call.Run(); r.Code != 0 || r.Stdout != "2 -- x\n" {
		t.Errorf("%v", r)
	}
}

// descriptors lists the open descriptors of the shell that runs it, as
// "NUMBER LINK", one a line.
const descriptors = `for f in /proc/$$/fd/*; do l=$(readlink $f) && echo "${f##*/} $l"; done`

func parseDescriptors(t *testing.T, text string) map[int]string {
	t.Helper()
	list := map[int]string{}
	for line := range strings.Lines(text) {
		number, link, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		fd, err := strconv.Atoi(number)
		if err != nil {
			t.Fatalf("descriptors %q", text)
		}
		if !strings.HasPrefix(link, "pipe:") { // the substitution's own; the caller has opened none
			list[fd] = link
		}
	}
	return list
}

// The same caller, with low and high descriptors open, runs the listing itself
// and through golock.
func TestDescriptors(t *testing.T) {
	t.Parallel()
	const caller = `exec 3<in 4>out 5>>out 7<>in 9<. 100<in 101>out 102<in 103<in 104<in 105<in 106<in 107<in 108<in 109<in 110<in 255<in 6>&- 8>&-`
	for _, c := range []struct {
		flags []string
		lock  bool // the lock's descriptor is handed on
	}{
		{nil, true}, {[]string{"--max=3"}, true}, {[]string{"--tree"}, true}, {[]string{"--exec"}, true},
		{[]string{"--close"}, false},
	} {
		if leased() {
			c.lock = false
		}
		if len(supported(c.flags)) == 0 {
			continue
		}
		s := newSandbox(t)
		testkit.Must(t, os.WriteFile(s.Path("in"), nil, 0o600))
		out, err := os.Create(s.Path("list"))
		testkit.Must(t, err)
		defer out.Close()
		list := func(c *testkit.Command) map[int]string {
			testkit.Must(t, out.Truncate(0))
			_, err := out.Seek(0, io.SeekStart)
			testkit.Must(t, err)
			c.Stdin, c.Stdout, c.Stderr = out, out, out
			r := c.Sh(caller).Run()
			text, err := os.ReadFile(out.Name())
			testkit.Must(t, err)
			if r.Code != 0 {
				t.Fatalf("%v, output %q", r, text)
			}
			return parseDescriptors(t, string(text))
		}
		want := list(s.Exec("sh", "-c", descriptors))
		got := list(s.Job(append(c.flags, "--", "sh", "-c", descriptors)...))
		if want[0] != out.Name() || want[110] != s.Path("in") {
			t.Fatalf("the caller has %v", want)
		}
		added := 0
		for fd, link := range got {
			switch theirs, ok := want[fd]; {
			case ok && theirs != link:
				t.Errorf("%q: descriptor %d is %s, want %s", c.flags, fd, link, theirs)
			case !ok && (fd < 60 || fd > 63):
				t.Errorf("%q: descriptor %d is %s, want it closed", c.flags, fd, link)
			case !ok && !strings.HasPrefix(link, strings.TrimPrefix(s.Store, "local://")):
				t.Errorf("%q: descriptor %d is %s, which is not in the store", c.flags, fd, link)
			case !ok:
				added++
			}
		}
		for fd, link := range want {
			if _, ok := got[fd]; !ok {
				t.Errorf("%q: descriptor %d, %s, is closed", c.flags, fd, link)
			}
		}
		if c.lock != (added > 0) {
			t.Errorf("%q: %d descriptors of the store: %v", c.flags, added, got)
		}
	}
}

// Neither golock, nor the guard of the command, nor the command has a table of
// descriptors larger than that of every process. (A new one has room for 64, or
// for those that the caller has open: none but the standard ones here.)
func TestDescriptorTable(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	const sizes = `pid=$$; while test "$pid" != "$1"; do
		sed -n 's/^FDSize:.//p' /proc/$pid/status; pid=$(sed -n 's/^PPid:.//p' /proc/$pid/status)
	done`
	want := "64\n64\n"
	if leased() {
		want += "64\n"
	}
	const caller = `for f in /proc/$$/fd/*; do f=${f##*/}; test $f -lt 3 || eval "exec $f>&-"; done; "$@" $$; :`
	r := s.Job("--", "sh", "-c", sizes, "sh").By("bash", "-c", caller, "bash").Run()
	if r.Code != 0 || r.Stdout != want {
		t.Errorf("%v, want %q", r, want)
	}
}

// Standard input and output are the caller's open files, not copies made
// with pipes: position and flags are shared.
func TestStandardDescriptorsAreTheCallers(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	testkit.Must(t, os.WriteFile(s.Path("in"), []byte("one\ntwo\nthree\n"), 0o600))
	in, err := os.Open(s.Path("in"))
	testkit.Must(t, err)
	defer in.Close()
	out, err := os.Create(s.Path("out"))
	testkit.Must(t, err)
	defer out.Close()
	_, err = out.WriteString("before\n")
	testkit.Must(t, err)
	call := s.Job("--", "sh", "-c", "read a; read b; echo $a $b; echo error >&2")
	call.Stdin, call.Stdout, call.Stderr = in, out, out
	if r := call.Run(); r.Code != 0 {
		t.Fatal(r)
	}
	_, err = out.WriteString("after\n")
	testkit.Must(t, err)
	text, err := os.ReadFile(out.Name())
	testkit.Must(t, err)
	if want := "before\none two\nerror\nafter\n"; string(text) != want {
		t.Errorf("the output is %q, want %q", text, want)
	}
	rest, err := io.ReadAll(in)
	testkit.Must(t, err)
	if string(rest) != "three\n" {
		t.Errorf("the rest of the input is %q", rest)
	}

	// Pipes stay blocking or not, as they were.
	for _, nonblock := range []bool{false, true} {
		// os/exec makes what it hands on blocking, so the shell's own
		// descriptors are set by a program in between.
		script := `import fcntl, os, sys
fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) & ~os.O_NONBLOCK | (os.O_NONBLOCK if sys.argv[1] == "true" else 0))
code = os.spawnvp(os.P_WAIT, sys.argv[2], sys.argv[2:])
sys.exit(0 if code == 0 and bool(fcntl.fcntl(0, fcntl.F_GETFL) & os.O_NONBLOCK) == (sys.argv[1] == "true") else 1)`
		r, pw, err := os.Pipe()
		testkit.Must(t, err)
		call := s.Job("--", "true").By("python3", "-c", script, strconv.FormatBool(nonblock))
		call.Stdin = r
		if r := call.Run(); r.Code != 0 {
			t.Errorf("O_NONBLOCK was %v and is not any more: %v", nonblock, r)
		}
		r.Close()
		pw.Close()
	}
}

// A byte written by the command is there when golock is gone, and the reader
// of a pipe sees its end when the command has gone.
func TestOutputIsComplete(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	for range 5 {
		r := s.Job("--", "sh", "-c", "head -c 108000 /dev/zero; echo end >&2").Run()
		if len(r.Stdout) != 108000 || r.Stderr != "end\n" {
			t.Fatalf("%d bytes, stderr %q", len(r.Stdout), r.Stderr)
		}
	}
	in, feed, err := os.Pipe()
	testkit.Must(t, err)
	out, drain, err := os.Pipe()
	testkit.Must(t, err)
	call := s.Job("--", "cat")
	call.Stdin, call.Stdout = in, drain
	p := call.Start()
	in.Close()
	drain.Close()
	_, err = feed.WriteString("through\n")
	testkit.Must(t, err)
	feed.Close()
	testkit.Must(t, out.SetReadDeadline(time.Now().Add(testkit.Patience)))
	text, err := io.ReadAll(out)
	testkit.Must(t, err)
	if string(text) != "through\n" {
		t.Errorf("cat wrote %q", text)
	}
	p.Expects(0)
}

// status is /proc/self/status, of which everything that a caller can set and
// a command can notice is compared with and without golock.
func TestProcessAttributes(t *testing.T) {
	t.Parallel()
	fields := regexp.MustCompile(`(?m)^(Umask|Uid|Gid|Groups|SigBlk|SigIgn|SigCgt|Cap\w+|NoNewPrivs|Seccomp|Speculation_\w+|Cpus_allowed|Mems_allowed|THP_enabled|untag_mask|x86_Thread_features):.*$`)
	const look = `cat /proc/self/status /proc/self/limits; nice; ionice -p $$
cat /proc/$$/oom_score_adj /proc/$$/timerslack_ns`
	pick := func(r testkit.Result) string {
		status, limits, _ := strings.Cut(r.Stdout, "Limit  ")
		return strings.Join(fields.FindAllString(status, -1), "\n") + "\nLimit  " + limits
	}
	for _, caller := range []string{
		":",
		"umask 027; trap '' HUP INT; ulimit -Sn 256; renice -n 5 $$ >/dev/null",
		"umask 0; trap '' INT QUIT; trap - QUIT; ulimit -n 300", // as a background job of sh
		"trap '' HUP; ulimit -Ss 4096; ulimit -St 1000; ulimit -Su 5000; ulimit -Sc 0; ulimit -Sl 64",
	} {
		s := newSandbox(t)
		want := s.Exec("sh", "-c", look).Sh(caller).Run()
		if s := pick(want); want.Code != 0 || !strings.Contains(s, "Max open files") || !strings.Contains(s, "SigIgn") {
			t.Fatalf("%s: without golock %v", caller, want)
		}
		for _, flags := range supported(nil, []string{"--close"}, []string{"--exec"}, []string{"--tree"}) {
			got := s.Job(append(flags, "--", "sh", "-c", look)...).Sh(caller).Run()
			if got.Code != 0 || pick(got) != pick(want) {
				t.Errorf("%s, %q: with golock\n%s\nwithout\n%s", caller, flags, pick(got), pick(want))
			}
		}
	}
}

// What the caller ignores and blocks, the command finds ignored and blocked.
// Exceptions: golock has to hear of its children (CHLD), and the Go runtime keeps
// PROF, STKFLT, 34 and the faults.
func TestIgnoredAndBlockedSignals(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	const caller = `trap '' 1 2 3 6 10 $(seq 12 15) $(seq 18 26) $(seq 28 30) $(seq 35 64); set -- env --block-signal "$@"`
	look := []string{"grep", "Sig[BI]", "/proc/self/status"}
	want := s.Exec(look...).Sh(caller).Run()
	if !strings.Contains(want.Stdout, "SigBlk:\tfffffffe7ffbfeff\nSigIgn:\tfffffffc") {
		t.Fatalf("without golock: %v", want)
	}
	for _, flags := range supported(nil, []string{"--exec"}, []string{"--tree"}) {
		if got := s.Job(append(append(flags, "--"), look...)...).Sh(caller).Run(); got.Code != 0 || got.Stdout != want.Stdout {
			t.Errorf("%q: with golock %v, without %v", flags, got, want)
		}
	}
}

// A command whose caller ignored HUP, as nohup does, lives on when golock is
// told to hang up, and so does golock.
func TestNohup(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	p := s.Job("--", "sh", "-c", "echo ready; read code; exit $code").Sh("trap '' HUP INT").Start()
	p.Expect("ready")
	for range 3 {
		p.Signal(unix.SIGHUP)
		p.Signal(unix.SIGINT)
	}
	s.IsTaken()
	p.Tell("4")
	p.Expects(4)

	// Nor does it give up its place in the queue.
	holder := s.Holder()
	waiter := s.Job("--", "echo", "done").Sh("trap '' HUP INT").Start()
	s.AwaitWaiters(waiter.PID)
	waiter.Signal(unix.SIGHUP)
	waiter.Signal(unix.SIGINT)
	s.AwaitWaiters(waiter.PID)
	holder.Finish()
	waiter.Expect("done")
	waiter.Expects(0)
}

func TestWorkingDirectory(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	testkit.Must(t, os.Mkdir(s.Path("a b"), 0o755))
	testkit.Must(t, os.Symlink("a b", s.Path("link")))
	testkit.Must(t, os.Mkdir(s.Path("gone"), 0o755))
	for _, c := range []struct{ cd, want string }{
		{"cd 'a b'", s.Path("a b") + "\n" + s.Path("a b") + "\n"},
		{"cd link", s.Path("a b") + "\n" + s.Path("link") + "\n"},
	} {
		r := s.Job("--", "sh", "-c", `readlink /proc/$$/cwd; echo "$PWD"`).Sh(c.cd).Run()
		if r.Code != 0 || r.Stdout != c.want {
			t.Errorf("after %q: %v, want stdout %q", c.cd, r, c.want)
		}
	}
}

// ownVariables are what golock adds for the command.
var ownVariables = []string{
	"GOLOCK_ID", "GOLOCK_SLOT", "GOLOCK_SLOTS", "GOLOCK_FENCE", "GOLOCK_LOCK_NAME", "GOLOCK_LOCK_STORE", "GOLOCK_HELD",
}

// environment runs a job that shows its environment, split into golock's
// variables and the rest.
func environment(t *testing.T, c *testkit.Command) (own map[string]string, rest []string) {
	t.Helper()
	r := c.Run()
	if r.Code != 0 || !strings.HasSuffix(r.Stdout, "\x00") {
		t.Fatal(r)
	}
	own = map[string]string{}
	for _, v := range strings.Split(strings.TrimSuffix(r.Stdout, "\x00"), "\x00") {
		key, value, _ := strings.Cut(v, "=")
		if !slices.Contains(ownVariables, key) {
			rest = append(rest, v)
		} else if _, twice := own[key]; twice {
			t.Errorf("%s is there twice", key)
		} else {
			own[key] = value
		}
	}
	return own, rest
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	show := []string{"--", "cat", "/proc/self/environ"}
	var fence int64
	var ids []string
	for _, flags := range supported(nil, []string{"--tree"}, []string{"--exec"}, []string{"--close"}) {
		c := s.Job(append(flags, show...)...).Setenv(
			"EMPTY=", "SPACE= a  b ", "LINE=a\nb", "BYTES=\xff\xfe\x80", "=odd", "EQUALS=a=b=c", "NOEQUALS",
			"GOLOCK_MAX=1", "GOLOCK_WAIT=60", "GOLOCK_TIME_LIMIT=60", "GOLOCK_TTL=40s", "GOLOCKX=y", "LONG="+strings.Repeat("x", 100_000))
		own, rest := environment(t, c)
		want := slices.Clone(c.Env)
		slices.Sort(want)
		slices.Sort(rest)
		if !slices.Equal(rest, want) {
			t.Errorf("%q: the environment is %.2000q, want %.2000q", flags, rest, want)
		}
		store := strings.Replace(s.Store, ":"+sqltest.Password+"@", "@", 1) // without the password, if it has one
		for key, value := range map[string]string{"GOLOCK_SLOT": "0", "GOLOCK_SLOTS": "0", "GOLOCK_LOCK_NAME": "job", "GOLOCK_LOCK_STORE": store, "GOLOCK_HELD": own["GOLOCK_ID"]} {
			if own[key] != value {
				t.Errorf("%q: %s is %q, want %q", flags, key, own[key], value)
			}
		}
		f, err := strconv.ParseInt(own["GOLOCK_FENCE"], 10, 64)
		if err != nil || f <= fence {
			t.Errorf("%q: GOLOCK_FENCE is %q after %d", flags, own["GOLOCK_FENCE"], fence)
		}
		fence = f
		if id := own["GOLOCK_ID"]; len(id) < 32 || slices.Contains(ids, id) {
			t.Errorf("%q: GOLOCK_ID is %q after %q", flags, id, ids)
		} else {
			ids = append(ids, id)
		}
	}

	twice := s.Job("--", "grep", "-ao", "TWICE=[12]", "/proc/self/environ").By(self, "@twice").Run()
	if twice.Stdout != "TWICE=1\nTWICE=2\n" {
		t.Errorf("a variable that is there twice: %v", twice)
	}

	// What an enclosing run, or anybody, left in those seven is replaced.
	var stale []string
	for _, key := range ownVariables[:6] {
		stale = append(stale, key+"=stale")
	}
	own, _ := environment(t, s.Job(append([]string{"--max=3", "--weight=2"}, show...)...).Setenv(stale...))
	if own["GOLOCK_SLOT"] != "0" || own["GOLOCK_SLOTS"] != "0,1" {
		t.Errorf("with two units: %q", own)
	}
	for key, value := range own {
		if strings.Contains(value, "stale") {
			t.Errorf("%s is still %q", key, value)
		}
	}
}

// The lowest free numbers, each held by one at a time.
func TestSlotNumbers(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	begin := func(weight int) (*testkit.Process, string) {
		p := s.Job("--max=4", fmt.Sprint("--weight=", weight), "--", "sh", "-c", `echo "$GOLOCK_SLOT $GOLOCK_SLOTS"; read code`).Start()
		return p, p.Line()
	}
	a, first := begin(1)
	b, second := begin(2)
	c, third := begin(1)
	if first != "0 0" || second != "1 1,2" || third != "3 3" {
		t.Errorf("slots %q, %q, %q", first, second, third)
	}
	b.In.Close()
	b.Wait()
	d, fourth := begin(1)
	a.In.Close()
	a.Wait()
	e, fifth := begin(2)
	if fourth != "1 1" || fifth != "0 0,2" {
		t.Errorf("slots %q, %q", fourth, fifth)
	}
	for _, p := range []*testkit.Process{c, d, e} {
		p.In.Close()
		p.Wait()
	}
}

// Neither the command nor what golock starts for itself stays as a zombie of
// anybody while golock runs.
func TestNoZombies(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	p := s.Job("--", "sh", "-c", "(exit 3) & (exit 4) & wait; echo ready; read code; exit $code").Start()
	p.Expect("ready")
	for _, pid := range testkit.Children(p.PID) {
		if !testkit.Alive(pid) {
			t.Errorf("zombie %d", pid)
		}
	}
	p.Tell("5")
	p.Expects(5)
	s.NoneNow()
}

// badStderr are the ways in which a stderr can fail, each applied to a call.
func badStderr(t *testing.T) map[string]func(*testkit.Command) {
	return map[string]func(*testkit.Command){
		"closed":     func(c *testkit.Command) { *c = *c.Sh("exec 2>&-") },
		"all closed": func(c *testkit.Command) { *c = *c.Sh("exec <&- >&- 2>&-") },
		"broken pipe": func(c *testkit.Command) {
			r, pw, err := os.Pipe()
			testkit.Must(t, err)
			r.Close()
			t.Cleanup(func() { pw.Close() })
			c.Stderr = pw
		},
		"full pipe": func(c *testkit.Command) {
			var ends [2]int
			testkit.Must(t, unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK))
			for _, size := range []int{4096, 1} {
				for {
					if _, err := unix.Write(ends[1], bytes.Repeat([]byte("x"), size)); err == unix.EAGAIN {
						break
					}
				}
			}
			testkit.Must(t, unix.SetNonblock(ends[1], false))
			r, pw := os.NewFile(uintptr(ends[0]), "r"), os.NewFile(uintptr(ends[1]), "w")
			t.Cleanup(func() { r.Close(); pw.Close() })
			c.Stderr = pw
		},
		"full disk": func(c *testkit.Command) {
			f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
			testkit.Must(t, err)
			t.Cleanup(func() { f.Close() })
			c.Stderr = f
		},
	}
}

func TestBadStderr(t *testing.T) {
	t.Parallel()
	for what, spoil := range badStderr(t) {
		t.Run(strings.ReplaceAll(what, " ", "_"), func(t *testing.T) {
			t.Parallel()
			for _, verbose := range [][]string{nil, {"-v", "--log-format=json"}} {
				s := newSandbox(t)
				run := func(args ...string) testkit.Result {
					c := s.Job(append(slices.Clone(verbose), args...)...)
					spoil(c)
					return c.Run()
				}
				// The command's own code.
				run("--", "sh", "-c", "exit 7").Expect(t, 7)
				s.IsFree()
				run("--", "sh", "-c", "kill -KILL $$").Expect(t, 137)
				s.IsFree()
				// golock has something to say.
				run("--", "golock-no-such-program").Expect(t, 127)
				s.IsFree()
				run("--bogus", "--", "true").Expect(t, 64)
				run("--time-limit=0.1", "--", "sleep", "1000").Expect(t, 124)
				s.IsFree()
				holder := s.Holder()
				run("-n", "--", "true").Expect(t, 75)
				run("--wait=1", "--", "true").Expect(t, 75)
				// It waits for its turn.
				c := s.Job(append(slices.Clone(verbose), "--", "sh", "-c", "exit 8")...)
				spoil(c)
				waiter := c.Start()
				s.AwaitWaiters(waiter.PID)
				holder.Finish()
				waiter.Expects(8)
				s.IsFree()
				s.NoneNow()
			}
		})
	}
}

// While its stderr is a pipe that nobody reads golock still passes signals on.
func TestSignalsWithFullStderr(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	c := s.Job("-v", "--", self, "@signals", "parent")
	badStderr(t)["full pipe"](c)
	p := c.Start()
	p.ExpectPID("parent ready")
	for range 3 {
		p.Signal(unix.SIGTERM)
		p.Expect("parent 15")
	}
	p.Tell("exit 6")
	p.Expects(6)
	s.IsFree()
}

// golock prints on stderr only, and on success nothing unless asked.
func TestSilence(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	r := s.Job("--", "true").Run()
	if r.Code != 0 || r.Stdout+r.Stderr != "" {
		t.Errorf("%v, want silence", r)
	}
	r = s.Job("-v", "--", "echo", "out").Run()
	if r.Code != 0 || r.Stdout != "out\n" || r.Stderr == "" {
		t.Errorf("%v, want only the command on stdout and steps on stderr", r)
	}
	for line := range strings.Lines(r.Stderr) {
		if !strings.HasPrefix(line, "golock: ") {
			t.Errorf("-v wrote %q", line)
		}
	}
	r = s.Job("-v", "--log-format=json", "--", "true").Run()
	for line := range strings.Lines(r.Stderr) {
		if !json.Valid([]byte(strings.TrimPrefix(line, "golock: "))) {
			t.Errorf("--log-format json wrote %q", line)
		}
	}
}
