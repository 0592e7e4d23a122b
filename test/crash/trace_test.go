//go:build integration

package crash_test

import (
	"fmt"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"golock/test/testkit"
)

// trace starts a golock under ptrace(2) and calls when at the begin and the end of each system call of
// any thread. A signal that when returns is sent there and ends the tracing. trace returns after that,
// or when the golock has ended before.
func (w *world) trace(flags []string, when func(*proc) syscall.Signal) *proc {
	w.T.Helper()
	p, c := w.prepare(0, flags...)
	c.Traced = true
	over := make(chan error)
	go func() { over <- p.follow(c, when) }()
	testkit.Must(w.T, <-over)
	// Not earlier: a wait(2) would get the events of the tracer.
	w.Eventually("the tracing is over", func() bool {
		state := testkit.StatOf(p.PID).State
		return state == 'T' || state == 'Z'
	})
	p.Untraced()
	return p
}

// threadAlone stops only the thread that makes the system call, until goOn is closed, which ends the
// tracing.
const threadAlone = syscall.SIGTRAP

// follow traces p. The tracer is a thread. It stays locked to this goroutine, so it ends with it, and
// the tracing with the thread.
func (p *proc) follow(c *testkit.Command, when func(*proc) syscall.Signal) error {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() { // the one that would not end; it is out of the way now
		over := make(chan error)
		go func() { over <- p.follow(c, when) }()
		return <-over
	}
	p.Process = c.Start()
	defer time.AfterFunc(testkit.Patience, func() { p.world.Signal(p.PID, syscall.SIGKILL) }).Stop()
	const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEEXIT
	alone := 0
	for begun := false; ; begun = true {
		// Its threads, and nothing else, are in the group of that number.
		var ws unix.WaitStatus
		tid, err := unix.Wait4(-p.PID, &ws, unix.WALL|alone, nil)
		if err == nil && tid == 0 { // the others are busy
			select {
			case <-p.goOn:
				return nil
			case <-time.After(time.Millisecond):
			}
		}
		if err == unix.EINTR || err == nil && tid == 0 {
			continue
		}
		if err == nil && !begun {
			err = unix.PtraceSetOptions(tid, options)
		}
		if err != nil {
			return fmt.Errorf("golock %d: %w", p.token, err)
		}
		pass := 0
		switch sig := ws.StopSignal(); {
		case !ws.Stopped(): // a thread has ended
			continue
		case sig == unix.SIGTRAP && ws.TrapCause() == unix.PTRACE_EVENT_EXIT && tid == p.PID:
			return nil
		case sig == unix.SIGTRAP|0x80:
			switch end := when(p); end {
			case 0:
			case threadAlone:
				alone = unix.WNOHANG
				continue
			default:
				p.judged = end == syscall.SIGKILL
				p.Signal(end)
				return nil
			}
		case sig != unix.SIGTRAP && sig != unix.SIGSTOP: // which are news of execve and of new threads
			pass = int(sig)
		}
		if err := unix.PtraceSyscall(tid, pass); err != nil && err != unix.ESRCH {
			return fmt.Errorf("golock %d: %w", p.token, err)
		}
	}
}
