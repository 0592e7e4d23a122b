//go:build integration

// The command cannot tell golock from its caller: directory, umask, limits,
// environment, ignored signals and priority arrive unchanged. (Arguments and descriptors
// are in testdata.)

package matrix_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"golock/test/testkit"
)

// status is /proc/self/status, of which everything that a caller can set and
// a command can notice is compared with and without golock. Each caller meets the usual start and one of
// the others (starts), in the deep run all.
func TestProcessAttributes(t *testing.T) {
	t.Parallel()
	fields := regexp.MustCompile(`(?m)^(Umask|Uid|Gid|Groups|SigBlk|SigIgn|SigCgt|Cap\w+|NoNewPrivs|Seccomp|Speculation_\w+|Cpus_allowed|Mems_allowed|THP_enabled|untag_mask|x86_Thread_features):.*$`)
	const look = `cat /proc/self/status /proc/self/limits; nice; ionice -p $$
cat /proc/$$/oom_score_adj /proc/$$/timerslack_ns; readlink /proc/$$/cwd; echo "$PWD"`
	pick := func(r testkit.Result) string {
		status, limits, _ := strings.Cut(r.Stdout, "Limit  ")
		return strings.Join(fields.FindAllString(status, -1), "\n") + "\nLimit  " + limits
	}
	for i, caller := range []string{
		":",
		"umask 027; trap '' HUP INT; ulimit -Sn 256; renice -n 5 $$ >/dev/null",
		"mkdir -p 'a b'; ln -sfn 'a b' link; cd link",
		"umask 0; trap '' INT QUIT; trap - QUIT; ulimit -n 300", // as a background job of sh
		"trap '' HUP; ulimit -Ss 4096; ulimit -St 1000; ulimit -Su 5000; ulimit -Sc 0; ulimit -Sl 64",
	} {
		s := newSandbox(t)
		want := s.Exec("sh", "-c", look).Sh(caller).Run()
		if s := pick(want); want.Code != 0 || !strings.Contains(s, "Max open files") || !strings.Contains(s, "SigIgn") {
			t.Fatalf("%s: without golock %v", caller, want)
		}
		for _, flags := range someStarts(i) {
			got := s.Job(append(flags, "--", "sh", "-c", look)...).Sh(caller).Run()
			if got.Code != 0 || pick(got) != pick(want) {
				t.Errorf("%s, %q: with golock\n%s\nwithout\n%s", caller, flags, pick(got), pick(want))
			}
		}
	}
}

// What the caller ignores and blocks, the command finds ignored and blocked: all signals but KILL,
// STOP and the two with which a shell can do neither.
func TestIgnoredAndBlockedSignals(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	look := []string{"sed", "-n", "/Sig[BI]/p", "/proc/self/status"}
	const all = "fffffffe7ffbfeff"
	for i, tt := range []struct{ caller, blocked, ignored string }{
		{`set -- env --default-signal --ignore-signal "$@"`, "0000000000000000", all},
		{`set -- env --default-signal --block-signal "$@"`, all, "0000000000000000"},
		{`set -- env --default-signal --ignore-signal --block-signal "$@"`, all, all},
		{`set -- env --default-signal --ignore-signal=CHLD,SEGV,40 "$@"`, "0000000000000000", "0000008000010400"},
	} {
		want := s.Exec(look...).Sh(tt.caller).Run()
		if want.Stdout != "SigBlk:\t"+tt.blocked+"\nSigIgn:\t"+tt.ignored+"\n" {
			t.Fatalf("%s: without golock %v", tt.caller, want)
		}
		for _, flags := range someStarts(i) {
			if got := s.Job(append(append(flags, "--"), look...)...).Sh(tt.caller).Run(); got.Code != 0 || got.Stdout != want.Stdout {
				t.Errorf("%s, %q: with golock %v, without %v", tt.caller, flags, got, want)
			}
		}
	}
}

// starts are the flags that change which process starts the command, and how.
func starts() [][]string {
	if leased() {
		return [][]string{nil, {"--tree"}, {"--on-lost", "warn"}}
	}
	return [][]string{nil, {"--tree"}, {"--exec"}, {"--close"}}
}

// someStarts are the usual start, and one of the others for the caller of that number; in the deep run
// all.
func someStarts(caller int) [][]string {
	all := starts()
	if testkit.Deep() {
		return all
	}
	return [][]string{all[0], all[1+caller%(len(all)-1)]}
}

// Of 0, 1 and 2, the command has those closed that the caller had closed: what it writes there fails
// and does not vanish.
func TestClosedDescriptors(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	const look = `for n in 0 1 2; do [ -e /proc/self/fd/$n ] && open="$open $n"; done; echo "$open" 2>/dev/null >list; echo data`
	for i, caller := range []string{":", "exec <&-", "exec >&-", "exec 2>&-", "exec <&- >&-", "exec <&- >&- 2>&-"} {
		run := func(c *testkit.Command) (list string, code int) {
			testkit.Must(t, os.WriteFile(s.Path("list"), nil, 0o600))
			code = c.Sh(caller).Run().Code
			text, err := os.ReadFile(s.Path("list"))
			testkit.Must(t, err)
			return string(text), code
		}
		wantOpen, wantCode := run(s.Exec("bash", "-c", look))
		for _, flags := range someStarts(i) {
			if open, code := run(s.Job(append(flags, "--", "bash", "-c", look)...)); open != wantOpen || code != wantCode {
				t.Errorf("%s, %q: open%q, exit code %d, without golock%q, %d", caller, flags, open, code, wantOpen, wantCode)
			}
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
	holder := s.Hold("job")
	waiter := s.Job("--", "echo", "done").Sh("trap '' HUP INT").Start()
	s.AwaitWaiters(waiter.PID)
	waiter.Signal(unix.SIGHUP)
	waiter.Signal(unix.SIGINT)
	s.AwaitWaiters(waiter.PID)
	holder.Finish()
	waiter.Expect("done")
	waiter.Expects(0)
}

// All variables arrive byte for byte. What golock adds are seven, which replace those of
// an enclosing run.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	own := regexp.MustCompile(`^GOLOCK_(ID|SLOTS?|FENCE|LOCK_NAME|LOCK_STORE|HELD)=`)
	for _, flags := range supported(nil, []string{"--tree"}, []string{"--exec"}, []string{"--close"}) {
		c := s.Job(append(flags, "--", "cat", "/proc/self/environ")...).Setenv(
			"EMPTY=", "SPACE= a  b ", "LINE=a\nb", "BYTES=\xff\xfe\x80", "=odd", "EQUALS=a=b=c", "NOEQUALS", "TWICE=1", "TWICE=2",
			"GOLOCK_MAX=1", "GOLOCK_WAIT=60", "GOLOCK_TIME_LIMIT=60", "GOLOCK_TTL=40s", "GOLOCKX=y", "LONG="+strings.Repeat("x", 100_000),
			"GOLOCK_ID=stale", "GOLOCK_SLOT=stale", "GOLOCK_SLOTS=stale", "GOLOCK_LOCK_NAME=stale", "GOLOCK_LOCK_STORE=stale")
		r := c.Run().Expect(t, 0)
		all := strings.Split(strings.TrimSuffix(r.Stdout, "\x00"), "\x00")
		others := slices.DeleteFunc(slices.Clone(all), own.MatchString)
		want := slices.DeleteFunc(slices.Clone(c.Env), own.MatchString)
		slices.Sort(want)
		slices.Sort(others)
		if !slices.Equal(others, want) {
			t.Errorf("%q: the environment is %.2000q, want %.2000q", flags, others, want)
		}
		if len(all)-len(others) != 7 || strings.Contains(r.Stdout, "stale") {
			t.Errorf("%q: golock's variables in %.2000q", flags, all)
		}
	}
}
