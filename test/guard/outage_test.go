package guard_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// A server that cannot be reached at the start: 69, in bounded time, and
// nothing is started.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct {
		flags []string
		least time.Duration
		most  time.Duration
	}{
		{[]string{"--wait", "0.5"}, 500 * time.Millisecond, 2 * time.Second},
		{[]string{"-n"}, 0, 4 * time.Second},
	} {
		for _, silent := range []bool{true, false} {
			if silent {
				w.server.Stop()
			} else {
				w.server.Kill()
			}
			begin := time.Now()
			r := w.golock(append(c.flags, "--", "echo", "started")...)
			if text, err := r.lines.ReadString('\n'); err == nil {
				t.Errorf("%q: the command wrote %q", c.flags, text)
			}
			r.expectCode(69, "cannot be reached")
			if took := time.Since(begin); took < c.least || took > c.most {
				t.Errorf("%q, silent %v: took %v, want %v to %v", c.flags, silent, took, c.least, c.most)
			}
			if silent {
				w.server.Continue()
			} else {
				w.server.Restart()
			}
		}
	}
	// Told to stop while it tries.
	w.server.Stop()
	r := w.golock("--", "true")
	time.Sleep(200 * time.Millisecond) // it tries, or has not begun: the answer is the same
	begin := time.Now()
	r.signal(unix.SIGTERM)
	if code := r.code(); code != 143 {
		t.Errorf("exit code %d, want 143; stderr %q", code, r.stderr)
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("took %v to stop", took)
	}
	w.server.Continue()
}

// Once queued an outage ends no waiting; when the time is over the code says
// who answered last.
func TestOutageWhileQueued(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.household("--ttl", "60")
	begin := time.Now()
	waiter := w.golock("--ttl", "2", "--wait", "3", "-v", "--", "true")
	patient := w.golock("--ttl", "2", "--wait", "20", "--", "echo", "mine")
	time.Sleep(time.Second)
	w.server.Stop()
	waiter.expectCode(69, "cannot be reached")
	if took := time.Since(begin); took < 3*time.Second {
		t.Errorf("gave up after %v, want 3 s", took)
	}
	w.server.Continue()
	busy := w.golock("--wait", "0.5", "--", "true")
	busy.expectCode(75, "busy")
	for _, p := range h.family {
		p.signal(t, unix.SIGKILL)
	}
	h.expectCode(137)
	if line := patient.line(); line != "mine" {
		t.Errorf("the patient one wrote %q", line)
	}
	patient.expectCode(0)
}

// A job that is stopped for longer than its lease is dead at the deadline, and
// fg reports 79.
func TestJobStoppedForLongerThanTheLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	shell := exec.Command("bash", "--norc", "--noprofile", "--noediting", "-i")
	shell.Env = []string{"PATH=/usr/bin:/bin", "PS1=ready> ", "TERM=dumb", "R=" + golock + " run --name job --ttl 1 --store " + w.url()}
	tty, err := pty.Start(shell)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = shell.Process.Kill()
		_ = shell.Wait()
		tty.Close()
	})
	var text strings.Builder
	expect := func(want string) {
		t.Helper()
		_ = tty.SetReadDeadline(time.Now().Add(limit))
		buffer := make([]byte, 1)
		for !strings.HasSuffix(text.String(), want) {
			if _, err := tty.Read(buffer); err != nil {
				t.Fatalf("the terminal shows %q, not %q: %v", text.String(), want, err)
			}
			text.Write(buffer)
		}
	}
	key := func(s string) {
		t.Helper()
		if _, err := tty.WriteString(s); err != nil {
			t.Fatal(err)
		}
	}
	expect("ready> ")
	key("$R -- sh -c 'echo i''n; exec sleep 1000'\n")
	expect("in\r\n")
	key("\x1a")
	expect("Stopped")
	expect("ready> ")
	next := w.golock("--", "echo", "mine")
	if line := next.line(); line != "mine" {
		t.Errorf("the next one wrote %q", line)
	}
	key("fg >/dev/null; echo co''de=$?\n")
	expect("code=79")
}
