package check

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// run is one run of the tool around one child.
type run struct {
	test       *Test
	number     int
	child      []string
	killAfter  time.Duration // 0: it is not killed
	killInside bool          // it is killed as soon as its child is inside instead

	started int64 // before it was started
	queued  int64 // when it was known to wait; 0: it was not
	ended   int64
	killed  bool
	stopped bool   // the test was over before it had ended
	code    int    // exit code, 128+N for a signal
	output  []byte // the beginning of its standard error; of golock's log only errors
	line    []byte // the last line of standard error, if it has no end yet
}

// stopLimit is how long a run may take to end after it was told to.
const stopLimit = 5 * time.Second

// outputLimit bounds how much of a tool's output is kept.
const outputLimit = 4096

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
	r.started = now()
	if err := cmd.Start(); err != nil {
		r.code, r.output = 127, []byte(err.Error())
		return
	}
	running, over := context.WithCancel(ctx)
	var killer sync.WaitGroup
	if r.killAfter > 0 {
		killer.Go(func() { r.killInTime(running, cmd.Process.Pid) })
	}
	_ = cmd.Wait() // the state says more
	over()
	killer.Wait()
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if r.code = status.ExitStatus(); status.Signaled() {
		r.code = 128 + int(status.Signal())
		r.killed = r.killAfter > 0 && status.Signal() == syscall.SIGKILL
	}
}

// killInTime kills the tool when it is time for that, unless ctx ends first. The child has
// left the tool's process group, and must manage without it.
func (r *run) killInTime(ctx context.Context, tool int) {
	pause := r.killAfter
	if r.killInside {
		pause = time.Millisecond
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		if !r.killInside || isInside(r.child[2], r.number) {
			_ = syscall.Kill(-tool, syscall.SIGKILL)
			return
		}
	}
}

// message is the last line of the output, of golock the last error.
func (r *run) message() string {
	output := strings.TrimSpace(string(r.output))
	return strings.TrimSpace(output[strings.LastIndexByte(output, '\n')+1:])
}

// Write takes what the run writes to standard error.
func (r *run) Write(b []byte) (int, error) {
	if !r.test.Golock {
		r.keep(b)
		return len(b), nil
	}
	r.line = append(r.line, b...)
	for {
		line, rest, whole := bytes.Cut(r.line, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		r.readLog(line)
		r.line = rest
	}
}

// readLog reads one line of golock's log.
func (r *run) readLog(line []byte) {
	var event struct{ Level, Msg string }
	switch err := json.Unmarshal(line, &event); {
	case err != nil: // a panic
		r.keep(append(line, '\n'))
	case event.Level == "error":
		r.keep([]byte(event.Msg + "\n"))
	case event.Msg == "waiting" && r.queued == 0: // it has its place in the queue
		r.queued = now()
	}
}

func (r *run) keep(b []byte) {
	r.output = append(r.output, b[:min(len(b), outputLimit-len(r.output))]...)
}

// Quote writes words so that a shell reads them as they are.
func Quote(words []string) string {
	text := strings.ReplaceAll(strings.Join(words, "\x00"), "'", `'\''`)
	return "'" + strings.ReplaceAll(text, "\x00", "' '") + "'"
}
