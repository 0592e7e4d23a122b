package testkit

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Command is a program that is going to be started in a sandbox.
type Command struct {
	s      *Sandbox
	Argv   []string
	Env    []string // the whole environment
	Dir    string
	Stdin  *os.File // nil: /dev/null, or with Start a pipe
	Stdout *os.File // nil: a file, or with Start a pipe read line by line
	Stderr *os.File // nil: a file
	UID    int      // other than 0: the user and group it runs as
	Traced bool     // the calling thread traces the process until Process.Untraced
}

// Exec prepares any program.
func (s *Sandbox) Exec(argv ...string) *Command {
	return &Command{s: s, Argv: argv, Dir: s.Dir, Env: s.Env}
}

// Golock prepares golock with exactly these arguments.
func (s *Sandbox) Golock(args ...string) *Command {
	return s.Exec(append([]string{Golock}, args...)...)
}

// Lock prepares golock run of a lock in the sandbox's store.
func (s *Sandbox) Lock(name string, args ...string) *Command {
	return s.Golock(append([]string{"run", "--store", s.Store, "--name", name}, args...)...)
}

// Job prepares golock run of the lock "job".
func (s *Sandbox) Job(args ...string) *Command { return s.Lock("job", args...) }

// By puts a program in front of the one that was prepared.
func (c *Command) By(argv ...string) *Command {
	c.Argv = append(slices.Clone(argv), c.Argv...)
	return c
}

// Sh lets a shell do something and then become what was prepared.
func (c *Command) Sh(script string) *Command {
	return c.By("bash", "-c", script+"; exec \"$@\"", "bash")
}

// Setenv adds variables.
func (c *Command) Setenv(vars ...string) *Command {
	c.Env = append(slices.Clone(c.Env), vars...)
	return c
}

// As lets another user run it.
func (c *Command) As(uid int) *Command {
	c.UID = uid
	return c
}

// Process is a started one, the leader of a session without a terminal.
type Process struct {
	T     testing.TB
	PID   int
	In    *os.File      // the write end of standard input, if Start made the pipe
	Lines chan string   // the lines on standard output, if Start made the pipe; closed at the end
	Ended chan struct{} // closed when it has been reaped

	s       *Sandbox
	argv    []string
	process *os.Process // which is signalled by a pidfd and never after its end
	began   time.Time
	stderr  *os.File
	stdout  *os.File
	outcome Result

	terminal *terminal // nil: none
	seen     int       // how much of the output Shows has found
}

// Start starts the program with a pipe as stdin and one as stdout.
func (c *Command) Start() *Process {
	t := c.s.T
	t.Helper()
	p := &Process{}
	var theirs []*os.File // the ends of the pipes that the new process gets
	pipe := func() (r, w *os.File) {
		t.Helper()
		r, w, err := os.Pipe()
		Must(t, err)
		return r, w
	}
	if c.Stdin == nil {
		c.Stdin, p.In = pipe()
		theirs = append(theirs, c.Stdin)
		t.Cleanup(func() { p.In.Close() })
	}
	if c.Stdout == nil {
		r, w := pipe()
		c.Stdout, theirs = w, append(theirs, w)
		p.Lines = make(chan string, 1<<16)
		go func() {
			defer close(p.Lines)
			defer r.Close()
			for in := bufio.NewScanner(r); in.Scan(); {
				p.Lines <- in.Text()
			}
		}()
	}
	c.launch(p)
	for _, f := range theirs {
		f.Close()
	}
	return p
}

// Begin starts the program with stdin from /dev/null and stdout to a file.
func (c *Command) Begin() *Process {
	c.s.T.Helper()
	p := &Process{}
	if c.Stdin == nil {
		null, err := os.Open(os.DevNull)
		Must(c.s.T, err)
		defer null.Close()
		c.Stdin = null
	}
	if c.Stdout == nil {
		c.Stdout = c.scratch()
		p.stdout = c.Stdout
	}
	c.launch(p)
	return p
}

// Run runs the program to its end.
func (c *Command) Run() Result {
	c.s.T.Helper()
	return c.Begin().Wait()
}

// RunAll runs programs to their ends, a few at a time.
func RunAll(all []*Command) []Result {
	const together = 3
	procs, results := make([]*Process, len(all)), make([]Result, len(all))
	for i := range len(all) + together {
		if i < len(all) {
			procs[i] = all[i].Begin()
		}
		if i >= together {
			results[i-together] = procs[i-together].Wait()
		}
	}
	return results
}

// scratch makes an open file that is not in the working directory.
func (c *Command) scratch() *os.File {
	c.s.T.Helper()
	f, err := os.CreateTemp(filepath.Dir(c.s.Dir), "out")
	Must(c.s.T, err)
	c.s.T.Cleanup(func() { f.Close() })
	return f
}

func (c *Command) launch(p *Process) {
	t := c.s.T
	t.Helper()
	p.T, p.s, p.argv, p.Ended = t, c.s, c.Argv, make(chan struct{})
	if c.Stderr == nil {
		c.Stderr = c.scratch()
		p.stderr = c.Stderr
	}
	path := c.Argv[0]
	if !strings.Contains(path, "/") {
		path = Need(t, path)
	}
	attributes := &syscall.SysProcAttr{Setsid: true, Setctty: p.terminal != nil, Ptrace: c.Traced}
	if c.UID != 0 {
		id := uint32(c.UID)
		attributes.Credential = &syscall.Credential{Uid: id, Gid: id}
	}
	p.began = time.Now()
	var err error
	p.process, err = os.StartProcess(path, c.Argv, &os.ProcAttr{
		Dir:   c.Dir,
		Env:   c.Env,
		Files: []*os.File{c.Stdin, c.Stdout, c.Stderr},
		Sys:   attributes,
	})
	if err != nil {
		t.Fatalf("starting %q: %v", c.Argv, err)
	}
	p.PID = p.process.Pid
	if !c.Traced { // the wait would take events from the tracer
		go p.reap()
	}
	t.Cleanup(func() {
		_ = p.process.Kill()
		select {
		case <-p.Ended:
		case <-time.After(Patience):
			t.Errorf("killed, and still there after %v: %s", Patience, Describe([]int{p.PID}))
		}
	})
}

// Untraced must be called when the tracing of a process has ended.
func (p *Process) Untraced() { go p.reap() }

func (p *Process) reap() {
	defer close(p.Ended)
	state, err := p.process.Wait()
	p.outcome.Took = time.Since(p.began)
	if err != nil {
		p.outcome.Code, p.outcome.Stderr = -2, err.Error()
		return
	}
	p.outcome.Code = state.ExitCode()
	p.outcome.CPU = state.UserTime() + state.SystemTime()
	if ws := state.Sys().(syscall.WaitStatus); ws.Signaled() {
		p.outcome.Signal, p.outcome.Core = ws.Signal(), ws.CoreDump()
	}
}

// Running reports whether the process has not been reaped yet.
func (p *Process) Running() bool {
	select {
	case <-p.Ended:
		return false
	default:
		return true
	}
}

// Wait returns how the process ended and fails the test if it does not end.
func (p *Process) Wait() Result {
	p.T.Helper()
	select {
	case <-p.Ended:
	case <-time.After(Patience):
		p.T.Fatalf("%q has not ended after %v; running: %s; stderr %q", p.argv, Patience, p.s.All(), p.Stderr())
	}
	Eventually(p.T, "its terminal is closed", func() bool { return p.terminal == nil || p.drained() })
	r := p.outcome
	r.Stdout, r.Stderr = slurp(p.stdout), r.Stderr+slurp(p.stderr)
	return r
}

// Stderr returns what the process has written to standard error so far.
func (p *Process) Stderr() string { return slurp(p.stderr) }

// Stdout is the same of standard output, but for a process of Start.
func (p *Process) Stdout() string { return slurp(p.stdout) }

func slurp(f *os.File) string {
	if f == nil {
		return ""
	}
	info, err := f.Stat()
	if err != nil {
		return err.Error()
	}
	text := make([]byte, info.Size())
	n, _ := f.ReadAt(text, 0)
	return string(text[:n])
}

// Line returns the next line that the command wrote.
func (p *Process) Line() string {
	p.T.Helper()
	select {
	case line, ok := <-p.Lines:
		if !ok {
			p.T.Fatalf("%q closed its output: %v", p.argv, p.Wait())
		}
		return line
	case <-time.After(Patience):
		p.T.Fatalf("%q wrote no further line in %v; running: %s; stderr %q", p.argv, Patience, p.s.All(), p.Stderr())
	}
	return ""
}

// Rest returns the lines to the end of the output, which comes when nobody is
// left who could write.
func (p *Process) Rest() []string {
	p.T.Helper()
	var rest []string
	for late := time.After(Patience); ; {
		select {
		case line, ok := <-p.Lines:
			if !ok {
				return rest
			}
			rest = append(rest, line)
		case <-late:
			p.T.Fatalf("after %v the output of %q has not ended; it wrote %q; running: %s; %v", Patience, p.argv, rest, p.s.All(), p.Wait())
		}
	}
}

// Expect reads a line and fails the test if it is another one.
func (p *Process) Expect(want string) {
	p.T.Helper()
	if got := p.Line(); got != want {
		p.T.Fatalf("the command wrote %q, want %q; stderr %q", got, want, p.Stderr())
	}
}

// ExpectPID reads a line "WORD PID" and returns the number.
func (p *Process) ExpectPID(word string) int {
	p.T.Helper()
	got := p.Line()
	pid, err := strconv.Atoi(strings.TrimPrefix(got, word+" "))
	if err != nil {
		p.T.Fatalf("the command wrote %q, want %q and a number", got, word)
	}
	return pid
}

// Tell writes a line to the command's stdin.
func (p *Process) Tell(line string) {
	p.T.Helper()
	_, err := io.WriteString(p.In, line+"\n")
	Must(p.T, err)
}

// Signal sends a signal to the process itself, not to its group.
func (p *Process) Signal(sig syscall.Signal) {
	p.T.Helper()
	if !p.Running() {
		p.T.Fatalf("signal %d: %q has ended: %v", sig, p.argv, p.Wait())
	}
	if err := p.process.Signal(sig); err != nil {
		p.T.Fatalf("signal %d to %q: %v", sig, p.argv, err)
	}
}

// Says waits until standard error has a text.
func (p *Process) Says(text string) {
	p.T.Helper()
	if !Within(Patience, func() bool { return strings.Contains(p.Stderr(), text) }) {
		p.T.Fatalf("%q does not say %q but %q", p.argv, text, p.Stderr())
	}
}

// Expects waits for the end of the process, which must have this exit code and these words on
// standard error.
func (p *Process) Expects(code int, words ...string) Result {
	p.T.Helper()
	return p.Wait().Expect(p.T, code, words...)
}

// DiesOf waits for the end of the process, which must die of this signal.
func (p *Process) DiesOf(sig syscall.Signal) Result {
	p.T.Helper()
	return p.Wait().ExpectDeath(p.T, sig)
}

// Hold starts a golock that holds a slot of a lock until Finish.
func (s *Sandbox) Hold(name string, flags ...string) *Process {
	s.T.Helper()
	p := s.Lock(name, append(flags, "--", "sh", "-c", "echo holding; read code; exit $code")...).Start()
	p.Expect("holding")
	return p
}

// Finish ends a holder.
func (p *Process) Finish() {
	p.T.Helper()
	p.Tell("0")
	p.Expects(0)
}
