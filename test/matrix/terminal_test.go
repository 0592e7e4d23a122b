//go:build integration

// In a job of an interactive shell golock changes nothing: Ctrl-C, Ctrl-Z, fg, bg, reading and
// writing the terminal, hangup. A golock that waits leaves the queue before it stops.

package matrix_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"golock/test/testkit"
)

// bash is an interactive shell that has a run of the lock in $R.
func bash(s *testkit.Sandbox) *testkit.Process {
	return s.Bash("SELF="+self, "R="+testkit.Golock+" run --store "+s.Store+" --name job")
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

// What the terminal sends reaches the command once.
func TestTerminalSignalsComeOnce(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	x := bash(s)
	x.Type("$R -- $SELF @signals parent; echo code=$?")
	x.Shows("parent ready")
	for i := range 3 {
		x.Key(ctrlC)
		x.Shows("parent 2\r\n")
		x.Resize(80, uint16(20+i))
		x.Shows("parent 28\r\n")
	}
	x.Key("counts\n")
	x.Shows(`{"2":3,"28":3}`)
	x.Key("exit 42\n")
	x.Shows("code=42")
	s.IsFree()
	// And a command that dies of it.
	x.Type("$R -- sh -c 'echo in; exec sleep 1000'")
	x.Shows("in\r\n")
	x.Key(ctrlC)
	x.Type("echo code=$?")
	x.Shows("code=130")
	s.IsFree()
}

func TestCtrlZAndForeground(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	x := bash(s)
	x.Type(`$R -- sh -c 'echo $$ >pid; echo in; read a; echo got $a; exit 5'`)
	x.Shows("in\r\n")
	pid := s.AwaitPID("pid")
	for range 3 {
		x.Key(ctrlZ)
		x.Shows("Stopped")
		s.Eventually("command and golock stop", func() bool { return testkit.Stopped(pid) && testkit.Stopped(golockOf(pid)) })
		s.IsTaken()
		x.Type("fg >/dev/null")
		s.Eventually("the command goes on", func() bool { return !testkit.Stopped(pid) && !testkit.Stopped(golockOf(pid)) })
	}
	x.Key("word\n")
	x.Shows("got word")
	x.Type("echo code=$?")
	x.Shows("code=5")
	s.IsFree()
}

// bash learns of a stop after the kernel shows it; fg of a job that it believes
// to be running does not continue it.
const untilBashKnows = "until jobs -s | grep -q .; do :; done; "

func TestBackground(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	x := bash(s)
	testkit.Must(t, unix.Mkfifo(s.Path("end"), 0o600))
	x.Type(`$R -- sh -c 'echo $$ >pid; echo in; exec cat end'`)
	x.Shows("in\r\n")
	pid := s.AwaitPID("pid")
	x.Key(ctrlZ)
	x.Shows("Stopped")
	s.Eventually("the command stops", func() bool { return testkit.Stopped(pid) })
	x.Type("bg >/dev/null")
	s.Eventually("the command goes on", func() bool { return !testkit.Stopped(pid) && !testkit.Stopped(golockOf(pid)) })
	x.Type("echo >end; wait; echo waited")
	x.Shows("waited")
	s.IsFree()
	// A background job that reads the terminal stops, as without golock.
	x.Type(`$R -- sh -c 'echo $$ >reader; read a; echo got $a' &`)
	reader := s.AwaitPID("reader")
	s.Eventually("the reader stops", func() bool { return testkit.Stopped(reader) && testkit.Stopped(golockOf(reader)) })
	x.Type(untilBashKnows + "fg >/dev/null")
	s.Eventually("the reader goes on", func() bool { return !testkit.Stopped(reader) })
	x.Key("again\n")
	x.Shows("got again")
	// With tostop one that writes stops too.
	x.Type("stty tostop")
	x.Type(`$R -- sh -c 'echo $$ >writer; echo written' &`)
	writer := s.AwaitPID("writer")
	s.Eventually("the writer stops", func() bool { return testkit.Stopped(writer) && testkit.Stopped(golockOf(writer)) })
	x.Type(untilBashKnows + "fg >/dev/null")
	x.Shows("written")
	x.Type("stty -tostop; echo usable")
	x.Shows("usable")
}

// If the command stops itself, the shell shows its prompt.
func TestCommandStopsItself(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	x := bash(s)
	for _, sig := range []string{"STOP", "TSTP"} {
		x.Type(fmt.Sprintf(`$R -- sh -c 'kill -%s $$; echo on; exit 3'`, sig))
		x.Shows("Stopped")
		x.Type("fg >/dev/null")
		x.Shows("on\r\n")
		x.Type("echo code=$?")
		x.Shows("code=3")
	}
	s.IsFree()
}

// If the command and its watchdog are stopped, golock continues the watchdog before it stops too.
func TestCommandAndWatchdogStop(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	x := bash(s)
	testkit.Must(t, os.Mkdir(s.Path("leases"), 0o700))
	x.Type("$R --store mkdir://" + s.Path("leases") + ` --ttl 1h -- sh -c 'echo $PPID >watchdog; kill -STOP $PPID $$; echo on'`)
	watchdog := s.AwaitPID("watchdog")
	x.Shows("Stopped")
	if testkit.Stopped(watchdog) {
		t.Error("the watchdog is stopped")
	}
	x.Type("fg >/dev/null")
	x.Shows("on\r\n")
}

// A script on a terminal has no job control; its golock can still read, and
// the terminal is usable after it.
func TestScriptOnATerminal(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	x := bash(s)
	s.Script("script", "#!/bin/sh\n$R -- head -n1 >line\necho code=$?\nread a\necho after $a\n")
	x.Type("./script")
	s.Eventually("the command reads", func() bool { return len(s.List("job")) == 1 })
	x.Key("one\n")
	x.Shows("code=0")
	x.Key("two\n")
	x.Shows("after two")
	if got := s.AwaitFile("line"); got != "one" {
		t.Errorf("the command read %q", got)
	}
	// Ctrl-C ends all of it.
	x.Type("sh -c '$R -- sleep 1000; echo never'")
	s.Eventually("the command runs", func() bool { return len(s.List("job")) == 1 })
	x.Key(ctrlC)
	x.Type("echo code=$?")
	x.Shows("code=130")
	s.IsFree()
}

func TestTerminalWhileWaiting(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	holder := s.Hold("job")
	x := bash(s)
	x.Type("$R -- echo mine")
	s.AwaitWaiting("job", 1)
	x.Key(ctrlC)
	x.Type("echo code=$?")
	x.Shows("code=130")
	s.AwaitWaiters()

	// Ctrl-Z: out of the queue; the one behind is served; fg: in again, at
	// the end.
	x.Type("$R -- sh -c 'echo mi''ne'")
	s.AwaitWaiting("job", 1)
	first := s.Waiters("job")[0]
	x.Key(ctrlZ)
	x.Shows("Stopped")
	s.Eventually("it stops", func() bool { return testkit.Stopped(first) })
	s.AwaitWaiters()
	next := s.Job("--", "sh", "-c", "echo in; read a").Start()
	s.AwaitWaiters(next.PID)
	x.Type("fg >/dev/null")
	s.AwaitWaiters(next.PID, first)
	holder.Finish()
	next.Expect("in")
	next.Tell("")
	x.Shows("mine")
	next.Wait()
	x.Type("echo usable")
	x.Shows("usable")
	s.IsFree()
}

// TERM from outside ends the command and what it started, and no other process of the job.
func TestTermToAJob(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	x := bash(s)
	x.Type(`$R -- sh -c 'sleep 1000 & echo $! >child; echo $$ >pid; wait' | sh -c 'echo $$ >other; cat; echo other went on'`)
	pid, child := s.AwaitPID("pid"), s.AwaitPID("child")
	other := s.AwaitPID("other")
	if testkit.StatOf(pid).Group != testkit.StatOf(other).Group {
		t.Fatalf("command and neighbour are not in one group: %v %v", testkit.StatOf(pid), testkit.StatOf(other))
	}
	s.MustSignal(golockOf(pid), syscall.SIGTERM)
	s.Eventually("command and child end", func() bool { return !testkit.Alive(pid) && !testkit.Alive(child) })
	x.Shows("other went on")
	x.Type("echo code=${PIPESTATUS[0]}")
	x.Shows("code=143")
	s.IsFree()
}

// A hangup ends all of it, also where golock itself leads the session and is the only one to get HUP.
func TestHangUp(t *testing.T) {
	t.Parallel()
	for _, leader := range []bool{false, true} {
		s := newSandbox(t)
		var x *testkit.Process
		if leader {
			x = s.Job("--", "sh", "-c", "echo $$ >pid; echo in; sleep 1000").OnTerminal(80, 24)
		} else {
			x = bash(s)
			x.Type("$R -- sh -c 'echo $$ >pid; echo in; sleep 1000'")
		}
		x.Shows("in\r\n")
		s.AwaitPID("pid")
		x.HangUp()
		s.NoneLeft()
		s.IsFree()
	}
}

// Directly under a terminal, without a shell, nobody continues a stopped job: nothing may stop.
func TestOrphanedJobIsNotStopped(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	x := s.Job("--", "sh", "-c", "echo $$ >pid; echo in; read a; echo got $a").OnTerminal(80, 24)
	x.Shows("in\r\n")
	x.Key(ctrlZ)
	x.Key("word\n")
	x.Shows("got word")
	s.NoneLeft()
	s.IsFree()
}

// Ctrl-C ends a script, in whatever shell: bash goes on with the next line unless golock dies of INT. Each
// shell has one of the scripts, in the deep run all.
func TestCtrlCEndsAScript(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	holder := s.Hold("held")
	run := testkit.Golock + " run --store '" + s.Store + "'"
	scripts := []string{"%s; echo next", "for i in 1 2; do %s; echo next; done", "x=$(%s); echo next"}
	for i, shell := range []string{"bash", "dash", "zsh"} {
		for j, script := range scripts {
			if !testkit.Covers(i, j, len(scripts)) {
				continue
			}
			for what, job := range map[string]string{
				"waits": run + " --name held -v -- true", "runs": run + " --name " + shell + " -- sh -c 'echo st''arted >&2; exec sleep 1000'",
			} {
				p := s.Exec(shell, "-c", fmt.Sprintf(script, job)).OnTerminal(80, 24)
				p.Shows(map[string]string{"waits": "waiting", "runs": "started"}[what])
				p.Key(ctrlC)
				if r := p.Wait(); r.Signal != syscall.SIGINT && r.Code != 130 || strings.Contains(r.Stdout, "next") {
					t.Errorf("%s, %q, golock %s: %v", shell, script, what, r)
				}
			}
		}
	}
	holder.Finish()
}
