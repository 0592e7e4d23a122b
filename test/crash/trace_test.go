package crash_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// This file pins nothing. It hits a golock at one chosen instant of its life,
// which signals at random instants find once in many tries or never.

// trace starts a golock under ptrace(2) and asks when at the begin and the end
// of each of its system calls, whichever thread makes it. A signal that when
// gives, STOP or KILL, hits the golock there and ends the tracing; trace
// returns when that is done, or gives false when the golock has ended before.
func (w *world) trace(s spec, when func(*proc) syscall.Signal) (p *proc, hit bool) {
	w.t.Helper()
	p = w.newProc(s)
	over := make(chan error)
	go func() { over <- p.follow(when, &hit) }()
	if err := <-over; err != nil {
		w.t.Fatalf("tracing a golock: %v", err)
	}
	// Waited for too early it could not be stopped: the tracer's news would go
	// to whoever waits.
	await(w.t, "the end of the tracing", func() bool {
		state := processState(p.process.Pid)
		return state == 'T' || state == 'Z'
	})
	go p.reap()
	return p, hit
}

// follow traces p. Tracer is a thread; this one ends with the goroutine, which
// keeps it locked, and with the thread ends the tracing.
func (p *proc) follow(when func(*proc) syscall.Signal, hit *bool) error {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() { // the one that would not end; it is out of the way now
		over := make(chan error)
		go func() { over <- p.follow(when, hit) }()
		return <-over
	}
	if err := p.begin(nil, true); err != nil {
		return err
	}
	defer time.AfterFunc(limit, func() { _ = p.process.Kill() }).Stop()
	const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEEXIT
	for pid, begun := p.process.Pid, false; ; begun = true {
		// Its threads, and nothing else, are in the group of that number.
		var ws unix.WaitStatus
		tid, err := unix.Wait4(-pid, &ws, unix.WALL, nil)
		if err == unix.EINTR {
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
		case sig == unix.SIGTRAP && ws.TrapCause() == unix.PTRACE_EVENT_EXIT && tid == pid:
			return nil
		case sig == unix.SIGTRAP|0x80:
			if end := when(p); end != 0 {
				*hit = true
				return p.process.Signal(end)
			}
		case sig != unix.SIGTRAP && sig != unix.SIGSTOP: // which are news of execve and of new threads
			pass = int(sig)
		}
		if err := unix.PtraceSyscall(tid, pass); err != nil && err != unix.ESRCH {
			return fmt.Errorf("golock %d: %w", p.token, err)
		}
	}
}

// processState is the letter in /proc/PID/stat, 0 if there is no such process.
// A traced process is never in the state T.
func processState(pid int) byte {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ")
	if rest == "" {
		return 0
	}
	return rest[0]
}
