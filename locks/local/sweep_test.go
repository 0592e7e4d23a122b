package local

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/locktest"
	"golock/test/testkit"
)

// What is held stays, and so does what is not golock's; the file of a name that nobody uses
// goes. (Those who wait, and sweepers beside each other: TestConformance.)
func TestSweepTakesOnlyWhatNobodyUses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := New(dir)
	if err := locks.Holds(background, New(dir+"/none"), locktest.NewRequest(t, "x").Ref); err != locks.ErrLost {
		t.Errorf("Holds without a directory: %v", err)
	}
	take(t, s, "held")
	locktest.Release(t, take(t, s, "unused"))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "note.txt"), nil, 0o600))
	foreign := filepath.Join(dir, "x."+locks.KeyOf("x").String()+".lock")
	testkit.Must(t, os.WriteFile(foreign, []byte("not a lock file"), 0o600))
	other := filepath.Join(dir, "y."+locks.KeyOf("y").String()+".lock")
	header := (&header{name: "y", size: 1}).encode()
	header[8] = 9 // a format of another time
	testkit.Must(t, os.WriteFile(other, header, 0o600))

	_, err := s.Sweep(background, "", time.Hour)
	locktest.ExpectError(t, err, "format 9")
	testkit.Must(t, os.Remove(other))
	if !testkit.Exists(lockPath(dir, "unused")) {
		t.Fatal("a young file was removed")
	}
	locktest.ExpectSwept(t, s, 0, 1)
	if testkit.Exists(lockPath(dir, "unused")) || !testkit.Exists(lockPath(dir, "held")) || !testkit.Exists(foreign) || !testkit.Exists(dir+"/note.txt") {
		t.Fatal("the wrong file was removed")
	}
}

// Records of the dead are freed while others live in the same file.
func TestSweepFreesRecordsOfTheDead(t *testing.T) {
	t.Parallel()
	s := New(t.TempDir())
	dead := startChild(t)
	for _, max := range []int{3, 1} { // one holds, one waits
		if a := dead.Ask(call{Do: "join", Dir: s.path, Name: "x", Max: max}); a.Err != "" {
			t.Fatalf("%+v", a)
		}
	}
	dead.Kill()
	live := take(t, s, "y")
	locktest.ExpectSwept(t, s, 0, 1) // with their file
	locktest.Release(t, live)

	dead = startChild(t)
	dead.Ask(call{Do: "join", Dir: s.path, Name: "x", Max: 3})
	live = take(t, s, "x", locktest.Limit(3))
	dead.Kill()
	locktest.ExpectSwept(t, s, time.Hour, 0)
	locktest.ExpectSwept(t, s, 0, 2) // one record, and the file of y
	if got := locktest.List(t, s, "x"); len(got) != 1 || got[0].Ref != live.Grant().Ref {
		t.Fatalf("left are %v", got)
	}
	locktest.ExpectBusy(t, s, "x")
}

// A sweep of a table that cannot be read goes by the kernel locks alone.
func TestSweepOfDamagedFile(t *testing.T) {
	t.Parallel()
	s := New(t.TempDir())
	l := take(t, s, "x")
	path := lockPath(s.path, "x")
	patched(40, []byte("damage"))(t, path)
	locktest.ExpectSwept(t, s, 0, 0)
	if !testkit.Exists(path) {
		t.Fatal("the file of a holder was removed")
	}
	locktest.Release(t, l)
	locktest.ExpectSwept(t, s, 0, 1)
}

// A file that has come into the place of the one that was opened is another
// matter.
func TestSweepOfReplacedFile(t *testing.T) {
	t.Parallel()
	s := New(t.TempDir())
	locktest.Release(t, take(t, s, "x"))
	path := lockPath(s.path, "x")
	gate := openLock(t, s, "x")
	testkit.Must(t, gate.lockGate(background, unix.F_WRLCK, gateLimit))
	swept := make(chan int)
	go func() {
		n, _ := New(s.path).Sweep(background, "", 0)
		swept <- n
	}()
	testkit.AwaitSleepers(t, path, 1)
	testkit.Must(t, os.Rename(path, path+".old"))
	l := take(t, s, "x")
	gate.unlockGate()
	if n := <-swept; n != 0 || !testkit.Exists(path) {
		t.Errorf("%d removed, the file is there: %v", n, testkit.Exists(path))
	}
	locktest.Release(t, l)
}
