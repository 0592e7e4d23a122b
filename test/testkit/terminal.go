package testkit

import (
	"os"
	"regexp"
	"sync"
	"sync/atomic"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// terminal is the other side of a process's terminal.
type terminal struct {
	*os.File
	hangUp  sync.Once
	closing atomic.Bool
	drained chan struct{} // closed when nothing more can come
}

// OnTerminal starts the program as the leader of a terminal of that size. What
// the terminal shows is the standard output of the process.
func (c *Command) OnTerminal(columns, rows uint16) *Process {
	t := c.s.T
	t.Helper()
	ours, theirs, err := pty.Open()
	Must(t, err)
	p := &Process{T: t, stdout: c.scratch()}
	p.terminal = &terminal{File: ours, drained: make(chan struct{})}
	p.Resize(columns, rows)
	t.Cleanup(p.HangUp)
	go p.show()
	c.Stdin, c.Stdout, c.Stderr = theirs, theirs, theirs
	c.launch(p)
	theirs.Close()
	return p
}

// show copies what is shown until nobody has the terminal open any more.
func (p *Process) show() {
	x := p.terminal
	defer close(x.drained)
	buffer := make([]byte, 4096)
	// Close does not end a Read of a terminal, so none begins early.
	ready := []unix.PollFd{{Fd: int32(x.Fd()), Events: unix.POLLIN}}
	for {
		if n, _ := unix.Poll(ready, 20); n <= 0 {
			if x.closing.Load() {
				return
			}
			continue
		}
		n, err := x.Read(buffer)
		_, _ = p.stdout.Write(buffer[:n])
		if err != nil {
			return
		}
	}
}

// HangUp closes the terminal.
func (p *Process) HangUp() {
	x := p.terminal
	x.hangUp.Do(func() {
		x.closing.Store(true)
		<-x.drained
		x.Close()
	})
}

// Resize changes the size of the terminal.
func (p *Process) Resize(columns, rows uint16) {
	p.T.Helper()
	Must(p.T, pty.Setsize(p.terminal.File, &pty.Winsize{Cols: columns, Rows: rows}))
}

// Key types on the terminal.
func (p *Process) Key(text string) {
	p.T.Helper()
	_, err := p.terminal.WriteString(text)
	Must(p.T, err)
}

// Bash starts an interactive shell on a terminal. $G is golock.
func (s *Sandbox) Bash(vars ...string) *Process {
	s.T.Helper()
	return s.Exec("bash", "--norc", "--noprofile", "--noediting", "-i").
		Setenv("PS1=ready> ", "TERM=xterm", "G="+Golock).Setenv(vars...).OnTerminal(200, 24)
}

// Type types a line at the prompt of Bash.
func (p *Process) Type(line string) {
	p.T.Helper()
	p.Shows("ready> ")
	p.Key(line + "\n")
	p.Shows(regexp.QuoteMeta(line)) // the echo
}

// Follow starts the program with stdin from /dev/null and both outputs to a
// file that Shows reads.
func (c *Command) Follow() *Process {
	c.s.T.Helper()
	c.Stdout = c.scratch()
	c.Stderr = c.Stdout
	p := c.Begin()
	p.stdout = c.Stdout
	return p
}

// Shows waits until the output since the last call matches a regular expression,
// and returns what matches.
func (p *Process) Shows(expression string) string {
	p.T.Helper()
	re := regexp.MustCompile(expression)
	found, rest := "", ""
	if !Within(Patience, func() bool {
		ended := p.drained()
		rest = p.Stdout()[p.seen:]
		at := re.FindStringIndex(rest)
		if at != nil {
			found = rest[at[0]:at[1]]
			p.seen += at[1]
		}
		return at != nil || ended
	}) || found == "" {
		p.T.Fatalf("%q does not show %q but, in the end, %q; running: %s", p.argv, expression,
			rest[max(len(rest)-2000, 0):], p.s.All())
	}
	return found
}

// drained reports whether the process has ended and its output is complete.
func (p *Process) drained() bool {
	if p.terminal == nil {
		return !p.Running()
	}
	select {
	case <-p.terminal.drained:
		return !p.Running()
	default:
		return false
	}
}
