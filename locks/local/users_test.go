package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/procfs"
	"golock/locks"
	"golock/locks/locktest"
	"golock/test/testkit"
)

const nobody = 65534

// In a directory that is open to all, users meet, whoever was first.
func TestUsersShareAnOpenDirectory(t *testing.T) {
	testkit.NeedRoot(t)
	testkit.ProtectRegular(t)
	dir := testkit.Place(t, 0o1777)
	root := New(dir)
	user := startChild(t, asUser(nobody))
	other := startChild(t, asUser(somebody))

	user.Ask(call{Do: "join", Dir: dir, Name: "theirs", Max: 1})
	busy := locktest.ExpectBusy(t, root, "theirs")
	if len(busy.Holders) != 1 || busy.Holders[0].UID != nobody || busy.Holders[0].PID != user.PID {
		t.Errorf("%+v", busy.Holders)
	}
	if a := other.Try(call{Do: "join", Dir: dir, Name: "theirs", Max: 1, NoWait: true}); !a.Busy {
		t.Errorf("%+v", a)
	}
	w := queue(t, root, "theirs")
	if a := other.Ask(call{Do: "join", Dir: dir, Name: "theirs", Max: 1}); !a.Queued {
		t.Errorf("%+v", a)
	}
	other.Tell(call{Do: "wait", Dir: dir, Name: "theirs"})
	user.Ask(call{Do: "release", Dir: dir, Name: "theirs"})
	locktest.Release(t, w.ExpectGrant())
	if a := other.Hear(); a.Err != "" || len(a.Slots) != 1 {
		t.Errorf("%+v", a)
	}

	take(t, root, "roots")
	for _, c := range []*child{user, other} {
		a := c.Try(call{Do: "join", Dir: dir, Name: "roots", Max: 1, NoWait: true})
		if !a.Busy || !strings.Contains(a.Err, fmt.Sprint(os.Getpid())) {
			t.Errorf("%+v", a)
		}
	}
	if entries := other.Ask(call{Do: "list", Dir: dir}).Entries; len(entries) != 2 {
		t.Errorf("%+v", entries)
	}
}

// Who may use a lock file is decided by the directory's mode and by no umask.
func TestFileModeFollowsTheDirectory(t *testing.T) {
	testkit.NeedRoot(t)
	for _, umask := range []int{0o000, 0o022, 0o077} {
		c := startChild(t)
		c.Ask(call{Do: "umask", Number: umask})
		for dirMode, want := range map[uint32]os.FileMode{0o700: 0o600, 0o770: 0o660, 0o750: 0o640, 0o755: 0o644, 0o1777: 0o666} {
			dir := testkit.Place(t, dirMode)
			c.Ask(call{Do: "join", Dir: dir, Name: "x", Max: 1})
			info, err := os.Stat(lockPath(dir, "x"))
			testkit.Must(t, err)
			if info.Mode() != want {
				t.Errorf("umask %03o, directory %o: mode %o, want %o", umask, dirMode, info.Mode(), want)
			}
		}
		made := filepath.Join(testkit.Place(t, 0o755), "made")
		c.Ask(call{Do: "join", Dir: made, Name: "x", Max: 1})
		info, err := os.Stat(made)
		testkit.Must(t, err)
		if info.Mode().Perm() != 0o700 {
			t.Errorf("umask %03o: a directory of mode %o", umask, info.Mode().Perm())
		}
	}
}

// The umask is changed for a moment while a file is made. Several at once must
// not leave it changed, or the command would inherit that.
func TestUmaskSurvivesConcurrentJoins(t *testing.T) {
	old := unix.Umask(0o027)
	defer unix.Umask(old)
	dir := t.TempDir()
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for j := range 40 {
				if err := serve(New(dir), locktest.NewRequest(t, fmt.Sprintf("%d-%d", i, j)), func() {}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if now := unix.Umask(0o027); now != 0o027 {
		t.Errorf("the umask is %03o afterwards", now)
	}
}

// What is at the place of a lock file but is none: a clear error at once, and
// it is left as it is.
func TestForeignThingsAreLeftAlone(t *testing.T) {
	testkit.NeedRoot(t)
	type place func(path, victim string) error
	symlink := func(suffix string) place {
		return func(path, victim string) error { return os.Symlink(victim+suffix, path) }
	}
	link := func(path, victim string) error { return os.Link(victim, path) }
	node := func(mode uint32, device uint64) place {
		return func(path, _ string) error { return unix.Mknod(path, mode|0o666, int(device)) }
	}
	file := func(mode os.FileMode) place {
		return func(path, _ string) error { return os.WriteFile(path, []byte("precious"), mode) }
	}
	mkdir := func(path, _ string) error { return os.Mkdir(path, 0o777) }
	for _, tt := range []struct {
		name string
		text string // of the victim
		place
		want string
		user bool // it is an error for others than root only
		open bool // give it a mode that lets everybody use it
	}{
		{"symbolic link", "precious", symlink(""), "symbolic link", false, false},
		{"dangling link", "", symlink(".not"), "symbolic link", false, false},
		{"hard link to text", "precious", link, "2 names", false, false},
		{"hard link to an empty file", "", link, "2 names", false, false},
		{"hard link to zeros", strings.Repeat("\x00", 64<<10), link, "2 names", false, false},
		{"FIFO", "", node(unix.S_IFIFO, 0), "not a regular file", false, true},
		{"directory", "", mkdir, "directory", false, true},
		{"device", "", node(unix.S_IFCHR, unix.Mkdev(1, 3)), "not a regular file", false, true},
		{"block device that is not there", "", node(unix.S_IFBLK, unix.Mkdev(240, 77)), "open ", false, false},
		{"socket", "", node(unix.S_IFSOCK, 0), "open ", false, true},
		{"unreadable", "", file(0o000), "another user", true, false},
		{"read-only", "", file(0o444), "another user", true, false},
		{"somebody else's", "", file(0o600), "another user", true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := testkit.Place(t, 0o1777)
			path, victim := lockPath(dir, "x"), filepath.Join(dir, "victim")
			testkit.Must(t, os.WriteFile(victim, []byte(tt.text), 0o600))
			testkit.Must(t, os.Chmod(victim, 0o666))
			testkit.Must(t, tt.place(path, victim))
			if tt.open {
				testkit.Must(t, os.Chmod(path, 0o666))
			}
			var before unix.Stat_t
			testkit.Must(t, unix.Lstat(path, &before))

			users := []*child{startChild(t, asUser(nobody))}
			if !tt.user {
				users = append(users, startChild(t))
			}
			for _, c := range users {
				for _, what := range []call{{Do: "join", NoWait: true}, {Do: "join"}} {
					what.Dir, what.Name, what.Max = dir, "x", 1
					a := c.Try(what)
					if a.Busy || !strings.Contains(a.Err, path) || !strings.Contains(a.Err, tt.want) {
						t.Errorf("Join: %q does not name the file and %q", a.Err, tt.want)
					}
				}
				for _, name := range []string{"x", ""} {
					// Looking may fail too, but must end and show nothing of it.
					for _, e := range c.Try(call{Do: "list", Dir: dir, Name: name}).Entries {
						if e.Name != "y" {
							t.Errorf("Entries: %+v", e)
						}
					}
				}
				// Others in the same directory are not concerned.
				c.Ask(call{Do: "join", Dir: dir, Name: "y", Max: 0})
			}
			if text, err := os.ReadFile(victim); err != nil || string(text) != tt.text {
				t.Errorf("the victim was changed: %d bytes, %v", len(text), err)
			}
			var after unix.Stat_t
			testkit.Must(t, unix.Lstat(path, &after))
			if before.Ino != after.Ino || before.Mode != after.Mode || before.Size != after.Size || before.Mtim != after.Mtim {
				t.Errorf("what was there was changed: %+v, then %+v", before, after)
			}
		})
	}
}

// Where /proc hides the processes of others, a holder of another user is not
// taken for gone.
func TestHiddenHolderIsNotAnOrphan(t *testing.T) {
	testkit.NeedRoot(t)
	dir := testkit.Place(t, 0o1777)
	take(t, New(dir), "x")
	gone := startChild(t)
	gone.Ask(call{Do: "join", Dir: dir, Name: "y", Max: 1})
	heir := gone.Ask(call{Do: "spawn", Dir: dir, Name: "y"}).PID
	defer reap(t, heir)
	gone.Kill()

	c := startChild(t, namespaces(unix.CLONE_NEWNS))
	c.Ask(call{Do: "hidepid"})
	c.Ask(call{Do: "user", Number: nobody})
	for name, orphaned := range map[string]bool{"x": false, "y": true} {
		e := c.Ask(call{Do: "list", Dir: dir, Name: name}).Entries
		if len(e) != 1 || e[0].Orphaned != orphaned {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// A process number means nothing in another pid namespace: a holder of that number there, which
// is nobody's here, is not taken for gone.
func TestHolderInAnotherPIDNamespaceIsNotAnOrphan(t *testing.T) {
	testkit.NeedRoot(t)
	s := New(t.TempDir())
	outer := startChild(t)
	outer.Ask(call{Do: "join", Dir: s.path, Name: "y"})
	if outer.PID < 5 {
		t.Fatal("the number of the child outside may be somebody's inside")
	}
	inner := startChild(t, namespaces(unix.CLONE_NEWPID|unix.CLONE_NEWNS))
	inner.Ask(call{Do: "hidepid"}) // a /proc of its own
	if e := inner.Ask(call{Do: "list", Dir: s.path, Name: "y"}).Entries; len(e) != 1 || e[0].State != locks.Holding || e[0].Orphaned {
		t.Errorf("%+v", e)
	}
}

func TestAliveKnowsALaterProcessOfTheSameNumber(t *testing.T) {
	self := record{stored: stored{pid: uint32(os.Getpid()), clock: clockShared, written: int64(locks.BootTime())}}
	if !self.isAlive() {
		t.Error("this process is not alive")
	}
	stat, err := procfs.Self()
	testkit.Must(t, err)
	self.written = (stat.Start - 1) * int64(procfs.Tick)
	if self.isAlive() {
		t.Error("a record from before this process was made is taken for its own")
	}

	c := startChild(t)
	r := record{stored: stored{pid: uint32(c.PID), clock: clockShared, written: int64(locks.BootTime())}}
	if !r.isAlive() {
		t.Error("a child is not alive")
	}
	testkit.Must(t, unix.Kill(c.PID, unix.SIGKILL))
	testkit.Eventually(t, "the child is not alive", func() bool { return !r.isAlive() }) // its threads end one by one
	if s, _ := procfs.ReadStat(c.PID); s.State != 'Z' {
		t.Errorf("the child is in state %q, want a zombie", s.State)
	}
	c.Kill()
	r.written = int64(locks.BootTime()) + int64(time.Hour)
	if r.isAlive() {
		t.Error("a process that was reaped is alive")
	}
}
