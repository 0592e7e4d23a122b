//go:build integration

// What a run that waits shows: on a terminal a line that is rewritten in place and removed before the
// command writes anything, elsewhere a line now and then, to a service manager its status, and nothing
// with -q.

package seeing_test

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golock/test/testkit"
)

func TestLineOnATerminal(t *testing.T) {
	t.Parallel()
	s := networked(t)
	free := s.Golock("run", "--name", "free", "--", "printf", "out").OnTerminal(100, 24)
	if got := free.Expects(0).Stdout; got != "out" {
		t.Errorf("a run that does not have to wait shows %q", got)
	}
	release := s.Hold("job").Finish
	first := s.Golock("run", "--name", "job", "--", "sh", "-c", "echo first; sleep 0.1").OnTerminal(200, 24)
	first.Shows(`waiting for "job": next in line, held by pid [0-9]+ .*\(sh.*\) for 0s`)
	second := s.Golock("run", "--name", "job", "--", "sh", "-c", "printf %s second; sleep 0.1").OnTerminal(50, 24)
	second.Shows(`\r\x1b\[Kgolock: waiting for "job": 2nd in line`)
	second.Shows(`\r\x1b\[Kgolock: waiting for "job": 2nd in line`) // and again
	release()
	first.Expects(0)
	second.Expects(0)
	for want, p := range map[string]*testkit.Process{"first\n": first, "second": second} {
		if got := finalText(t, p.Stdout()); got != want {
			t.Errorf("the terminal shows %q, want %q", got, want)
		}
	}
	for _, line := range strings.Split(second.Stdout(), "\r\x1b[K") {
		if n := len([]rune(line)); n > 50 {
			t.Errorf("%d columns of 50: %q", n, line)
		}
	}
	if n := strings.Count(first.Stdout(), "\n"); n > 1 {
		t.Errorf("%d lines, more than the command wrote: %q", n, first.Stdout())
	}
}

// The line shows the current place, also where a waiter sleeps until the one before it has gone.
func TestLineMovesOn(t *testing.T) {
	t.Parallel()
	s := local(t)
	release := s.Hold("job").Finish
	var waiters []*testkit.Process
	for i := range 2 {
		waiters = append(waiters, s.Job("-q", "--", "sh", "-c", "read code").Start())
		s.AwaitWaiting("job", i+1)
	}
	p := s.Golock("run", "--name", "job", "--", "true").OnTerminal(200, 24)
	p.Shows("3rd in line")
	release()
	p.Shows("2nd in line")
	for _, w := range waiters {
		w.Finish()
	}
	p.Expects(0)
}

// A message takes the line's place, and so does Ctrl-C.
func TestLineMakesRoom(t *testing.T) {
	t.Parallel()
	s := local(t)
	defer s.Hold("job").Finish()
	p := s.Golock("run", "--name", "job", "-w", "1", "--", "true").OnTerminal(100, 24)
	p.Shows(`next in line`)
	p.Expects(75)
	if got := finalText(t, p.Stdout()); !strings.HasPrefix(got, `golock: "job" is busy: held by pid `) || strings.Count(got, "\n") > 1 {
		t.Errorf("the terminal shows %q", got)
	}
	p = s.Golock("run", "--name", "job", "--", "true").OnTerminal(100, 24)
	p.Shows(`next in line`)
	p.Signal(syscall.SIGINT)
	p.DiesOf(syscall.SIGINT)
	if got := finalText(t, p.Stdout()); got != "" {
		t.Errorf("the terminal shows %q", got)
	}
}

// Where another process may write to the terminal, no line is rewritten.
func TestLineBesideOthers(t *testing.T) {
	t.Parallel()
	s := local(t)
	release := s.Hold("job").Finish
	x := s.Golock("run", "--name", "other", "--", "sh", "-c", `"$0" run --name job -- echo done; true`, testkit.Golock).OnTerminal(200, 24)
	x.Shows(`golock: waiting for "job": next in line, held by pid [0-9]+ \(.*\) for [0-9]+s\r\n`)
	release()
	x.Expects(0)
	if strings.Contains(x.Stdout(), "\x1b") {
		t.Errorf("rewritten beside others: %q", x.Stdout())
	}
}

// Who waits for the holder of a removed lock file is told so, like one that does not wait, and also if it waited
// before.
func TestLineTellsOfARemovedFile(t *testing.T) {
	t.Parallel()
	s := local(t)
	release := s.Hold("job").Finish
	old := s.Golock("run", "--name", "job", "--", "true").OnTerminal(200, 24)
	old.Shows(`waiting for "job": next in line, held by pid`)
	testkit.Must(t, os.Remove(testkit.OnlyFile(t, strings.TrimPrefix(s.Store, "local://")+"/job.*.lock")))
	const why = "its lock file was removed while it was held, and that holder is still there"
	s.Golock("run", "--name", "job", "-n", "--", "true").Start().Expects(75, why)
	fresh := s.Golock("run", "--name", "job", "--", "true").OnTerminal(200, 24)
	fresh.Shows(`waiting for "job": next in line, ` + why)
	old.Shows(`waiting for "job": next in line, held by pid [0-9]+ .*, its lock file was removed`)
	release()
	fresh.Expects(0)
	old.Expects(0)
}

func TestLinesElsewhere(t *testing.T) {
	t.Parallel()
	s := local(t)
	release := s.Hold("job").Finish
	began := time.Now()
	text := s.Golock("run", "--name", "job", "--", "true").Follow()
	text.Shows("(?m)^golock: waiting for \"job\": (next|2nd|3rd|4th) in line, held by pid [0-9]+ \\(.*\\) for [0-9]+s\n")
	testkit.Lasted(t, began, time.Second, time.Hour)
	quiet := s.Golock("run", "--name", "job", "-q", "--", "true").Follow()
	structured := s.Golock("run", "--name", "job", "--log-format", "json", "--", "true").Follow()
	text.Shows("in line") // the second comes two seconds after the first
	testkit.Lasted(t, began, 3*time.Second, time.Hour)
	structured.Shows(`"still waiting"`)
	release()
	for _, p := range []*testkit.Process{text, quiet, structured} {
		p.Expects(0)
	}
	if got := quiet.Stdout(); got != "" {
		t.Errorf("-q says %q", got)
	}
	var line struct {
		Msg, Name string
		Held      string `json:"held_by"`
		Place     int
		Holders   int
		Waited    float64
	}
	testkit.Must(t, json.Unmarshal([]byte(strings.SplitN(structured.Stdout(), "\n", 2)[0]), &line))
	if line.Name != "job" || line.Holders != 1 || line.Place < 1 || line.Waited < 1 ||
		!strings.HasPrefix(line.Held, "pid ") {
		t.Errorf("%+v", line)
	}
}

// acquire shows the line as run does, although another process waits.
func TestLineOfAcquire(t *testing.T) {
	t.Parallel()
	s := local(t)
	release := s.Hold("job").Finish
	p := s.Golock("acquire", "--name", "job", "--for", strconv.Itoa(os.Getpid())).OnTerminal(200, 24)
	p.Shows(`\r\x1b\[Kgolock: waiting for "job": next in line, held by pid`)
	plain := s.Golock("acquire", "--name", "job", "--for", strconv.Itoa(os.Getpid())).Follow()
	plain.Shows("(?m)^golock: waiting for \"job\": 2nd in line.*\n")
	release()
	p.Expects(0)
	s.Golock("release", strings.TrimSpace(finalText(t, p.Stdout()))).Follow().Expects(0)
	plain.Expects(0)
	all := strings.Split(strings.TrimSpace(plain.Stdout()), "\n")
	s.Golock("release", all[len(all)-1]).Follow().Expects(0)
}

// A service manager is told while the run waits, and the command has its variable.
func TestNotify(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"path", "abstract"} {
		s := local(t)
		address := filepath.Join(t.TempDir(), "notify")
		if kind == "abstract" {
			address = "@" + address
		}
		manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
		testkit.Must(t, err)
		defer manager.Close()
		heard := func() string {
			t.Helper()
			buffer := make([]byte, 4096)
			_ = manager.SetReadDeadline(time.Now().Add(testkit.Patience))
			n, err := manager.Read(buffer)
			testkit.Must(t, err)
			return string(buffer[:n])
		}
		s.Env = append(s.Env, "NOTIFY_SOCKET="+address)
		free := s.Golock("run", "--name", "free", "--", "true").Follow()
		free.Expects(0) // says nothing: what comes first below is the other's

		release := s.Hold("job").Finish
		p := s.Golock("run", "--name", "job", "-q", "--", "sh", "-c", "echo $NOTIFY_SOCKET").Follow()
		if got := heard(); got != "STATUS=waiting for \"job\": next in line\nEXTEND_TIMEOUT_USEC=120000000" {
			t.Errorf("first %q", got)
		}
		if got := heard(); !strings.HasPrefix(got, "STATUS=waiting for \"job\": next in line, held by pid ") || !strings.HasSuffix(got, "\nEXTEND_TIMEOUT_USEC=120000000") {
			t.Errorf("then %q", got)
		}
		release()
		p.Expects(0)
		for got := heard(); got != "STATUS=\nEXTEND_TIMEOUT_USEC=120000000"; got = heard() {
			if !strings.HasPrefix(got, "STATUS=waiting") {
				t.Errorf("also %q", got)
			}
		}
		if got := p.Stdout(); got != address+"\n" {
			t.Errorf("the command sees %q", got)
		}
	}
}

// A service manager that reads nothing, or is not there, delays nothing.
func TestNotifyNobody(t *testing.T) {
	t.Parallel()
	s := local(t)
	full := filepath.Join(t.TempDir(), "full")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: full, Net: "unixgram"})
	testkit.Must(t, err)
	defer manager.Close()
	fill, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: full, Net: "unixgram"})
	testkit.Must(t, err)
	_ = fill.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	for err == nil {
		_, err = fill.Write([]byte("x"))
	}
	fill.Close()
	env := s.Env
	for _, address := range []string{full, "/no/such/socket", "@", "vsock:1:2", "relative"} {
		s.Env = append(slices.Clip(env), "NOTIFY_SOCKET="+address)
		release := s.Hold("job").Finish
		p := s.Golock("run", "--name", "job", "-v", "--", "true").Follow()
		p.Shows("waiting\n")
		release()
		p.Expects(0)
		if strings.Contains(p.Stdout(), "warning") {
			t.Errorf("%s: %q", address, p.Stdout())
		}
	}
}
