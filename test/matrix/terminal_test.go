// Pins that golock in a job of an interactive shell is as good as not there:
// Ctrl-C, Ctrl-Z, fg and bg, reading and writing the terminal, its end; and
// that a golock that waits leaves the queue before it stops.

package matrix_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// terminal is an interactive bash on a pseudo-terminal.
type terminal struct {
	w    *world
	pty  *os.File
	bash *exec.Cmd

	closing atomic.Bool
	hangUp  func() // closes the terminal

	mu   sync.Mutex
	text string // all that was written, guarded by mu
	seen int    // up to here expect has read
}

func (w *world) terminal(argv ...string) *terminal {
	w.t.Helper()
	if len(argv) == 0 {
		argv = []string{"bash", "--norc", "--noprofile", "--noediting", "-i"}
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = w.dir
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "PS1=ready> ", "TERM=dumb", "LC_ALL=C", "G=" + golock, "R=" + golock + " run --store " + w.store + " --name job", w.mark}
	p, err := pty.Start(cmd)
	if err != nil {
		w.t.Fatal(err)
	}
	x := &terminal{w: w, pty: p, bash: cmd}
	read := make(chan struct{})
	go func() {
		defer close(read)
		buf := make([]byte, 4096)
		for {
			// Close does not end a Read of a terminal, so none is begun early.
			ready := []unix.PollFd{{Fd: int32(p.Fd()), Events: unix.POLLIN}}
			if n, _ := unix.Poll(ready, 20); n == 0 {
				if x.closing.Load() {
					return
				}
				continue
			}
			n, err := p.Read(buf)
			x.mu.Lock()
			x.text += string(buf[:n])
			x.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	x.hangUp = sync.OnceFunc(func() {
		x.closing.Store(true)
		<-read
		p.Close()
	})
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		x.hangUp()
	})
	return x
}

// expect waits for a text that was not seen yet.
func (x *terminal) expect(text string) {
	x.w.t.Helper()
	if !within(limit, func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		i := strings.Index(x.text[x.seen:], text)
		if i >= 0 {
			x.seen += i + len(text)
		}
		return i >= 0
	}) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.w.t.Fatalf("the terminal does not show %q but %q; there are %s", text, x.text[x.seen:], x.w.all())
	}
}

// line types a line at the shell's prompt.
func (x *terminal) line(text string) {
	x.w.t.Helper()
	x.expect("ready> ")
	x.key(text + "\n")
	x.expect(text) // the echo
}

func (x *terminal) key(text string) {
	x.w.t.Helper()
	if _, err := x.pty.WriteString(text); err != nil {
		x.w.t.Fatal(err)
	}
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

func TestCtrlCComesOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	x := w.terminal()
	// A command that goes on after INT, and tells at its end how often. (What
	// Python buffers cannot be written to from a handler that interrupts that.)
	w.script("counter", "#!/usr/bin/python3\nimport os, signal, sys\nn = 0\ndef on(*a):\n global n\n n += 1\n os.write(1, b'int%d\\n' % n)\nsignal.signal(signal.SIGINT, on)\nos.write(1, b'in\\n')\nfor l in iter(sys.stdin.readline, ''):\n if l.strip() == 'end': sys.exit(40 + n)\n")
	x.line("$R -- ./counter; echo code=$?")
	x.expect("in\r\n")
	x.key(ctrlC)
	x.expect("int1")
	x.key(ctrlC)
	x.expect("int2")
	x.key("end\n")
	x.expect("code=42")
	w.isFree()
	// And one that dies of it.
	x.line("$R -- sh -c 'echo in; exec sleep 1000'; echo code=$?")
	x.expect("in\r\n")
	x.key(ctrlC)
	x.expect("code=130")
	w.isFree()
}

func TestCtrlZAndForeground(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	x := w.terminal()
	x.line(`$R -- sh -c 'echo $$ >pid; echo in; read a; echo got $a; exit 5'`)
	x.expect("in\r\n")
	pid := awaitPID(t, w.path("pid"))
	for range 3 {
		x.key(ctrlZ)
		x.expect("Stopped")
		await(t, "command and golock stop", func() bool { return stopped(pid) && stopped(golockOf(pid)) })
		w.isTaken()
		x.line("fg >/dev/null")
		await(t, "the command goes on", func() bool { return !stopped(pid) && !stopped(golockOf(pid)) })
	}
	x.key("word\n")
	x.expect("got word")
	x.line("echo code=$?")
	x.expect("code=5")
	w.isFree()
}

func TestBackground(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	x := w.terminal()
	if err := unix.Mkfifo(w.path("end"), 0o600); err != nil {
		t.Fatal(err)
	}
	x.line(`$R -- sh -c 'echo $$ >pid; echo in; exec cat end'`)
	x.expect("in\r\n")
	pid := awaitPID(t, w.path("pid"))
	x.key(ctrlZ)
	x.expect("Stopped")
	await(t, "the command stops", func() bool { return stopped(pid) })
	x.line("bg >/dev/null")
	await(t, "the command goes on", func() bool { return !stopped(pid) && !stopped(golockOf(pid)) })
	x.line("echo >end; wait; echo waited")
	x.expect("waited")
	w.isFree()
	// A background job that reads the terminal stops, as without golock.
	x.line(`$R -- sh -c 'echo $$ >reader; read a; echo got $a' &`)
	reader := awaitPID(t, w.path("reader"))
	await(t, "the reader stops", func() bool { return stopped(reader) && stopped(golockOf(reader)) })
	x.line("fg >/dev/null")
	await(t, "the reader goes on", func() bool { return !stopped(reader) })
	x.key("again\n")
	x.expect("got again")
	// With tostop one that writes stops too.
	x.line("stty tostop")
	x.line(`$R -- sh -c 'echo $$ >writer; echo written' &`)
	writer := awaitPID(t, w.path("writer"))
	await(t, "the writer stops", func() bool { return stopped(writer) && stopped(golockOf(writer)) })
	x.line("fg >/dev/null")
	x.expect("written")
	x.line("stty -tostop; echo usable")
	x.expect("usable")
}

// A command that stops by itself gives the shell its prompt back.
func TestCommandStopsItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	x := w.terminal()
	for _, sig := range []string{"STOP", "TSTP"} {
		x.line(fmt.Sprintf(`$R -- sh -c 'kill -%s $$; echo on; exit 3'`, sig))
		x.expect("Stopped")
		x.line("fg >/dev/null")
		x.expect("on\r\n")
		x.line("echo code=$?")
		x.expect("code=3")
	}
	w.isFree()
}

// A script on a terminal has no job control; its golock can still read, and
// the terminal is usable after it.
func TestScriptOnATerminal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	x := w.terminal()
	w.script("script", "#!/bin/sh\n$R -- head -n1 >line\necho code=$?\nread a\necho after $a\n")
	x.line("./script")
	await(t, "the command reads", func() bool { return !w.used() || len(w.ls()) == 1 })
	x.key("one\n")
	x.expect("code=0")
	x.key("two\n")
	x.expect("after two")
	if got := awaitFile(t, w.path("line")); got != "one" {
		t.Errorf("the command read %q", got)
	}
	// Ctrl-C ends all of it.
	x.line("sh -c '$R -- sleep 1000; echo never'")
	await(t, "the command runs", func() bool { return len(w.ls()) == 1 })
	x.key(ctrlC)
	x.line("echo code=$?")
	x.expect("code=130")
	w.isFree()
}

func TestTerminalWhileWaiting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	holder := w.holder()
	x := w.terminal()
	x.line("$R -- echo mine; echo code=$?")
	await(t, "it waits", func() bool { return len(w.waiters()) == 1 })
	x.key(ctrlC)
	x.expect("code=130")
	w.awaitWaiters()

	// Ctrl-Z: out of the queue; the one behind is served; fg: in again, at
	// the end.
	x.line("$R -- sh -c 'echo mi''ne'")
	await(t, "it waits", func() bool { return len(w.waiters()) == 1 })
	first := w.waiters()[0]
	x.key(ctrlZ)
	x.expect("Stopped")
	await(t, "it stops", func() bool { return stopped(first) })
	w.awaitWaiters()
	next := w.job("--", "sh", "-c", "echo in; read a").start()
	w.awaitWaiters(next.pid)
	x.line("fg >/dev/null")
	w.awaitWaiters(next.pid, first)
	holder.finish()
	next.expect("in")
	next.tell("")
	x.expect("mine")
	next.wait()
	x.line("echo usable")
	x.expect("usable")
	w.isFree()
}

// TERM from outside ends the command and what it started in the job, and
// nobody else in the job.
func TestTermToAJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	x := w.terminal()
	x.line(`$R -- sh -c 'sleep 1000 & echo $! >child; echo $$ >pid; wait' | sh -c 'echo $$ >other; cat; echo other went on'`)
	pid, child := awaitPID(t, w.path("pid")), awaitPID(t, w.path("child"))
	other := awaitPID(t, w.path("other"))
	if stat(pid).group != stat(other).group {
		t.Fatalf("command and neighbour are not in one group: %v %v", stat(pid), stat(other))
	}
	if !w.signal(golockOf(pid), syscall.SIGTERM) {
		t.Fatalf("golock has ended; there are %s", w.all())
	}
	await(t, "command and child end", func() bool { return !alive(pid) && !alive(child) })
	x.expect("other went on")
	x.line("echo code=${PIPESTATUS[0]}")
	x.expect("code=143")
	w.isFree()
}

func TestWindowSizeComesOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	x := w.terminal()
	w.script("counter", "#!/usr/bin/python3\nimport os, signal, sys\nn = 0\ndef on(*a):\n global n\n n += 1\n os.write(1, b'winch%d\\n' % n)\nsignal.signal(signal.SIGWINCH, on)\nos.write(1, b'in\\n')\nfor l in iter(sys.stdin.readline, ''):\n sys.exit(40 + n)\n")
	x.line("$R -- ./counter; echo code=$?")
	x.expect("in\r\n")
	for i := range 3 {
		if err := pty.Setsize(x.pty, &pty.Winsize{Rows: uint16(20 + i), Cols: 80}); err != nil {
			t.Fatal(err)
		}
		x.expect(fmt.Sprintf("winch%d", i+1))
	}
	x.key("\n")
	x.expect("code=43")
}

// When the terminal is gone all of it ends, also where golock itself leads the
// session and nobody else is told.
func TestHangUp(t *testing.T) {
	t.Parallel()
	for _, leader := range []bool{false, true} {
		w := newWorld(t)
		var x *terminal
		if leader {
			x = w.terminal(golock, "run", "--store", w.store, "--name", "job", "--", "sh", "-c", "echo $$ >pid; echo in; sleep 1000")
		} else {
			x = w.terminal()
			x.line("$R -- sh -c 'echo $$ >pid; echo in; sleep 1000'")
		}
		x.expect("in\r\n")
		awaitPID(t, w.path("pid"))
		x.hangUp()
		w.noneLeft()
		w.isFree()
	}
}

// Directly under a terminal, without any shell: nobody is there to continue a
// stopped job, so nothing may stop for ever.
func TestOrphanedJobIsNotStopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	x := w.terminal(golock, "run", "--store", w.store, "--name", "job", "--", "sh", "-c", "echo $$ >pid; echo in; read a; echo got $a")
	x.expect("in\r\n")
	x.key(ctrlZ)
	x.key("word\n")
	x.expect("got word")
	w.noneLeft()
	w.isFree()
}
