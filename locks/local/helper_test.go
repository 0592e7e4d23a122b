package local

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"golock/internal/procfs"
	"golock/locks"
	"golock/locks/locktest"
	"golock/test/testkit"
)

// Tests that need another process run this binary again: with the variable set
// it is no test but a child that does what it is told (serveChild).
const childVariable = "LOCKTEST_LOCAL_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		serveChild()
		os.Exit(0)
	}
	testkit.Parallel(16) // they wait more than they compute
	code := m.Run()
	if code == 0 && flag.Lookup("test.fuzz").Value.String() == "" {
		// Who sleeps on a holder ends with it, which may be a process that is
		// just being killed.
		if err := goleak.Find(
			goleak.IgnoreAnyFunction("golock/locks/local.(*lockFile).lockLater.func1"),
		); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

var background = context.Background()

func command(argv ...string) locktest.Change { return func(r *locks.Request) { r.Command = argv } }

// openLock opens the lock file of a name beside the store.
func openLock(t testing.TB, s *Store, name string) *lockFile {
	t.Helper()
	d, err := openDirectory(s.path, s.roots, true)
	testkit.Must(t, err)
	defer d.close()
	f, err := d.openFile(name)
	testkit.Must(t, err)
	t.Cleanup(f.close)
	return f
}

// lockPath is where the store of dir keeps a name.
func lockPath(dir, name string) string { return filepath.Join(dir, fileName(name)) }

// take must be granted at once.
func take(t testing.TB, s *Store, name string, changes ...locktest.Change) *lease {
	t.Helper()
	return locktest.AcquireAs[*lease](t, s, name, append(changes, locktest.NoWait)...)
}

// fails joins without waiting, and must be told of something that is wrong
// with path.
func fails(t testing.TB, s *Store, name, path string) error {
	t.Helper()
	_, err := s.Join(background, locktest.NewRequest(t, name, locktest.NoWait))
	if !errors.As(err, new(*locks.PathError)) {
		t.Fatalf("Join(%q) = %v, want an error of the file", name, err)
	}
	locktest.ExpectError(t, err, path)
	return err
}

// serve joins, waits, calls inside, and releases.
func serve(s *Store, r locks.Request, inside func()) error {
	admission, err := s.Join(background, r)
	if err != nil {
		return err
	}
	l, err := admission.Wait(background)
	if err != nil {
		return err
	}
	inside()
	return l.Release(background)
}

// queue has to wait, in the background.
func queue(t testing.TB, s *Store, name string, changes ...locktest.Change) *locktest.WaiterOf[*lease] {
	t.Helper()
	return locktest.EnqueueAs[*lease](t, s, name, changes...)
}

// staysQueued proves as well as can be that w is not granted: for this long.
func staysQueued(w *locktest.WaiterOf[*lease], long time.Duration) {
	select {
	case <-w.Done:
	case <-time.After(long):
	}
	w.ExpectWaiting()
}

// guard tells if more are inside than may be, independently of the store.
type guard struct {
	t      testing.TB
	most   int32
	inside atomic.Int32
}

// visit stays for a moment, so that another who comes in meanwhile is noticed.
func (g *guard) visit() {
	if n := g.inside.Add(1); n > g.most {
		g.t.Errorf("%d hold at the same time", n)
	}
	time.Sleep(200 * time.Microsecond)
	g.inside.Add(-1)
}

// mount mounts a file system for the duration of the test.
func mount(t testing.TB, fstype, options string) string {
	t.Helper()
	testkit.NeedRoot(t)
	dir := t.TempDir()
	if err := unix.Mount(fstype, dir, fstype, 0, options); err != nil {
		t.Fatalf("mount %s: %v", fstype, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// call is what a child is told to do, one line each.
type call struct {
	Do       string // a case of childState.do
	Dir      string
	Name     string
	Max      int
	Weight   int
	Priority int
	NoWait   bool
	Number   int
}

// answer is what it says to that.
type answer struct {
	Err     string
	Busy    bool
	Queued  bool
	Slots   []int
	Fence   int64
	PID     int
	Entries []locks.Entry
}

// child is another process of this test.
type child = testkit.Child[call, answer]

func startChild(t testing.TB, options ...func(*exec.Cmd)) *child {
	t.Helper()
	return testkit.StartChild[call, answer](t, childVariable, options...)
}

// queueChild starts a child that has to wait.
func queueChild(t testing.TB, s *Store, limit, weight int) *child {
	t.Helper()
	c := startChild(t)
	if a := c.Ask(call{Do: "join", Dir: s.path, Name: "x", Max: limit, Weight: weight}); !a.Queued {
		t.Fatalf("%+v", a)
	}
	c.Tell(call{Do: "wait", Dir: s.path, Name: "x"})
	return c
}

// asUser runs a child as somebody else.
func asUser(id uint32) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: id, Gid: id}
	}
}

func namespaces(flags uintptr) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) { cmd.SysProcAttr.Cloneflags = flags }
}

// childState is what a child has by names.
type childState struct {
	admissions map[string]locks.Admission
	leases     map[string]locks.Lease
	gates      map[string]*lockFile
}

func serveChild() {
	state := childState{map[string]locks.Admission{}, map[string]locks.Lease{}, map[string]*lockFile{}}
	testkit.ServeChild(func(c call) (a answer) {
		if err := state.do(c, &a); err != nil {
			a.Err = err.Error()
		}
		return a
	})
}

func (st *childState) do(c call, a *answer) (err error) {
	s := New(c.Dir)
	switch c.Do {
	case "join":
		ref, err := locks.NewRef(c.Name)
		if err != nil {
			return err
		}
		st.admissions[c.Name], err = s.Join(background, locks.Request{
			Ref: ref, Name: c.Name, NoWait: c.NoWait, Command: []string{"child"},
			Claim: locks.Claim{Weight: max(c.Weight, 1), Max: c.Max, Priority: c.Priority},
		})
		var busy *locks.BusyError
		a.Busy = errors.As(err, &busy)
		if err != nil {
			return err
		}
		if a.Queued = st.admissions[c.Name].Queued(); a.Queued {
			return nil
		}
		fallthrough
	case "wait":
		if st.leases[c.Name], err = st.admissions[c.Name].Wait(background); err == nil {
			g := st.leases[c.Name].Grant()
			a.Slots, a.Fence = g.Slots, g.Fence
		}
	case "release":
		err = st.leases[c.Name].Release(background)
	case "spawn": // a sleeping process that inherits the slot
		a.PID, err = testkit.SpawnHeir(st.leases[c.Name].Files())
	case "gate":
		d, err := openDirectory(c.Dir, systemRoots(), true)
		if err != nil {
			return err
		}
		if st.gates[c.Name], err = d.openFile(c.Name); err != nil {
			return err
		}
		return st.gates[c.Name].lockGate(background, unix.F_WRLCK, gateLimit)
	case "ungate":
		st.gates[c.Name].unlockGate()
	case "umask":
		unix.Umask(c.Number)
	case "fsize": // the largest file, in bytes
		err = unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(c.Number), Max: unix.RLIM_INFINITY})
	case "hidepid": // the processes of other users, in this mount namespace
		if err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err == nil {
			err = unix.Mount("proc", "/proc", "proc", 0, "hidepid=2")
		}
	case "user":
		if err = syscall.Setgid(c.Number); err == nil {
			err = syscall.Setuid(c.Number)
		}
	case "list":
		a.Entries, err = s.Entries(background, c.Name)
	default:
		err = errors.New("unknown call " + c.Do)
	}
	return err
}

// reap kills what was spawned to inherit a lease and waits until it has gone.
// Mostly it is the child of a child, so its number is asked for.
func reap(t testing.TB, pid int) {
	t.Helper()
	_ = unix.Kill(pid, unix.SIGKILL)
	_, _ = unix.Wait4(pid, nil, 0, nil)
	testkit.Eventually(t, "a killed process ends", func() bool {
		s, _ := procfs.ReadStat(pid)
		return !s.Alive()
	})
}

// openFiles counts the descriptors of this process.
func openFiles(t testing.TB) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	testkit.Must(t, err)
	return len(files)
}

// isInUse reports whether any description holds or waits in a lock file,
// asked from outside the store.
func isInUse(t testing.TB, path string) bool {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	testkit.Must(t, err)
	defer unix.Close(fd)
	return (&lockFile{fd: fd}).isUsed()
}
