package lockfile

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/procfs"
	"golock/locks"
	"golock/locks/locktest"
	"golock/test/testkit"
)

var background = context.Background()

// tool runs another tool and gives its exit code.
func tool(t testing.TB, argv ...string) int {
	t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	t.Fatalf("%v: %v\n%s", argv, err, out)
	return -1
}

// What can be locked.
func TestTargets(t *testing.T) {
	dir := t.TempDir()
	locktest.AcquirePlain(t, New(Flock, dir), 1)
	if code := tool(t, "flock", "-n", dir, "true"); code != 1 {
		t.Errorf("flock of the directory: exit code %d", code)
	}

	readable := filepath.Join(dir, "readable")
	testkit.Must(t, os.WriteFile(readable, []byte("text"), 0o400))
	for _, family := range []Family{Flock, Fcntl} {
		l := locktest.AcquirePlain(t, New(family, readable), 1)
		locktest.Release(t, l)
	}
	if text, err := os.ReadFile(readable); err != nil || string(text) != "text" {
		t.Errorf("the file reads %q, %v", text, err)
	}

	link := filepath.Join(dir, "link")
	testkit.Must(t, os.Symlink("target", link))
	locktest.AcquirePlain(t, New(Flock, link), 1)
	locktest.ExpectBusy(t, New(Flock, filepath.Join(dir, "target")), "label") // the same lock

	testkit.Must(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	for path, words := range map[string]string{
		filepath.Join(dir, "fifo"):       "is not a regular file",
		"/dev/null":                      "is not a regular file",
		filepath.Join(dir, "no", "file"): "the directory must be there",
		filepath.Join(dir, "file", "x"):  "not a directory",
		"/proc/golock":                   "open /proc/golock",
	} {
		for _, family := range []Family{Flock, Fcntl} {
			locktest.ExpectError(t, locktest.ExpectFinalError(t, New(family, path), "label"), words, path)
		}
	}
	locktest.ExpectError(t, locktest.ExpectFinalError(t, New(Fcntl, dir), "label"), "use flock://")
}

// A new file has the mode that flock(1) would give it.
func TestMode(t *testing.T) {
	dir := t.TempDir()
	tool(t, "flock", filepath.Join(dir, "theirs"), "true")
	theirs, err := os.Stat(filepath.Join(dir, "theirs"))
	testkit.Must(t, err)
	for _, family := range []Family{Flock, Fcntl} {
		file := filepath.Join(dir, string(family))
		locktest.AcquirePlain(t, New(family, file), 1)
		ours, err := os.Stat(file)
		testkit.Must(t, err)
		if ours.Mode() != theirs.Mode() || ours.Size() != 0 {
			t.Errorf("%s: %v, %d bytes; flock(1) makes %v", family, ours.Mode(), ours.Size(), theirs.Mode())
		}
	}
}

// A file that is removed or replaced while it is waited for is left: the lock
// is on the one that the path leads to.
func TestReplacedWhileWaiting(t *testing.T) {
	for _, family := range []Family{Flock, Fcntl} {
		for name, replace := range map[string]func(path string) error{
			"removed": os.Remove,
			"replaced": func(path string) error {
				return errors.Join(os.WriteFile(path+".new", nil, 0o600), os.Rename(path+".new", path))
			},
		} {
			t.Run(string(family)+" "+name, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "lock")
				s := New(family, path)
				first := locktest.AcquirePlain(t, s, 1)
				admission, err := s.Join(background, locktest.NewRequest(t, "label"))
				testkit.Must(t, err)
				got := make(chan locks.Lease)
				go func() { l, _ := admission.Wait(background); got <- l }()
				testkit.Eventually(t, "the waiter sleeps", func() bool { return s.waiting.Load() == 1 })
				testkit.AwaitSleepers(t, path, 1)
				testkit.Must(t, replace(path))
				locktest.Release(t, first)
				second := <-got
				locktest.ExpectBusy(t, s, "label") // it holds the file that the path leads to
				locktest.Release(t, second)
			})
		}
	}
}

// NFS version 4 refuses a flock on a descriptor for reading (EBADF, EIO); the
// file is opened for writing then. No machine for tests has it, so the kernel is
// one of the test's.
func TestNFS(t *testing.T) {
	for _, refusal := range []error{unix.EBADF, unix.EIO} {
		s := New(Flock, filepath.Join(t.TempDir(), "lock"))
		realOpen, realLock := s.openFile, s.setLock
		forWriting := map[int]bool{}
		var opened []int
		s.openFile = func(path string, flags int) (int, error) {
			fd, err := realOpen(path, flags)
			opened = append(opened, flags)
			forWriting[fd] = flags&unix.O_ACCMODE == unix.O_RDWR
			return fd, err
		}
		s.setLock = func(fd int, kind int16, wait bool) error {
			if kind == unix.F_WRLCK && !forWriting[fd] {
				return refusal
			}
			return realLock(fd, kind, wait)
		}
		locktest.AcquirePlain(t, s, 0)
		if last := opened[len(opened)-1]; last&unix.O_ACCMODE != unix.O_RDONLY {
			t.Errorf("%v: a shared lock opened the file with %#x", refusal, last)
		}
		locktest.ExpectBusy(t, s, "label") // beside a reader
		s.setLock = func(int, int16, bool) error { return refusal }
		locktest.ExpectError(t, locktest.ExpectFinalError(t, s, "label"), refusal.Error(), "right to write")
	}
}

// A file that is removed all the time is an error, not a loop.
func TestRemovedAllTheTime(t *testing.T) {
	s := New(Flock, filepath.Join(t.TempDir(), "lock"))
	real := s.setLock
	s.setLock = func(fd int, kind int16, wait bool) error {
		testkit.Must(t, os.Remove(s.path))
		return real(fd, kind, wait)
	}
	locktest.ExpectError(t, locktest.ExpectFinalError(t, s, "label"), "again and again")
}

// Another user's file in a directory with the sticky bit can be locked, where
// flock(1) is refused by fs.protected_regular. (Another user's symbolic link: TestLinksToLockFiles.)
func TestOtherUsersFile(t *testing.T) {
	testkit.NeedRoot(t)
	testkit.ProtectRegular(t)
	file := filepath.Join(testkit.Place(t, 0o1777), "lock")
	testkit.Must(t, os.WriteFile(file, nil, 0o666))
	testkit.Must(t, os.Chown(file, 65534, 65534))
	for _, family := range []Family{Flock, Fcntl} {
		locktest.AcquirePlain(t, New(family, file), 1)
	}
}

// What the kernel tells of holders and waiters, and whom it does not tell of.
func TestEntries(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	s := New(Flock, file)
	holderAndWaiter(t, s, "flock", file, "true")

	// What an heir keeps has no golock any more.
	heir := exec.Command("sh", "-c", "flock -n 9 && sleep 1000 & wait $!", "sh")
	heir.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	f, err := os.Open(file)
	testkit.Must(t, err)
	defer f.Close()
	for range 7 { // number 9
		heir.ExtraFiles = append(heir.ExtraFiles, f)
	}
	testkit.Must(t, heir.Start())
	defer heir.Wait()
	defer unix.Kill(-heir.Process.Pid, unix.SIGKILL)
	testkit.Eventually(t, "the heir's lock is seen, and that who took it has ended", func() bool {
		all := locktest.List(t, s, "")
		return len(all) == 1 && all[0].Orphaned
	})
}

// Who has taken a lock is found without a look at all processes.
func TestSearch(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	s := New(Flock, file)
	for _, limit := range []int{0, 1} {
		l := locktest.AcquirePlain(t, s, limit)
		fd, err := unix.Dup(l.Files()[0])
		testkit.Must(t, err)
		heir := exec.Command("sleep", "1000")
		heir.ExtraFiles = []*os.File{os.NewFile(uintptr(fd), file)}
		testkit.Must(t, heir.Start())
		defer heir.Wait()
		defer heir.Process.Kill()
		var st unix.Stat_t
		testkit.Must(t, unix.Stat(file, &st))
		if seen := s.search(&st); len(seen) != 1 || seen[os.Getpid()].PID != os.Getpid() {
			t.Errorf("max %d: %+v, want this process alone", limit, seen)
		}
		locktest.Release(t, l)
	}
}

// The kernel's list, read in pieces, may have a lock and its waiters twice.
func TestListedTwice(t *testing.T) {
	held, waiting := procfs.Lock{PID: 1}, procfs.Lock{PID: 2, Waiting: true}
	if got := withoutRepeats([]procfs.Lock{held, waiting, held, waiting}); len(got) != 2 {
		t.Errorf("%+v", got)
	}
	shared := procfs.Lock{PID: -1, Shared: true}
	if got := withoutRepeats([]procfs.Lock{shared, shared, waiting}); len(got) != 3 {
		t.Errorf("%+v", got)
	}
}

// holderAndWaiter checks what is told of this process, which holds, and of a
// tool that waits.
func holderAndWaiter(t *testing.T, s *Store, argv ...string) {
	t.Helper()
	if all := locktest.List(t, s, ""); len(all) != 0 {
		t.Errorf("%+v without a file", all)
	}
	l := locktest.AcquirePlain(t, s, 1)
	waiter := exec.Command(argv[0], argv[1:]...)
	testkit.Must(t, waiter.Start())
	var all []locks.Entry
	testkit.Eventually(t, "a waiter is seen", func() bool { all = locktest.List(t, s, ""); return len(all) == 2 })
	if h := all[0]; h.State != locks.Holding || h.PID != os.Getpid() || h.Name != s.URL() || h.Orphaned ||
		h.UID != os.Geteuid() || time.Since(h.Since) > time.Hour {
		t.Errorf("holder %+v", h)
	}
	if w := all[1]; w.State != locks.Waiting || w.Position != 1 || w.PID != waiter.Process.Pid || w.Claim.Max != 1 {
		t.Errorf("waiter %+v", w)
	}
	locktest.Release(t, l)
	testkit.Must(t, waiter.Wait())
}

// Somebody makes the file just before us, and removes it again.
func TestMadeAndRemoved(t *testing.T) {
	s := New(Flock, filepath.Join(t.TempDir(), "lock"))
	real, moves := s.openFile, 2
	s.openFile = func(path string, flags int) (int, error) {
		if flags&unix.O_EXCL != 0 && moves > 0 {
			moves--
			return -1, unix.EEXIST
		}
		return real(path, flags)
	}
	locktest.AcquirePlain(t, s, 1)
}
