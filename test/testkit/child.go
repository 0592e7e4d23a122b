package testkit

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Child is a process that runs this test binary again, with a variable set that makes TestMain call
// ServeChild. It executes calls of type C in their order and answers each with an A, whose field Err is
// an error.
type Child[C, A any] struct {
	PID int

	t       testing.TB
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers chan []byte
}

// ServeChild does one call after the other until standard input ends.
func ServeChild[C, A any](do func(C) A) {
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for in.Scan() {
		var c C
		if err := json.Unmarshal(in.Bytes(), &c); err != nil {
			panic(err)
		}
		_ = out.Encode(do(c))
	}
}

// StartChild starts a child, which ends with the test. It finds the binary through /proc, because
// another user may not enter its directory.
func StartChild[C, A any](t testing.TB, variable string, options ...func(*exec.Cmd)) *Child[C, A] {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), variable+"=1")
	cmd.Dir = "/"
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	for _, o := range options {
		o(cmd)
	}
	in, err := cmd.StdinPipe()
	Must(t, err)
	out, err := cmd.StdoutPipe()
	Must(t, err)
	Must(t, cmd.Start())
	c := &Child[C, A]{PID: cmd.Process.Pid, t: t, cmd: cmd, in: in, answers: make(chan []byte, 16)}
	go func() {
		defer close(c.answers)
		lines := bufio.NewReader(out)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			c.answers <- line
		}
	}()
	t.Cleanup(c.Kill)
	return c
}

// Tell sends a call to a child.
func (c *Child[C, A]) Tell(call C) {
	c.t.Helper()
	line, err := json.Marshal(call)
	Must(c.t, err)
	_, err = c.in.Write(append(line, '\n'))
	Must(c.t, err)
}

// line waits for the next answer.
func (c *Child[C, A]) line() []byte {
	c.t.Helper()
	select {
	case line, ok := <-c.answers:
		if ok {
			return line
		}
		c.t.Fatalf("child %d has ended", c.PID)
	case <-time.After(Patience):
		c.t.Fatalf("child %d does not answer", c.PID)
	}
	panic("not reached")
}

// Hear waits for the next answer.
func (c *Child[C, A]) Hear() (a A) {
	c.t.Helper()
	Must(c.t, json.Unmarshal(c.line(), &a))
	return a
}

// Silent fails the test if an answer comes within this time.
func (c *Child[C, A]) Silent(d time.Duration) {
	c.t.Helper()
	select {
	case line := <-c.answers:
		c.t.Fatalf("child %d answers too early: %s", c.PID, line)
	case <-time.After(d):
	}
}

// Try makes a call that may fail.
func (c *Child[C, A]) Try(call C) A {
	c.t.Helper()
	c.Tell(call)
	return c.Hear()
}

// Ask makes a call that must not fail.
func (c *Child[C, A]) Ask(call C) (a A) {
	c.t.Helper()
	c.Tell(call)
	line, failed := c.line(), struct{ Err string }{}
	Must(c.t, json.Unmarshal(line, &failed))
	if failed.Err != "" {
		c.t.Fatalf("child %d, %+v: %s", c.PID, call, failed.Err)
	}
	Must(c.t, json.Unmarshal(line, &a))
	return a
}

// Kill ends the child and waits until it is gone.
func (c *Child[C, A]) Kill() {
	if c.cmd.ProcessState == nil {
		_ = c.cmd.Process.Kill()
		c.in.Close()
		for range c.answers { // Wait returns only when all output has been read
		}
		_ = c.cmd.Wait()
	}
}

// Stop returns when the child is stopped.
func (c *Child[C, A]) Stop() {
	c.t.Helper()
	Must(c.t, unix.Kill(c.PID, unix.SIGSTOP))
	Eventually(c.t, "a child is stopped", func() bool { return Stopped(c.PID) })
}

// Continue continues a child after Stop.
func (c *Child[C, A]) Continue() { _ = unix.Kill(c.PID, unix.SIGCONT) }

// SpawnHeir starts a process that sleeps and inherits the files of a lease.
func SpawnHeir(files []int) (pid int, err error) {
	cmd := exec.Command("sleep", "1000")
	for _, fd := range files {
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return 0, err
		}
		file := os.NewFile(uintptr(own), "lease")
		defer file.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, file)
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	return cmd.Process.Pid, nil
}
