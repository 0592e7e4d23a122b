package hostile_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks/redis/redistest"
)

// This file pins where a store's password does not show, beside what
// test/matrix pins: mistakes in writing it down, crashes, and the processes that
// golock starts beside a command.

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
	url := "redis://job:" + secret + "@127.0.0.1:1/0"
	path := place(t, 0o755) + "/config.toml"
	for _, text := range []string{
		"store = \"" + url, "store = " + url, "store = '" + url + "' x", "store = [\"" + url + "\"]", url, "\"" + url + "\" = 1", "\"" + url + "\"",
		"store = \"" + url + "\\q\"", "store = \"\"\"" + url, "max = \"" + url + "\"", "wait = \"" + url + "\"", "ok-exit = [\"" + url + "\"]", "signal = \"" + url + "\"",
		"replace = \"" + url + "\"", "on-lost = \"" + url + "\"", "log-format = \"" + url + "\"", "rewrite = \"" + url + "\"", "report = \"" + url + "\"",
		"store = \"" + url + "\x01\"", "[" + url + "]", "[lock.\"" + url + "\"]\nstore = 1", "store = \"x\"\nstore = \"" + url + "\"",
	} {
		for _, head := range []string{"[defaults]\n", ""} {
			must(t, os.WriteFile(path, []byte(head+text+"\n"), 0o600))
			for _, format := range []string{"text", "json"} {
				r := as(t, 0, "run", "--config", path, "--log-format", format, "-v", "-w", "0.1", "--name", "x", "--", "true")
				judge(t, text, r)
				shows(t, text, r.out+r.err)
			}
		}
	}
	for _, name := range []string{"MAX", "WAIT", "CONFLICT_EXIT_CODE", "HOLD", "TIME_LIMIT", "KILL_AFTER", "TTL", "ON_LOST", "REPORT", "LOG_FORMAT", "CONFIG", "NAME"} {
		args := []string{golock, "run", "--store", "mkdir://" + place(t, 0o777), "-n"}
		if name != "NAME" {
			args = append(args, "--name", "x")
		}
		cmd := start(0, append(args, "--", "true")...)
		cmd.Env = append(cmd.Env, "GOLOCK_"+name+"="+url)
		r := finish(t, cmd)
		shows(t, name, r.out+r.err)
	}
	for _, args := range [][]string{
		{"run", url}, {"run", "--" + url}, {"run", "--name", "x", "--max", url, "--", "true"}, {"run", "--name", "x", "--signal", url, "--", "true"}, {url}, {"ls", "--store", "x" + url},
		{"run", "--name", "x", "-n", "--store=redis" + url, "--", "true"}, {"held", "--id", url}, {"break", "--id", url}, {"acquire", "--name", "x", "--for", url},
		{"doctor", "--ttl", url}, {"check", "--max", url}, {"clean", "--older-than", url}, {"completion", url}, {"report", url}, {"ls", "--interval", url, "--watch"},
	} {
		r := as(t, victim, args...)
		shows(t, fmt.Sprint(args), r.out+r.err)
		if r.code == 0 {
			t.Errorf("%v went well", args)
		}
	}
}

// A golock that dies of a fault, or is made to, leaves no core and says nothing
// of what it knew.
func TestCrashShowsNoPassword(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Do("ACL", "SETUSER", "job", "on", ">"+secret, "~*", "&*", "+@all")
	url := "redis://job:" + secret + "@" + server.Addr() + "?quarantine=0s"
	for _, sig := range []syscall.Signal{unix.SIGSEGV, unix.SIGBUS, unix.SIGILL, unix.SIGTRAP, unix.SIGABRT, unix.SIGQUIT} {
		for _, who := range []string{"golock", "guard"} {
			if who == "guard" && sig != unix.SIGSEGV {
				continue
			}
			dir := place(t, 0o777)
			cmd := start(victim, "sh", "-c", `ulimit -c unlimited; exec "$0" "$@"`, golock, "run", "--name", fmt.Sprint(who, sig), "--ttl", "3s", "--", "sh", "-c", "ulimit -c 0; echo $PPID; exec sleep 20")
			cmd.Env = append(cmd.Env, "GOLOCK_STORE="+url)
			cmd.Dir = dir
			var said bytes.Buffer
			cmd.Stderr = &said
			out, err := cmd.StdoutPipe()
			must(t, err)
			must(t, cmd.Start())
			pid := 0
			if _, err := fmt.Fscan(out, &pid); err != nil {
				t.Fatalf("%v, %s", err, &said)
			}
			if who == "golock" {
				pid = cmd.Process.Pid
			}
			must(t, unix.Kill(pid, sig))
			timer := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
			_ = cmd.Wait()
			timer.Stop()
			shows(t, fmt.Sprint(sig, " to ", who), said.String())
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("%v to %s: %v is left", sig, who, left)
			}
		}
	}
}

// No process that golock starts has the password in its arguments, or in its
// environment if the user has not put it there: not the keeper of a slot, not
// the runs of a check.
func TestProcessesShowNoPassword(t *testing.T) {
	t.Parallel()
	const ours = "pass-0WN" // that of other tests is in arguments on purpose
	shows := func(t *testing.T, what, text string) {
		t.Helper()
		if strings.Contains(text, ours) {
			t.Errorf("%s: it shows the password: %.500s", what, text)
		}
	}
	server := redistest.Start(t)
	server.Do("ACL", "SETUSER", "job", "on", ">"+ours, "~*", "&*", "+@all")
	path := place(t, 0o755) + "/config.toml"
	must(t, os.WriteFile(path, fmt.Appendf(nil, "[defaults]\nstore = \"redis://job:%s@%s?quarantine=0s\"\n", ours, server.Addr()), 0o600))
	must(t, os.Chown(path, victim, victim))
	settle := func(what string, r result) {
		t.Helper()
		says(t, what, r, 0)
		shows(t, what, r.out+r.err)
	}

	r := as(t, victim, "acquire", "--config", path, "--name", "kept", "--for", fmt.Sprint(bystander(t, victim).Process.Pid))
	settle("acquire", r)
	id := strings.TrimSpace(r.out)
	if all := processes(t); !strings.Contains(all, "golock-keeper") {
		t.Error("the keeper is not to be seen")
	} else {
		shows(t, "a keeper", all)
	}
	for _, args := range [][]string{{"held", "--id", id}, {"renew", id}, {"ls", "--json"}, {"release", id}, {"clean"}} {
		settle(args[0], as(t, victim, append([]string{args[0], "--config", path}, args[1:]...)...))
	}
	for _, args := range [][]string{{"doctor"}, {"doctor", "--json"}} {
		r := as(t, victim, append(args, "--config", path)...)
		shows(t, fmt.Sprint(args), r.out+r.err)
	}

	checks := start(victim, golock, "check", "--config", path, "--loops", "60", "--json")
	var out, said bytes.Buffer
	checks.Stdout, checks.Stderr = &out, &said
	must(t, checks.Start())
	timer := time.AfterFunc(limit, func() { _ = checks.Process.Kill() })
	defer timer.Stop()
	done := make(chan result)
	go func() {
		_ = checks.Wait()
		done <- result{out: out.String(), err: said.String(), code: checks.ProcessState.ExitCode()}
	}()
	seen := false
	for {
		select {
		case r := <-done:
			settle("check", r)
			if !seen {
				t.Error("the runs of a check are not to be seen")
			}
			return
		default:
			all := descendants(checks.Process)
			seen = seen || strings.Contains(all, "golock-check-")
			shows(t, "a check", all)
			time.Sleep(time.Millisecond)
		}
	}
}

// descendants are arguments and environments of what descends from a process.
func descendants(p *os.Process) string {
	var b strings.Builder
	for next := []string{fmt.Sprint(p.Pid)}; len(next) > 0; {
		dir := "/proc/" + next[0]
		args, _ := os.ReadFile(dir + "/cmdline")
		environ, _ := os.ReadFile(dir + "/environ")
		fmt.Fprintf(&b, "%q %q\n", args, environ)
		next = next[1:]
		tasks, _ := filepath.Glob(dir + "/task/*/children")
		for _, task := range tasks {
			children, _ := os.ReadFile(task)
			next = append(next, strings.Fields(string(children))...)
		}
	}
	return b.String()
}

// processes are arguments and environments of all golocks.
func processes(t testing.TB) string {
	t.Helper()
	var b strings.Builder
	all, err := filepath.Glob("/proc/[0-9]*/exe")
	must(t, err)
	for _, exe := range all {
		if program, _ := os.Readlink(exe); program == golock {
			args, _ := os.ReadFile(filepath.Dir(exe) + "/cmdline")
			environ, _ := os.ReadFile(filepath.Dir(exe) + "/environ")
			fmt.Fprintf(&b, "%q %q\n", args, environ)
		}
	}
	return b.String()
}
