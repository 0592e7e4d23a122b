package check

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// run is one run of the tool around one child.
type run struct {
	tool   *Tool
	number int
	child  []string
	doom   time.Duration // when it is to be killed; 0: never

	started int64 // before it was started
	queued  int64 // when it was known to wait; 0: it was not
	ended   int64
	killed  bool
	stopped bool  // the test was over before it had ended
	code    int   // exit code, 128+N for a signal
	err     error // it could not be started
	said    []byte
}

// stopLimit is how long a run may take to end after it was told to.
const stopLimit = 5 * time.Second

// keptWords bounds how much is kept of what a tool says.
const keptWords = 4096

// do runs the tool and returns when it has ended and nobody has its standard
// error open any more: then also what a killed one had left running has ended.
// It has a session of its own, so that a key on the terminal reaches nobody but
// the test.
func (r *run) do(ctx context.Context) {
	defer func() { r.ended, r.stopped = now(), ctx.Err() != nil }()
	argv := r.tool.Command(r.child)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = r.tool.Env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stderr = &listener{run: r}
	cmd.WaitDelay = stopLimit
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	r.started = now()
	if r.err = cmd.Start(); r.err != nil {
		r.code = 127
		return
	}
	if r.doom > 0 {
		timer := time.AfterFunc(r.doom, func() { r.kill(cmd.Process) })
		defer timer.Stop()
	}
	err := cmd.Wait()
	if cmd.ProcessState == nil {
		r.err = err
		return
	}
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if r.code = status.ExitStatus(); status.Signaled() {
		r.code = 128 + int(status.Signal())
		r.killed = r.doom > 0 && status.Signal() == syscall.SIGKILL
	}
}

// message is the last line that the run said, of golock's the last error.
func (r *run) message() string {
	if r.err != nil {
		return r.err.Error()
	}
	last := ""
	for line := range strings.Lines(string(r.said)) {
		if line = strings.TrimSpace(line); line != "" {
			last = line
		}
	}
	return last
}

// listener takes what a run says. It is called by one goroutine at a time.
type listener struct {
	run  *run
	rest []byte // of a line without its end
}

func (l *listener) Write(b []byte) (int, error) {
	if !l.run.tool.Golock {
		l.run.keep(b)
		return len(b), nil
	}
	l.rest = append(l.rest, b...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		l.run.hear(line)
		l.rest = rest
	}
}

// hear understands one line of golock's log.
func (r *run) hear(line []byte) {
	var said struct {
		Level string `json:"level"`
		Msg   string `json:"msg"`
	}
	switch err := json.Unmarshal(line, &said); {
	case err != nil: // a command that broke down says it in its own way
		r.keep(append(line, '\n'))
	case said.Level == "error":
		r.keep([]byte(said.Msg + "\n"))
	case said.Msg == waitingMessage && r.queued == 0:
		r.queued = now()
	}
}

// waitingMessage is what golock says when it has its place in the queue.
const waitingMessage = "waiting"

func (r *run) keep(b []byte) {
	r.said = append(r.said, b[:min(len(b), keptWords-len(r.said))]...)
}

// Quote writes words so that a shell reads them as they are.
func Quote(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}
