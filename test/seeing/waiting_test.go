// Pins what a run that waits tells: on a terminal a line that is rewritten in
// place and gone before the command writes anything, elsewhere a line now and
// then, to a service manager its status, and nothing with -q.

package seeing_test

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestLineOnATerminal(t *testing.T) {
	for name, make := range map[string]func(*testing.T) *world{"local": local, "redis": networked} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := make(t)
			release := w.hold("job")
			first := w.onTerminal(200, 24, "run", "--name", "job", "--", "sh", "-c", "echo first; sleep 0.1")
			first.shows(`waiting for "job": next in line, held by pid [0-9]+ \(sh.*\) for 0s`)
			second := w.onTerminal(50, 24, "run", "--name", "job", "--", "sh", "-c", "printf %s second; sleep 0.1")
			second.shows(`\r\x1b\[Kgolock: waiting for "job": 2nd in line`)
			second.shows(`\r\x1b\[Kgolock: waiting for "job": 2nd in line`) // and again
			release()
			first.code(0)
			second.code(0)
			if got := screen(t, first.all()); strings.Join(got, "|") != "first" {
				t.Errorf("the terminal shows %q", got)
			}
			if got := screen(t, second.all()); strings.Join(got, "|") != "second" {
				t.Errorf("the narrow terminal shows %q", got)
			}
			for _, line := range strings.Split(second.all(), "\r\x1b[K") {
				if n := len([]rune(line)); n > 50 {
					t.Errorf("%d columns of 50: %q", n, line)
				}
			}
			if strings.Contains(first.all(), "\n") && strings.Count(first.all(), "\n") != 1 {
				t.Errorf("more lines than the command wrote: %q", first.all())
			}
		})
	}
}

// The place is the present one, also where a waiter sleeps until the one before
// it has gone.
func TestLineMovesOn(t *testing.T) {
	t.Parallel()
	w := local(t)
	release := w.hold("job")
	var gates []string
	for i := range 2 {
		gates = append(gates, filepath.Join(w.dir, "gate"+string(rune('0'+i))))
		w.start("run", "--name", "job", "-q", "--", "sh", "-c", `until test -e "$1"; do sleep 0.02; done`, "sh", gates[i])
		ls := func() string {
			p := w.start("ls", "--json", "job")
			p.code(0)
			return p.all()
		}
		await(t, "waiter", func() bool { return strings.Count(ls(), `"waiting"`) == i+1 })
	}
	p := w.onTerminal(200, 24, "run", "--name", "job", "--", "true")
	p.shows("3rd in line")
	release()
	p.shows("2nd in line")
	for _, gate := range gates {
		if err := os.WriteFile(gate, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p.code(0)
}

// A message takes the line's place, and so does Ctrl-C.
func TestLineMakesRoom(t *testing.T) {
	t.Parallel()
	w := local(t)
	defer w.hold("job")()
	p := w.onTerminal(100, 24, "run", "--name", "job", "-w", "1", "--", "true")
	p.shows(`next in line`)
	p.code(75)
	if got := screen(t, p.all()); !strings.HasPrefix(got[0], `golock: "job" is busy: held by pid `) || len(got) > 2 {
		t.Errorf("the terminal shows %q", got)
	}
	p = w.onTerminal(100, 24, "run", "--name", "job", "--", "true")
	p.shows(`next in line`)
	p.signal(syscall.SIGINT)
	p.code(130)
	if got := strings.Join(screen(t, p.all()), ""); got != "" {
		t.Errorf("the terminal shows %q", got)
	}
}

// Where somebody else may write to the terminal no line is rewritten.
func TestLineBesideOthers(t *testing.T) {
	t.Parallel()
	w := local(t)
	release := w.hold("job")
	p := w.onTerminal(100, 24, "version") // for its size only
	p.code(0)
	child := &world{t: t, dir: w.dir, url: w.url, env: []string{"G=" + golock}}
	x := child.onTerminal(200, 24, "run", "--name", "other", "--", "sh", "-c", `$G run --name job -- echo done; true`)
	x.shows(`golock: waiting for "job": next in line, held by pid [0-9]+ \(.*\) for [0-9]+s\r\n`)
	release()
	x.code(0)
	if strings.Contains(x.all(), "\x1b") {
		t.Errorf("rewritten beside others: %q", x.all())
	}
}

func TestLinesElsewhere(t *testing.T) {
	for name, make := range map[string]func(*testing.T) *world{"local": local, "redis": networked} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := make(t)
			release := w.hold("job")
			began := time.Now()
			text := w.start("run", "--name", "job", "--", "true")
			text.shows("(?m)^golock: waiting for \"job\": (next|2nd|3rd|4th) in line, held by pid [0-9]+ \\(.*\\) for [0-9]+s\n")
			if d := time.Since(began); d < time.Second {
				t.Errorf("told after %v", d)
			}
			quiet := w.start("run", "--name", "job", "-q", "--", "true")
			structured := w.start("run", "--name", "job", "--log-format", "json", "--", "true")
			text.shows("in line") // the second comes two seconds after the first
			if d := time.Since(began); d < 3*time.Second {
				t.Errorf("told again after %v", d)
			}
			structured.shows(`"still waiting"`)
			release()
			for _, p := range []*proc{text, quiet, structured} {
				p.code(0)
			}
			if got := quiet.all(); got != "" {
				t.Errorf("-q says %q", got)
			}
			var line struct {
				Msg, Name string
				Held      string `json:"held_by"`
				Place     int
				Holders   int
				Waited    float64
			}
			if err := json.Unmarshal([]byte(strings.SplitN(structured.all(), "\n", 2)[0]), &line); err != nil {
				t.Fatal(err)
			}
			if line.Name != "job" || line.Holders != 1 || line.Place < 1 || line.Waited < 1 || !strings.HasPrefix(line.Held, "pid ") {
				t.Errorf("%+v", line)
			}
		})
	}
}

// acquire tells it as run does, though it is another process that waits.
func TestLineOfAcquire(t *testing.T) {
	t.Parallel()
	w := local(t)
	release := w.hold("job")
	p := w.onTerminal(200, 24, "acquire", "--name", "job", "--for", pid())
	p.shows(`\r\x1b\[Kgolock: waiting for "job": next in line, held by pid`)
	plain := w.start("acquire", "--name", "job", "--for", pid())
	plain.shows("(?m)^golock: waiting for \"job\": 2nd in line.*\n")
	release()
	p.code(0)
	lines := screen(t, p.all())
	w.start("release", lines[0]).code(0)
	plain.code(0)
	all := strings.Split(strings.TrimSpace(plain.all()), "\n")
	w.start("release", all[len(all)-1]).code(0)
}

// A run that does not have to wait tells nothing and asks nothing.
func TestNoLine(t *testing.T) {
	t.Parallel()
	w := local(t)
	p := w.onTerminal(100, 24, "run", "--name", "free", "--", "printf", "out")
	p.code(0)
	if got := p.all(); got != "out" {
		t.Errorf("it shows %q", got)
	}
}

// A service manager is told while the run waits, and the command has its variable.
func TestNotify(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"path", "abstract"} {
		w := local(t)
		address := filepath.Join(t.TempDir(), "notify")
		name := address
		if kind == "abstract" {
			address = "@" + address
			name = address
		}
		manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer manager.Close()
		heard := func() string {
			t.Helper()
			buffer := make([]byte, 4096)
			_ = manager.SetReadDeadline(time.Now().Add(limit))
			n, err := manager.Read(buffer)
			if err != nil {
				t.Fatal(err)
			}
			return string(buffer[:n])
		}
		w.env = []string{"NOTIFY_SOCKET=" + address}
		free := w.start("run", "--name", "free", "--", "true")
		free.code(0) // says nothing: what comes first below is the other's

		release := w.hold("job")
		p := w.start("run", "--name", "job", "-q", "--", "sh", "-c", "echo $NOTIFY_SOCKET")
		if got := heard(); got != "STATUS=waiting for \"job\": next in line\nEXTEND_TIMEOUT_USEC=120000000" {
			t.Errorf("first %q", got)
		}
		if got := heard(); !strings.HasPrefix(got, "STATUS=waiting for \"job\": next in line, held by pid ") || !strings.HasSuffix(got, "\nEXTEND_TIMEOUT_USEC=120000000") {
			t.Errorf("then %q", got)
		}
		release()
		p.code(0)
		for got := heard(); got != "STATUS=\nEXTEND_TIMEOUT_USEC=120000000"; got = heard() {
			if !strings.HasPrefix(got, "STATUS=waiting") {
				t.Errorf("also %q", got)
			}
		}
		if got := p.all(); got != address+"\n" {
			t.Errorf("the command sees %q", got)
		}
	}
}

// A manager that takes nothing, or is not there, is in nobody's way.
func TestNotifyNobody(t *testing.T) {
	t.Parallel()
	w := local(t)
	full := filepath.Join(t.TempDir(), "full")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: full, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	fill, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: full, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	_ = fill.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	for err == nil {
		_, err = fill.Write([]byte("x"))
	}
	fill.Close()
	for _, address := range []string{full, "/no/such/socket", "@", "vsock:1:2", "relative"} {
		w.env = []string{"NOTIFY_SOCKET=" + address}
		release := w.hold("job")
		p := w.start("run", "--name", "job", "-v", "--", "true")
		p.shows("waiting\n")
		release()
		p.code(0)
		if strings.Contains(p.all(), "warning") {
			t.Errorf("%s: %q", address, p.all())
		}
	}
}

func pid() string {
	link, _ := os.Readlink("/proc/self")
	return link
}
