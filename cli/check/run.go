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
	kill   killTime

	// These times are in nanoseconds of now.
	started int64 // just before the tool was started, or could not be
	queued  int64 // when the tool was known to wait; 0 if that is not known
	ended   int64

	killed  bool
	stopped bool   // the test was over before the run had ended
	code    int    // the exit code, 128+N for a signal
	message string // the last line on standard error; for golock the last error in its log
	line    []byte // the beginning of a line on standard error that has not ended yet
}

// killTime says when a run is killed.
type killTime struct {
	never  bool          // the run is not killed
	inside bool          // the kill comes when the child is inside
	after  time.Duration // if inside is false: the time from the start to the kill
}

// stopLimit is the time that a run gets to end after TERM.
const stopLimit = 5 * time.Second

// lineLimit is the number of bytes of a line that are kept.
const lineLimit = 64 << 10

// do runs the tool. It returns when no process has the tool's standard error open any more, so that
// processes that a killed tool left running have ended too. The tool has a session of its own, so that
// a key on the terminal reaches only the test.
func (r *run) do(ctx context.Context) {
	defer func() {
		r.ended = now()
		r.stopped = ctx.Err() != nil
	}()
	r.started = now()
	if !r.test.Golock { // other tools do not say when they wait
		r.queued = r.started
	}
	argv := r.test.Command(r.child)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = r.test.Env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stderr = r
	cmd.WaitDelay = stopLimit
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	var pipe *os.File // the child writes into it when it is inside
	if r.kill.inside {
		var err error
		pipe, err = makePipe(r.test.Dir, r.number)
		if err != nil {
			r.code, r.message = 127, err.Error()
			return
		}
		defer pipe.Close()
	}
	if err := cmd.Start(); err != nil {
		r.code, r.message = 127, err.Error()
		return
	}
	kill := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	switch {
	case r.kill.never:
	case r.kill.inside:
		// The goroutine ends when the pipe is closed.
		go func() {
			_, err := pipe.Read(make([]byte, 1))
			if err == nil {
				kill()
			}
		}()
	default:
		defer time.AfterFunc(r.kill.after, kill).Stop()
	}
	_ = cmd.Wait() // ProcessState says more than the error
	r.readLine(r.line)
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	r.code = status.ExitStatus()
	if status.Signaled() {
		r.code = 128 + int(status.Signal())
		r.killed = !r.kill.never && status.Signal() == syscall.SIGKILL
	}
}

// Write gets what the run writes to standard error. It keeps a line until its end has come.
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
	isEvent := false
	if r.test.Golock {
		isEvent = json.Unmarshal(line, &event) == nil
	}
	switch {
	case !isEvent && text != "": // a line of another tool, or of a panic
		r.message = text
	case event.Level == "error":
		r.message = event.Msg
	case event.Msg == "waiting" && r.queued == 0: // golock has its place in the queue
		r.queued = now()
	}
}

// Quote quotes words for a shell.
func Quote(words []string) string {
	text := strings.ReplaceAll(strings.Join(words, "\x00"), "'", `'\''`)
	return "'" + strings.ReplaceAll(text, "\x00", "' '") + "'"
}
