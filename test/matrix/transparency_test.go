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
)

func TestArguments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
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
		r := w.job(append([]string{"--", self, "@args"}, args...)...).run()
		var got [][]byte
		if err := json.Unmarshal([]byte(r.stdout), &got); r.code != 0 || err != nil {
			t.Fatalf("%.100q: %v", args, r)
		}
		if !slices.EqualFunc(args, got, func(a string, b []byte) bool { return a == string(b) }) {
			t.Errorf("the command got %.200q, want %.200q", got, args)
		}
	}
	// Without "--" the first word that is no flag begins the command, also if
	// it looks like nothing a command is called. Its own name is as typed.
	must(t, os.Symlink(self, w.path("\xff b")))
	r := w.job("./\xff b", "@args", "--name", "-n", "\xfe").run()
	if want := jsonBytes("--name", "-n", "\xfe"); r.stdout != want {
		t.Errorf("%v, want stdout %q", r, want)
	}
	for _, command := range [][]string{{"cat", "/proc/self/cmdline"}, {"/bin/cat", "/proc/self/cmdline"}} {
		r := w.job(command...).run()
		if want := strings.Join(command, "\x00") + "\x00"; r.stdout != want {
			t.Errorf("the command line is %q, want %q", r.stdout, want)
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
	w := newWorld(t)
	w.script("--", "#!/bin/sh\necho \"$#\" \"$@\"\n")
	call := w.job("--", "--", "--", "x").setenv("PATH=" + w.dir + ":/usr/bin:/bin")
	call.env = slices.DeleteFunc(call.env, func(s string) bool { return strings.HasPrefix(s, "PATH=/usr/local") })
	if r := call.run(); r.code != 0 || r.stdout != "2 -- x\n" {
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
		{[]string{"--close"}, false}, {[]string{"-o"}, false},
	} {
		if leased() {
			c.lock = false
		}
		if len(supported([][]string{c.flags})) == 0 {
			continue
		}
		w := newWorld(t)
		must(t, os.WriteFile(w.path("in"), nil, 0o600))
		out, err := os.Create(w.path("list"))
		must(t, err)
		defer out.Close()
		list := func(c *call) map[int]string {
			must(t, out.Truncate(0))
			_, err := out.Seek(0, io.SeekStart)
			must(t, err)
			c.stdin, c.stdout, c.stderr = out, out, out
			r := c.sh(caller).run()
			text, err := os.ReadFile(out.Name())
			must(t, err)
			if r.code != 0 {
				t.Fatalf("%v, output %q", r, text)
			}
			return parseDescriptors(t, string(text))
		}
		want := list(w.exec("sh", "-c", descriptors))
		got := list(w.job(append(c.flags, "--", "sh", "-c", descriptors)...))
		if want[0] != out.Name() || want[110] != w.path("in") {
			t.Fatalf("the caller has %v", want)
		}
		added := 0
		for fd, link := range got {
			switch theirs, ok := want[fd]; {
			case ok && theirs != link:
				t.Errorf("%q: descriptor %d is %s, want %s", c.flags, fd, link, theirs)
			case !ok && fd < 100:
				t.Errorf("%q: descriptor %d is %s, want it closed", c.flags, fd, link)
			case !ok && !strings.HasPrefix(link, strings.TrimPrefix(w.store, "local://")):
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

// Standard input and output are the caller's open files, not copies made
// with pipes: position and flags are shared.
func TestStandardDescriptorsAreTheCallers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	must(t, os.WriteFile(w.path("in"), []byte("one\ntwo\nthree\n"), 0o600))
	in, err := os.Open(w.path("in"))
	must(t, err)
	defer in.Close()
	out, err := os.Create(w.path("out"))
	must(t, err)
	defer out.Close()
	_, err = out.WriteString("before\n")
	must(t, err)
	call := w.job("--", "sh", "-c", "read a; read b; echo $a $b; echo error >&2")
	call.stdin, call.stdout, call.stderr = in, out, out
	if r := call.run(); r.code != 0 {
		t.Fatal(r)
	}
	_, err = out.WriteString("after\n")
	must(t, err)
	text, err := os.ReadFile(out.Name())
	must(t, err)
	if want := "before\none two\nerror\nafter\n"; string(text) != want {
		t.Errorf("the output is %q, want %q", text, want)
	}
	rest, err := io.ReadAll(in)
	must(t, err)
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
		must(t, err)
		call := w.job("--", "true").by("python3", "-c", script, strconv.FormatBool(nonblock))
		call.stdin = r
		if r := call.run(); r.code != 0 {
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
	w := newWorld(t)
	for range 20 {
		r := w.job("--", "sh", "-c", "head -c 108000 /dev/zero; echo end >&2").run()
		if len(r.stdout) != 108000 || r.stderr != "end\n" {
			t.Fatalf("%d bytes, stderr %q", len(r.stdout), r.stderr)
		}
	}
	in, feed, err := os.Pipe()
	must(t, err)
	out, drain, err := os.Pipe()
	must(t, err)
	call := w.job("--", "cat")
	call.stdin, call.stdout = in, drain
	p := call.start()
	in.Close()
	drain.Close()
	_, err = feed.WriteString("through\n")
	must(t, err)
	feed.Close()
	must(t, out.SetReadDeadline(time.Now().Add(limit)))
	text, err := io.ReadAll(out)
	must(t, err)
	if string(text) != "through\n" {
		t.Errorf("cat wrote %q", text)
	}
	p.wait().expectCode(t, 0)
}

// status is /proc/self/status, of which everything that a caller can set and
// a command can notice is compared with and without golock.
func TestProcessAttributes(t *testing.T) {
	t.Parallel()
	fields := regexp.MustCompile(`(?m)^(Umask|Uid|Gid|Groups|SigBlk|SigIgn|SigCgt|Cap\w+|NoNewPrivs|Seccomp|Speculation_\w+|Cpus_allowed|Mems_allowed|THP_enabled|untag_mask|x86_Thread_features):.*$`)
	for _, c := range []struct{ what, caller string }{
		{"as it is", ":"},
		{"umask 027", "umask 027"},
		{"umask 0", "umask 0"},
		{"nohup", "trap '' HUP"},
		{"background job of sh", "trap '' INT QUIT; trap - QUIT"},
		{"HUP and INT ignored", "trap '' HUP INT"},
		{"few descriptors", "ulimit -Sn 256"},
		{"fewer descriptors, hard", "ulimit -n 300"},
		{"other limits", "ulimit -Ss 4096; ulimit -St 1000; ulimit -Su 5000; ulimit -Sc 0; ulimit -Sl 64"},
		{"nice", "renice -n 5 $$ >/dev/null"},
	} {
		for _, flags := range supported([][]string{nil, {"--close"}, {"--exec"}, {"--tree"}}) {
			w := newWorld(t)
			const look = `cat /proc/self/status /proc/self/limits; nice; ionice -p $$; cat /proc/$$/oom_score_adj /proc/$$/timerslack_ns`
			want := w.exec("sh", "-c", look).sh(c.caller).run()
			got := w.job(append(flags, "--", "sh", "-c", look)...).sh(c.caller).run()
			pick := func(r result) string {
				status, limits, _ := strings.Cut(r.stdout, "Limit  ")
				return strings.Join(fields.FindAllString(status, -1), "\n") + "\nLimit  " + limits
			}
			if got.code != 0 || want.code != 0 || !strings.Contains(pick(want), "Max open files") || !strings.Contains(pick(want), "SigIgn") {
				t.Fatalf("%s: without golock %v; with golock %v", c.what, want, got)
			}
			if pick(got) != pick(want) {
				t.Errorf("%s, %q: with golock\n%s\nwithout\n%s", c.what, flags, pick(got), pick(want))
			}
		}
	}
}

// A command whose caller ignored HUP, as nohup does, lives on when golock is
// told to hang up, and so does golock.
func TestNohup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.job("--", "sh", "-c", "echo ready; read code; exit $code").sh("trap '' HUP INT").start()
	p.expect("ready")
	for range 3 {
		p.signal(unix.SIGHUP)
		p.signal(unix.SIGINT)
	}
	w.isTaken()
	p.tell("4")
	p.wait().expectCode(t, 4)

	// Nor does it give up its place in the queue.
	holder := w.holder()
	waiter := w.job("--", "echo", "done").sh("trap '' HUP INT").start()
	w.awaitWaiters(waiter.pid)
	waiter.signal(unix.SIGHUP)
	waiter.signal(unix.SIGINT)
	w.awaitWaiters(waiter.pid)
	holder.finish()
	waiter.expect("done")
	waiter.wait().expectCode(t, 0)
}

func TestWorkingDirectory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	must(t, os.Mkdir(w.path("a b"), 0o755))
	must(t, os.Symlink("a b", w.path("link")))
	must(t, os.Mkdir(w.path("gone"), 0o755))
	for _, c := range []struct{ cd, want string }{
		{"cd 'a b'", w.path("a b") + "\n" + w.path("a b") + "\n"},
		{"cd link", w.path("a b") + "\n" + w.path("link") + "\n"},
	} {
		r := w.job("--", "sh", "-c", `readlink /proc/$$/cwd; echo "$PWD"`).sh(c.cd).run()
		if r.code != 0 || r.stdout != c.want {
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
func environment(t *testing.T, c *call) (own map[string]string, rest []string) {
	t.Helper()
	r := c.run()
	if r.code != 0 || !strings.HasSuffix(r.stdout, "\x00") {
		t.Fatal(r)
	}
	own = map[string]string{}
	for _, v := range strings.Split(strings.TrimSuffix(r.stdout, "\x00"), "\x00") {
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
	w := newWorld(t)
	show := []string{"--", "cat", "/proc/self/environ"}
	var fence int64
	var ids []string
	for _, flags := range supported([][]string{nil, {"--tree"}, {"--exec"}, {"--close"}}) {
		c := w.job(append(flags, show...)...).setenv(
			"EMPTY=", "SPACE= a  b ", "LINE=a\nb", "BYTES=\xff\xfe\x80", "=odd", "EQUALS=a=b=c", "NOEQUALS",
			"GOLOCK_MAX=1", "GOLOCK_WAIT=60", "GOLOCK_TIME_LIMIT=60", "GOLOCK_TTL=40s", "GOLOCK_OTHER=x", "GOLOCKX=y", "LONG="+strings.Repeat("x", 100_000))
		own, rest := environment(t, c)
		want := slices.Clone(c.env)
		slices.Sort(want)
		slices.Sort(rest)
		if !slices.Equal(rest, want) {
			t.Errorf("%q: the environment is %.2000q, want %.2000q", flags, rest, want)
		}
		store := strings.Replace(w.store, ":"+sqltest.Password+"@", "@", 1) // without the password, if it has one
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

	// What an enclosing run, or anybody, left in those seven is replaced.
	var stale []string
	for _, key := range ownVariables[:6] {
		stale = append(stale, key+"=stale")
	}
	own, _ := environment(t, w.job(append([]string{"--max=3", "--weight=2"}, show...)...).setenv(stale...))
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
	w := newWorld(t)
	begin := func(weight int) (*proc, string) {
		p := w.job("--max=4", fmt.Sprint("--weight=", weight), "--", "sh", "-c", `echo "$GOLOCK_SLOT $GOLOCK_SLOTS"; read code`).start()
		return p, p.line()
	}
	a, first := begin(1)
	b, second := begin(2)
	c, third := begin(1)
	if first != "0 0" || second != "1 1,2" || third != "3 3" {
		t.Errorf("slots %q, %q, %q", first, second, third)
	}
	b.in.Close()
	b.wait()
	d, fourth := begin(1)
	a.in.Close()
	a.wait()
	e, fifth := begin(2)
	if fourth != "1 1" || fifth != "0 0,2" {
		t.Errorf("slots %q, %q", fourth, fifth)
	}
	for _, p := range []*proc{c, d, e} {
		p.in.Close()
		p.wait()
	}
}

// Neither the command nor what golock starts for itself stays as a zombie of
// anybody while golock runs.
func TestNoZombies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.job("--", "sh", "-c", "(exit 3) & (exit 4) & wait; echo ready; read code; exit $code").start()
	p.expect("ready")
	for _, pid := range children(p.pid) {
		if !alive(pid) {
			t.Errorf("zombie %d", pid)
		}
	}
	p.tell("5")
	p.wait().expectCode(t, 5)
	w.noneNow()
}

// badStderr are the ways in which a stderr can fail, each applied to a call.
func badStderr(t *testing.T) map[string]func(*call) {
	return map[string]func(*call){
		"closed":     func(c *call) { *c = *c.sh("exec 2>&-") },
		"all closed": func(c *call) { *c = *c.sh("exec <&- >&- 2>&-") },
		"broken pipe": func(c *call) {
			r, pw, err := os.Pipe()
			must(t, err)
			r.Close()
			t.Cleanup(func() { pw.Close() })
			c.stderr = pw
		},
		"full pipe": func(c *call) {
			var ends [2]int
			must(t, unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK))
			for _, size := range []int{4096, 1} {
				for {
					if _, err := unix.Write(ends[1], bytes.Repeat([]byte("x"), size)); err == unix.EAGAIN {
						break
					}
				}
			}
			must(t, unix.SetNonblock(ends[1], false))
			r, pw := os.NewFile(uintptr(ends[0]), "r"), os.NewFile(uintptr(ends[1]), "w")
			t.Cleanup(func() { r.Close(); pw.Close() })
			c.stderr = pw
		},
		"full disk": func(c *call) {
			f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
			must(t, err)
			t.Cleanup(func() { f.Close() })
			c.stderr = f
		},
	}
}

func TestBadStderr(t *testing.T) {
	t.Parallel()
	for what, spoil := range badStderr(t) {
		t.Run(strings.ReplaceAll(what, " ", "_"), func(t *testing.T) {
			t.Parallel()
			for _, verbose := range [][]string{nil, {"-v"}, {"-v", "--log-format=json"}} {
				w := newWorld(t)
				run := func(args ...string) result {
					c := w.job(append(slices.Clone(verbose), args...)...)
					spoil(c)
					return c.run()
				}
				// The command's own code.
				run("--", "sh", "-c", "exit 7").expectCode(t, 7)
				w.isFree()
				run("--", "sh", "-c", "kill -KILL $$").expectCode(t, 137)
				w.isFree()
				// golock has something to say.
				run("--", "golock-no-such-program").expectCode(t, 127)
				w.isFree()
				run("--bogus", "--", "true").expectCode(t, 64)
				run("--time-limit=0.1", "--", "sleep", "1000").expectCode(t, 124)
				w.isFree()
				holder := w.holder()
				run("-n", "--", "true").expectCode(t, 75)
				run("--wait="+shortWait(), "--", "true").expectCode(t, 75)
				// It waits for its turn.
				c := w.job(append(slices.Clone(verbose), "--", "sh", "-c", "exit 8")...)
				spoil(c)
				waiter := c.start()
				w.awaitWaiters(waiter.pid)
				holder.finish()
				waiter.wait().expectCode(t, 8)
				w.isFree()
				w.noneNow()
			}
		})
	}
}

// While its stderr is a pipe that nobody reads golock still passes signals on.
func TestSignalsWithFullStderr(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.job("-v", "--", self, "@signals", "parent")
	badStderr(t)["full pipe"](c)
	p := c.start()
	p.expectPID("parent ready")
	for range 3 {
		p.signal(unix.SIGTERM)
		p.expect("parent 15")
	}
	p.tell("exit 6")
	p.wait().expectCode(t, 6)
	w.isFree()
}

// golock prints on stderr only, and on success nothing unless asked.
func TestSilence(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.job("--", "true").run()
	if r.code != 0 || r.stdout+r.stderr != "" {
		t.Errorf("%v, want silence", r)
	}
	r = w.job("-v", "--", "echo", "out").run()
	if r.code != 0 || r.stdout != "out\n" || r.stderr == "" {
		t.Errorf("%v, want only the command on stdout and steps on stderr", r)
	}
	for line := range strings.Lines(r.stderr) {
		if !strings.HasPrefix(line, "golock: ") {
			t.Errorf("-v wrote %q", line)
		}
	}
	r = w.job("-v", "--log-format=json", "--", "true").run()
	for line := range strings.Lines(r.stderr) {
		if !json.Valid([]byte(strings.TrimPrefix(line, "golock: "))) {
			t.Errorf("--log-format json wrote %q", line)
		}
	}
}
