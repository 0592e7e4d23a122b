package pidfd

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// opened opens a process by a pidfd, and by its directory in /proc.
func opened(t *testing.T, pid int) map[string]*Process {
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

// Both descriptors name a process until it has been reaped, and no other one after that.
func TestProcess(t *testing.T) {
	child := exec.Command("sleep", "300")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	all := opened(t, child.Process.Pid)
	for what, p := range all {
		defer p.Close()
		if p.Ended() || p.Signal(0) != nil || p.Wakes() != (what == "pidfd") || Inherited(p.FD()).Wakes() != p.Wakes() {
			t.Errorf("%s: %+v", what, p)
		}
	}
	if err := all["directory"].Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, child.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	for what, p := range all { // of a zombie
		if p.AwaitEnd(); !Inherited(p.FD()).Ended() {
			t.Errorf("%s: a zombie has not ended", what)
		}
	}
	_ = child.Wait()
	for what, p := range all {
		if err := p.Signal(unix.SIGKILL); err != unix.ESRCH || !p.Ended() {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A process that does not exist, and a thread, are not opened.
func TestOpenNone(t *testing.T) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	isOther := func(e os.DirEntry) bool { return e.Name() != strconv.Itoa(unix.Getpid()) }
	at := slices.IndexFunc(tasks, isOther) // Go's runtime has started some
	thread, err := strconv.Atoi(tasks[at].Name())
	if err != nil {
		t.Fatal(err)
	}
	for pid, want := range map[int]error{1 << 22: unix.ESRCH, thread: unix.EINVAL} {
		for i := range 2 {
			open := Open
			if i > 0 {
				open = func(pid int) (*Process, error) { return openDirectory(pid, unix.ENOSYS) }
			}
			if p, err := open(pid); err != want {
				t.Errorf("%d: %+v, %v, want %v", pid, p, err, want)
			}
		}
	}
	for _, pid := range []int{0, -1} {
		if p, err := Open(pid); err == nil {
			t.Errorf("%d: %+v", pid, p)
		}
	}
}
