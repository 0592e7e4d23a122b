// Pins that the line of a run that waits keeps out of the way of a shell's job
// control, and that the message of a busy lock names who holds it, in every
// store.

package seeing_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// shell starts an interactive bash on a terminal.
func (w *world) shell() *proc {
	w.t.Helper()
	p := &proc{t: w.t, cmd: exec.Command("bash", "--norc", "--noprofile", "--noediting", "-i"), ended: make(chan struct{})}
	p.cmd.Dir = w.dir
	p.cmd.Env = append(w.command(nil).Env, "PS1=ready> ", "G="+golock)
	var err error
	if p.pty, err = pty.StartWithSize(p.cmd, &pty.Winsize{Cols: 200, Rows: 24}); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		buffer := make([]byte, 4096)
		for {
			n, err := p.pty.Read(buffer)
			_, _ = p.Write(buffer[:n])
			if err != nil {
				break
			}
		}
		_ = p.cmd.Wait()
		p.pty.Close()
	}()
	return w.follow(p)
}

func (p *proc) key(text string) {
	p.t.Helper()
	if _, err := p.pty.WriteString(text); err != nil {
		p.t.Fatal(err)
	}
}

func TestLineAndJobControl(t *testing.T) {
	t.Parallel()
	w := local(t)
	release := w.hold("job")
	x := w.shell()
	x.shows("ready> ")
	x.key("$G run --name job -- echo do''ne\n")
	x.shows(`\r\x1b\[Kgolock: waiting for "job": next in line, held by`)
	x.key("\x1a")
	x.shows(`\r\x1b\[K\r?\n?.*Stopped`) // the line is gone before the shell writes
	x.shows("ready> ")
	// In the background it writes nothing, whatever the shell does meanwhile.
	x.key("bg; sleep 2.5; echo la''ter\n")
	if quiet := x.shows("later"); strings.Contains(quiet, "waiting") {
		t.Errorf("in the background: %q", quiet)
	}
	if seen := x.all()[strings.LastIndex(x.all(), "bg; sleep"):]; strings.Contains(seen, "waiting for") {
		t.Errorf("in the background: %q", seen)
	}
	x.key("fg\n")
	x.shows(`\r\x1b\[Kgolock: waiting for "job": next in line, held by`)
	release()
	x.shows(`\r\x1b\[Kdone`)
	x.shows("ready> ")
	// Ctrl-C.
	release = w.hold("job")
	x.key("$G run --name job -- true; echo code=$?\n")
	x.shows(`waiting for "job": next in line, held by`)
	x.key("\x03")
	x.shows(`\r\x1b\[K`)
	x.shows(`code=130`)
	release()
	x.key("exit\n")
	<-x.ended
}

// Who is in the way is named with process, command and time, and with the host
// where that may be another.
func TestBusyNamesTheHolder(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	const when = ` since [0-9-]{10} [0-9:]{8}$`
	for name, c := range map[string]struct {
		make func(*testing.T) *world
		want string
	}{
		"local": {local, `is busy: held by pid [0-9]+ \(sh -c .*\)` + when},
		"flock": {func(t *testing.T) *world {
			w := local(t)
			w.url = "flock://" + w.dir + "/lock"
			return w
		}, `is busy: held by pid [0-9]+ \(.*\)` + when},
		"bind": {func(t *testing.T) *world {
			w := local(t)
			w.url = "bind://" + w.dir + "/socket"
			return w
		}, `is busy: held by pid [0-9]+ \(.*\)` + when},
		"mkdir": {func(t *testing.T) *world {
			w := local(t)
			w.url = "mkdir://" + w.dir
			return w
		}, `is busy: held by pid [0-9]+ on ` + regexp.QuoteMeta(host) + ` \(sh \+[0-9]+ args\)` + when},
		"redis": {networked, `is busy: held by pid [0-9]+ on ` + regexp.QuoteMeta(host) + ` \(sh \+[0-9]+ args\)` + when},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := c.make(t)
			defer w.hold("job")()
			for _, how := range [][]string{{"-n"}, {"-w", "0.1"}} {
				p := w.start(append(append([]string{"run", "--name", "job"}, how...), "--", "true")...)
				p.code(75)
				if got := strings.TrimSpace(p.all()); !regexp.MustCompile(c.want).MatchString(got) {
					t.Errorf("%v: %q does not match %q", how, got, c.want)
				}
			}
		})
	}
}
