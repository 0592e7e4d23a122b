package proctree

import (
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/procfs"
	"golock/test/testkit"
)

// liveDescendants returns the live descendants of this test.
func liveDescendants() []Process { return Descendants(Live(), os.Getpid(), nil) }

// PeekEnded gives what wait4(2) gives afterwards.
func TestPeekEnded(t *testing.T) {
	if pid, _, err := PeekEnded(); pid != 0 || err != unix.ECHILD {
		t.Fatalf("without children: %d, %v", pid, err)
	}
	for _, script := range []string{"exit 7", "kill -TERM $$", "ulimit -c 0; kill -QUIT $$"} {
		pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", script}, &syscall.ProcAttr{})
		testkit.Must(t, err)
		var peeked syscall.WaitStatus
		for got := 0; got == 0; time.Sleep(time.Millisecond) {
			if got, peeked, err = PeekEnded(); err != nil || (got != 0 && got != pid) {
				t.Fatalf("%s: %d, %v, want %d", script, got, err, pid)
			}
		}
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil || status != peeked {
			t.Errorf("%s: peeked %#x, waited %#x, %v", script, peeked, status, err)
		}
	}
}

// Both lists of processes contain all descendants; Descendants leaves out the excepted ones;
// KillDescendants kills them all.
func TestDescendants(t *testing.T) {
	BecomeSubreaper()
	cmd := exec.Command("/bin/sh", "-c", "setsid sleep 1000 & sh -c 'sleep 1000 & wait' & wait")
	testkit.Must(t, cmd.Start())
	testkit.Eventually(t, "the descendants have started", func() bool { return len(liveDescendants()) >= 4 })
	pids := func(list []Process) (pids []int) {
		for _, p := range list {
			pids = append(pids, p.PID)
		}
		slices.Sort(pids)
		return pids
	}
	all := liveDescendants()
	listed := Descendants(candidates(), os.Getpid(), nil)
	if len(all) != 4 || !slices.Equal(pids(listed), pids(all)) {
		t.Errorf("all processes have the descendants %+v, the lists of children %+v, want the same four", all, listed)
	}
	shell, _ := procfs.ReadStat(cmd.Process.Pid)
	if found := Descendants(Live(), os.Getpid(), []Process{shell}); len(found) != 0 {
		t.Errorf("found %+v, which descend from an excepted process", found)
	}
	ended := 0
	KillDescendants(nil, func(int, syscall.WaitStatus) { ended++ }, func(p Process, err error) { t.Errorf("%+v: %v", p, err) })
	if ended != 4 || len(liveDescendants()) != 0 {
		t.Errorf("%d descendants have ended, want 4; left are %+v", ended, liveDescendants())
	}
}

const endFirstThread = "PROCTREE_TEST_END_FIRST_THREAD"

// init runs on the first thread of the process.
func init() {
	if os.Getenv(endFirstThread) != "" {
		go time.Sleep(time.Hour) // another thread lives until the test kills this process
		_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
	}
}

// A process lives until its last thread has ended.
func TestFirstThreadEnds(t *testing.T) {
	child := exec.Command("/proc/self/exe")
	child.Env = append(os.Environ(), endFirstThread+"=1")
	testkit.Must(t, child.Start())
	testkit.Eventually(t, "the first thread has ended", func() bool {
		s, err := procfs.ReadStat(child.Process.Pid)
		testkit.Must(t, err)
		return s.State == 'Z'
	})
	all := liveDescendants()
	if listed := Descendants(candidates(), os.Getpid(), nil); len(all) != 1 || len(listed) != 1 {
		t.Errorf("found %+v and %+v, want one live process in each", listed, all)
	}
	testkit.Must(t, child.Process.Kill())
	testkit.Eventually(t, "the process has ended", func() bool { return len(liveDescendants()) == 0 })
	_ = child.Wait()
}
