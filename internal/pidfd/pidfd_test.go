package pidfd

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// openBothWays opens a process by a pidfd, and by its directory in /proc.
func openBothWays(t *testing.T, pid int) map[string]*Process {
	t.Helper()
	all := map[string]*Process{}
	var errs [2]error
	all["pidfd"], errs[0] = Open(pid)
	all["directory"], errs[1] = openDirectory(pid, unix.ENOSYS)
	if errs[0] != nil || errs[1] != nil {
		t.Fatal(errs)
	}
	return all
}

// Both kinds of descriptor name a process until it has been reaped, and no later process after that.
func TestProcess(t *testing.T) {
	child := exec.Command("sleep", "300")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	all := openBothWays(t, child.Process.Pid)
	for what, p := range all {
		defer p.Close()
		if p.Ended() || p.Signal(0) != nil {
			t.Errorf("%s: a running process has ended, or gets no signal: %+v", what, p)
		}
		if p.Wakes() != (what == "pidfd") || Inherited(p.FD(), 0).Wakes() != p.Wakes() {
			t.Errorf("%s: Wakes gives %v, for the inherited descriptor %v", what, p.Wakes(), Inherited(p.FD(), 0).Wakes())
		}
	}
	withoutDescriptors(t, func() {
		for what, p := range all {
			if p.Ended() || Inherited(p.FD(), 0).Ended() {
				t.Errorf("%s: without a descriptor to read with, the process counts as ended", what)
			}
		}
	})
	if err := all["directory"].Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, child.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	for what, p := range all {
		p.AwaitEnd()
		if !Inherited(p.FD(), 0).Ended() {
			t.Errorf("%s: a zombie counts as a running process", what)
		}
	}
	_ = child.Wait()
	for what, p := range all {
		if err := p.Signal(unix.SIGKILL); err != unix.ESRCH || !p.Ended() {
			t.Errorf("%s: a signal to a reaped process: %v, want ESRCH", what, err)
		}
	}
}

// withoutDescriptors calls a function while this process can open no file.
func withoutDescriptors(t *testing.T, do func()) {
	t.Helper()
	var before unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before)
	if err == nil {
		err = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: before.Max})
	}
	if err != nil {
		t.Fatal(err)
	}
	do()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
}

// A process whose PID is unknown gets no signal by kill(2), for which 0 and -1 are groups of processes.
func TestNoNumber(t *testing.T) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{0, -1} {
		if err := Inherited(pipe[0], pid).Signal(0); err != unix.EBADF {
			t.Errorf("%d: %v, want EBADF", pid, err)
		}
	}
	_ = unix.Close(pipe[0])
	_ = unix.Close(pipe[1])
}

// Open refuses a PID that no process has, and the number of a thread.
func TestOpenNone(t *testing.T) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	// The Go runtime has started other threads than the first one.
	isOtherThread := func(e os.DirEntry) bool { return e.Name() != strconv.Itoa(unix.Getpid()) }
	index := slices.IndexFunc(tasks, isOtherThread)
	thread, err := strconv.Atoi(tasks[index].Name())
	if err != nil {
		t.Fatal(err)
	}
	for pid, want := range map[int]error{1 << 22: unix.ESRCH, thread: unix.EINVAL} {
		if p, err := Open(pid); err != want {
			t.Errorf("Open(%d) = %+v, %v, want %v", pid, p, err, want)
		}
		if p, err := openDirectory(pid, unix.ENOSYS); err != want {
			t.Errorf("openDirectory(%d) = %+v, %v, want %v", pid, p, err, want)
		}
	}
	for _, pid := range []int{0, -1} {
		if p, err := Open(pid); err == nil {
			t.Errorf("%d: %+v", pid, p)
		}
	}
}
