//go:build integration

package hostile_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"golock/test/testkit"
)

// A store's password does not show in messages about mistakes, after crashes, and in the processes
// that golock starts beside a command.

const secret = "pass-S3CRET"

func shows(t *testing.T, what, text string) {
	t.Helper()
	if strings.Contains(text, "S3CRET") {
		t.Errorf("%s: it shows the password: %.500s", what, text)
	}
}

// A URL with a password in it is easily put where something else belongs.
func TestPasswordInTheWrongPlace(t *testing.T) {
	t.Parallel()
	s := testkit.New(t, "")
	url := "redis://job:" + secret + "@127.0.0.1:1/0"
	path := testkit.Place(t, 0o755) + "/config.toml"
	for _, text := range []string{
		"store = \"" + url, "store = " + url, "store = '" + url + "' x", "store = [\"" + url + "\"]", url, "\"" + url + "\" = 1", "\"" + url + "\"",
		"store = \"" + url + "\\q\"", "store = \"\"\"" + url, "max = \"" + url + "\"", "wait = \"" + url + "\"", "ok-exit = [\"" + url + "\"]", "signal = \"" + url + "\"",
		"replace = \"" + url + "\"", "on-lost = \"" + url + "\"", "log-format = \"" + url + "\"", "rewrite = \"" + url + "\"", "report = \"" + url + "\"",
		"store = \"" + url + "\x01\"", "[" + url + "]", "[lock.\"" + url + "\"]\nstore = 1", "store = \"x\"\nstore = \"" + url + "\"",
	} {
		for head, format := range map[string]string{"[defaults]\n": "text", "": "json"} {
			testkit.Must(t, os.WriteFile(path, []byte(head+text+"\n"), 0o600))
			r := as(s, 0, "run", "--config", path, "--log-format", format, "-v", "-w", "0.1", "--name", "x", "--", "true")
			judge(t, text, r)
			shows(t, text, r.Stdout+r.Stderr)
		}
	}
	store := "mkdir://" + testkit.Place(t, 0o777)
	for name := range strings.FieldsSeq("MAX WAIT CONFLICT_EXIT_CODE HOLD TIME_LIMIT KILL_AFTER TTL ON_LOST REPORT LOG_FORMAT CONFIG NAME") {
		args := []string{"run", "--store", store, "-n"}
		if name != "NAME" {
			args = append(args, "--name", "x")
		}
		r := s.Golock(append(args, "--", "true")...).Setenv("GOLOCK_" + name + "=" + url).Run()
		shows(t, name, r.Stdout+r.Stderr)
	}
	for _, args := range [][]string{
		{"run", url}, {"run", "--" + url}, {"run", "--name", "x", "--max", url, "--", "true"}, {"run", "--name", "x", "--signal", url, "--", "true"}, {url}, {"ls", "--store", "x" + url},
		{"run", "--name", "x", "-n", "--store=redis" + url, "--", "true"}, {"held", "--id", url}, {"break", "--id", url}, {"acquire", "--name", "x", "--for", url},
		{"run", "--name", "x", "-n", "--store", "redis+sentinel://127.0.0.1:1/m?sentinel-user=u&sentinel-password=" + secret, "--", "true"},
		{"doctor", "--ttl", url}, {"check", "--max", url}, {"clean", "--older-than", url}, {"completion", url}, {"report", url}, {"ls", "--interval", url, "--watch"},
	} {
		r := as(s, victim, args...)
		shows(t, fmt.Sprint(args), r.Stdout+r.Stderr)
		if r.Code == 0 {
			t.Errorf("%v went well", args)
		}
	}
}

// A golock that dies of a fault, or is made to, leaves no core and says nothing
// of what it knew.
func TestCrashShowsNoPassword(t *testing.T) {
	t.Parallel()
	s := testkit.New(t, "")
	server := secretServer(t)
	url := "redis://job:" + secret + "@" + server.Addr() + "?quarantine=0s"
	dir := testkit.Place(t, 0o777) // for cores
	crash := func(who string, sig syscall.Signal) {
		t.Helper()
		cmd := s.Golock("run", "--name", fmt.Sprint(who, sig), "--ttl", "3s", "--", "sh", "-c", "ulimit -c 0; echo pid $PPID; exec sleep 20").
			Sh("ulimit -c unlimited").As(victim).Setenv("GOLOCK_STORE=" + url)
		cmd.Dir = dir
		p := cmd.Start()
		pid := p.ExpectPID("pid")
		if who == "golock" {
			pid = p.PID
		}
		s.MustSignal(pid, sig)
		shows(t, fmt.Sprint(sig, " to ", who), p.Wait().Stderr)
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%v to %s: %v is left", sig, who, left)
		}
	}
	for _, sig := range []syscall.Signal{unix.SIGSEGV, unix.SIGBUS, unix.SIGILL, unix.SIGTRAP, unix.SIGABRT, unix.SIGQUIT} {
		crash("golock", sig)
	}
	crash("guard", unix.SIGSEGV)
}

// No process that golock starts has the password in its arguments, or in its
// environment if the user has not put it there: not the keeper of a slot, not
// the runs of a check.
func TestProcessesShowNoPassword(t *testing.T) {
	t.Parallel()
	s := testkit.New(t, "")
	server := secretServer(t)
	path := testkit.Place(t, 0o755) + "/config.toml"
	testkit.Must(t, os.WriteFile(path, fmt.Appendf(nil, "[defaults]\nstore = \"redis://job:%s@%s?quarantine=0s\"\n", secret, server.Addr()), 0o600))
	testkit.Must(t, os.Chown(path, victim, victim))
	settle := func(what string, r testkit.Result) {
		t.Helper()
		says(t, what, r, 0)
		shows(t, what, r.Stdout+r.Stderr)
	}

	r := as(s, victim, "acquire", "--config", path, "--name", "kept", "--for", fmt.Sprint(s.Exec("sleep", "1000").As(victim).Begin().PID))
	settle("acquire", r)
	id := strings.TrimSpace(r.Stdout)
	if all := processes(s); !strings.Contains(all, "golock-holder") {
		t.Errorf("the keeper is not to be seen: %s", all)
	} else {
		shows(t, "a keeper", all)
	}
	for _, args := range [][]string{{"held", "--id", id}, {"renew", id}, {"ls", "--json"}, {"release", id}, {"clean"}} {
		settle(args[0], as(s, victim, append([]string{args[0], "--config", path}, args[1:]...)...))
	}
	r = as(s, victim, "doctor", "--json", "--config", path)
	shows(t, "doctor", r.Stdout+r.Stderr)

	checks := command(s, victim, "check", "--config", path, "--loops", "60", "--json").Begin()
	seen := false
	for checks.Running() {
		all := processes(s)
		seen = seen || strings.Contains(all, "golock-check-")
		shows(t, "a check", all)
	}
	settle("check", checks.Wait())
	if !seen {
		t.Error("the runs of a check are not to be seen")
	}
}

// processes are arguments and environments of all that runs in a sandbox.
func processes(s *testkit.Sandbox) string {
	var b strings.Builder
	for _, pid := range s.Living() {
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		fmt.Fprintf(&b, "%q %q\n", args, environ)
	}
	return b.String()
}
