package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is a command the harness started.
type process struct {
	b     *bench
	pid   int
	argv  []string
	begun float64 // ms on CLOCK_MONOTONIC, read before the start
}

// result is what became of it.
type result struct {
	ended float64 // ms on CLOCK_MONOTONIC, read when it could be waited for
	code  int     // 128+N for signal N
	cpu   float64 // ms, user and system, its descendants' included as far as they were waited for
}

// now is CLOCK_MONOTONIC in milliseconds, the clock of stamp's records too.
func now() float64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return float64(t.Nano()) / 1e6
}

// start runs argv without os/exec, whose goroutines and pipes would be
// measured too: vfork and exec, a session of its own and so no controlling
// terminal, stdin empty, the same few variables for all.
func (b *bench) start(argv []string) (*process, error) { return b.startAs(nil, argv) }

// startAs is start as another user; nil: as the harness.
func (b *bench) startAs(as *syscall.Credential, argv []string) (*process, error) {
	attr := syscall.ProcAttr{
		Env:   b.env,
		Files: []uintptr{uintptr(b.null), uintptr(b.log), uintptr(b.log)},
		Sys:   &syscall.SysProcAttr{Setsid: true, Credential: as},
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return nil, errStopped
	}
	begun := now()
	pid, err := syscall.ForkExec(argv[0], argv, &attr)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", argv[0], err)
	}
	return &process{b: b, pid: pid, argv: argv, begun: begun}, nil
}

// patience is how long a process may take to end once it is waited for. None
// has anything to do that takes a second; one that hangs is killed, and is an
// error by its exit code.
const patience = time.Minute

// watch kills what has used up its patience. It runs until the harness ends.
func (b *bench) watch() {
	for range time.Tick(5 * time.Second) {
		b.mu.Lock()
		if p := b.awaited; p != nil && time.Since(b.since) > patience {
			fmt.Fprintf(os.Stderr, "bench: %q does not end; killed\n", p.argv)
			_ = unix.Kill(p.pid, unix.SIGKILL)
		}
		b.mu.Unlock()
	}
}

// wait returns when the process has ended.
func (p *process) wait() (result, error) {
	p.b.mu.Lock()
	p.b.awaited, p.b.since = p, time.Now()
	p.b.mu.Unlock()
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_PID, p.pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return result{}, errStopped // ECHILD: close was faster
		}
	}
	ended := now()
	// Reaping is kept apart from waiting and under the lock: so endStrays
	// never signals a number that has just become free.
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	p.b.awaited = nil
	var status unix.WaitStatus
	var use unix.Rusage
	if _, err := unix.Wait4(p.pid, &status, 0, &use); err != nil {
		return result{}, errStopped
	}
	r := result{ended: ended, cpu: float64(use.Utime.Nano()+use.Stime.Nano()) / 1e6, code: status.ExitStatus()}
	if status.Signaled() {
		r.code = 128 + int(status.Signal())
	}
	return r, nil
}

// succeed waits and makes anything but exit code 0 an error.
func (p *process) succeed() (result, error) {
	r, err := p.wait()
	if err == nil && r.code != 0 {
		err = fmt.Errorf("%q ended with %d", p.argv, r.code)
	}
	return r, err
}

// gone tells whether the process has ended, without reaping it.
func (p *process) gone() bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, p.pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err != nil || info.Signo != 0
}

// until asks the question again and again until it is answered with yes. It
// orders events by what can be seen, never by time; the limit only turns a
// hanging tool into an error.
func (b *bench) until(what string, pause time.Duration, question func() (bool, error)) error {
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(pause) {
		yes, err := question()
		if err != nil || yes {
			return err
		}
		b.mu.Lock()
		stopped := b.stopped
		b.mu.Unlock()
		if stopped {
			return errStopped
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not seen within a minute: %s", what)
		}
	}
}

// pause lets a window of time pass, in pieces, so that it can be interrupted.
func (b *bench) pause(seconds int) error {
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	for time.Now().Before(end) {
		b.mu.Lock()
		stopped := b.stopped
		b.mu.Unlock()
		if stopped {
			return errStopped
		}
		time.Sleep(min(100*time.Millisecond, time.Until(end)))
	}
	return nil
}

// endStrays kills and reaps every child of the harness, orphans that came to
// it included, until there is none. None of them can be mistaken: a child's
// number is not given to another process before it has been reaped here.
func (b *bench) endStrays() {
	for {
		b.mu.Lock()
		for _, pid := range childrenOf(unix.Getpid()) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		b.mu.Unlock()
		if errors.Is(err, unix.ECHILD) {
			return
		}
		if pid == 0 {
			time.Sleep(time.Millisecond) // killed, not yet dead
		}
	}
}
