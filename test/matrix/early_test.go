//go:build integration

package matrix_test

import (
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"golock/signals"
	"golock/test/testkit"
)

// A signal that comes while the Go runtime starts ends golock as it ends any program: it dies of the
// signal, prints nothing and starts nothing. The runtime has handlers then that would print a dump.
func TestSignalsOfTheFirstMilliseconds(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	for _, sig := range append([]syscall.Signal{unix.SIGQUIT, unix.SIGABRT, unix.SIGSTKFLT, unix.SIGTERM}, faults...) {
		var out strings.Builder
		cmd := exec.Command(testkit.Golock, "run", "--store", s.Store, "--name", "job", "--", "echo", "started")
		cmd.Stdout, cmd.Stderr = &out, &out
		signalEarly(t, cmd, sig)
		_ = cmd.Wait()
		status := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !status.Signaled() || status.Signal() != sig || out.Len() > 0 {
			t.Errorf("%s: %v, %q", signals.Name(sig), cmd.ProcessState, out.String())
		}
	}
	s.IsFree()
}

// signalEarly starts a golock and sends it a signal when it makes its first thread: the runtime has
// installed its handlers, and main has not begun. ptrace(2) stops it there.
func signalEarly(t *testing.T, cmd *exec.Cmd, sig syscall.Signal) {
	t.Helper()
	runtime.LockOSThread() // only the thread that has started it may trace it
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	testkit.Must(t, cmd.Start())
	pid := cmd.Process.Pid
	awaitStop(t, pid) // at its execve
	testkit.Must(t, syscall.PtraceSetOptions(pid, unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_EXITKILL))
	testkit.Must(t, syscall.PtraceCont(pid, 0))
	status := awaitStop(t, pid)
	if status.TrapCause() != unix.PTRACE_EVENT_CLONE {
		t.Fatalf("stopped by %v, not by its first thread", status.StopSignal())
	}
	thread, err := syscall.PtraceGetEventMsg(pid)
	testkit.Must(t, err)
	awaitStop(t, int(thread))
	testkit.Must(t, unix.Kill(pid, sig))
	testkit.Must(t, syscall.PtraceDetach(int(thread)))
	_ = syscall.PtraceDetach(pid) // the thread may have taken the signal: it is dead then
}

func awaitStop(t *testing.T, pid int) (status syscall.WaitStatus) {
	t.Helper()
	_, err := syscall.Wait4(pid, &status, unix.WALL, nil)
	testkit.Must(t, err)
	if !status.Stopped() {
		t.Fatalf("process %d: status %#x, want a stop", pid, int(status))
	}
	return status
}
