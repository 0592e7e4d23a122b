package check

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// run is one run of the tool around one child.
type run struct {
	test   *Test
	number int
	child  []string
	kill   moment

	started int64 // before it was started
	queued  int64 // when it was known to wait; 0: it was not
	ended   int64
	killed  bool
	stopped bool   // the test was over before it had ended
	code    int    // exit code, 128+N for a signal
	message string // the last line of its standard error, of golock's log the last error
	line    []byte // of standard error, without its end yet
}

// moment is when a run is killed.
type moment struct {
	never  bool
	inside bool          // when its child is inside
	after  time.Duration // of its start, if not inside
}

// stopLimit is how long a run may take to end after it was told to.
const stopLimit = 5 * time.Second

// lineLimit bounds how much of a line is kept.
const lineLimit = 64 << 10

// do runs the tool and returns when nobody has its standard error open any more: then
// what a killed tool left running has ended too. The tool has a session of its own, so
// that a key on the terminal reaches only the test.
func (r *run) do(ctx context.Context) {
	defer func() { r.ended, r.stopped = now(), ctx.Err() != nil }()
	argv := r.test.Command(r.child)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = r.test.Env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stderr = r
	cmd.WaitDelay = stopLimit
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	var word *os.File // the child says here that it is inside
	if r.kill.inside {
		var err error
		if word, err = makePipe(r.test.Dir, r.number); err != nil {
			r.code, r.message = 127, err.Error()
			return
		}
		defer word.Close()
	}
	r.started = now()
	if !r.test.Golock { // it does not tell when it waits
		r.queued = r.started
	}
	if err := cmd.Start(); err != nil {
		r.code, r.message = 127, err.Error()
		return
	}
	kill := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	switch {
	case r.kill.never:
	case r.kill.inside:
		// The goroutine ends when word is closed.
		go func() {
			if _, err := word.Read(make([]byte, 1)); err == nil {
				kill()
			}
		}()
	default:
		defer time.AfterFunc(r.kill.after, kill).Stop()
	}
	_ = cmd.Wait() // the state says more
	r.readLine(r.line)
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if r.code = status.ExitStatus(); status.Signaled() {
		r.code = 128 + int(status.Signal())
		r.killed = !r.kill.never && status.Signal() == syscall.SIGKILL
	}
}

// Write takes what the run writes to standard error.
func (r *run) Write(b []byte) (int, error) {
	for part := range bytes.Lines(b) {
		r.line = append(r.line, part[:min(len(part), lineLimit-len(r.line))]...)
		if part[len(part)-1] == '\n' {
			r.readLine(r.line)
			r.line = r.line[:0]
		}
	}
	return len(b), nil
}

// readLine reads a line of standard error.
func (r *run) readLine(line []byte) {
	text := string(bytes.TrimSpace(line))
	var event struct{ Level, Msg string }
	switch logged := r.test.Golock && json.Unmarshal(line, &event) == nil; {
	case !logged && text != "": // of another tool, or of a panic
		r.message = text
	case event.Level == "error":
		r.message = event.Msg
	case event.Msg == "waiting" && r.queued == 0: // it has its place in the queue
		r.queued = now()
	}
}

// Quote writes words so that a shell reads them as they are.
func Quote(words []string) string {
	text := strings.ReplaceAll(strings.Join(words, "\x00"), "'", `'\''`)
	return "'" + strings.ReplaceAll(text, "\x00", "' '") + "'"
}
