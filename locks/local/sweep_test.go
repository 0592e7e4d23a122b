package local

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
)

func sweep(t testing.TB, s *Store, olderThan time.Duration, want int) {
	t.Helper()
	if n, err := s.Sweep(background, olderThan); n != want || err != nil {
		t.Fatalf("Sweep = %d, %v, want %d", n, err, want)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// What is held or waited for stays, and so does what is not golock's; the file
// of a name that nobody uses goes.
func TestSweepTakesOnlyWhatNobodyUses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newStore(t, dir)
	sweep(t, newStore(t, dir+"/none"), 0, 0)
	if exists(dir + "/none") {
		t.Error("Sweep has made the directory")
	}
	held := take(t, s, "held")
	w := queue(t, s, "held")
	release(t, take(t, s, "unused"))
	must(t, os.WriteFile(filepath.Join(dir, "note.txt"), nil, 0o600))
	foreign := filepath.Join(dir, "x."+locks.KeyOf("x").String()+".lock")
	must(t, os.WriteFile(foreign, []byte("not a lock file"), 0o600))
	other := filepath.Join(dir, "y."+locks.KeyOf("y").String()+".lock")
	header := (&header{name: "y", size: 1}).encode()
	header[8] = 9 // a format of another time
	must(t, os.WriteFile(other, header, 0o600))

	n, err := s.Sweep(background, time.Hour)
	if n != 0 || err == nil || !strings.Contains(err.Error(), "format 9") {
		t.Fatalf("Sweep = %d, %v", n, err)
	}
	must(t, os.Remove(other))
	if !exists(lockPath(dir, "unused")) {
		t.Fatal("a young file was removed")
	}
	sweep(t, s, 0, 1)
	if exists(lockPath(dir, "unused")) || !exists(lockPath(dir, "held")) || !exists(foreign) || !exists(dir+"/note.txt") {
		t.Fatal("the wrong file was removed")
	}
	release(t, held)
	release(t, w.granted())
	sweep(t, s, 0, 1)
}

// Records of the dead are freed while others live in the same file.
func TestSweepFreesRecordsOfTheDead(t *testing.T) {
	t.Parallel()
	s := newStore(t, t.TempDir())
	dead := startChild(t)
	for _, max := range []int{3, 1} { // one holds, one waits
		if a := dead.ask(call{Do: "join", Dir: s.path, Name: "x", Max: max}); a.Err != "" {
			t.Fatalf("%+v", a)
		}
	}
	dead.kill()
	live := take(t, s, "y")
	sweep(t, s, 0, 1) // with their file
	release(t, live)

	dead = startChild(t)
	dead.ask(call{Do: "join", Dir: s.path, Name: "x", Max: 3})
	live = take(t, s, "x", limit(3))
	dead.kill()
	sweep(t, s, time.Hour, 0)
	sweep(t, s, 0, 2) // one record, and the file of y
	if got := list(t, s, "x"); len(got) != 1 || got[0].Ref != live.Grant().Ref {
		t.Fatalf("left are %v", got)
	}
	refused(t, s, "x")
}

// A slot that only an heir keeps is in use.
func TestSweepSparesOrphans(t *testing.T) {
	t.Parallel()
	s := newStore(t, t.TempDir())
	l := take(t, s, "x")
	heir := exec.Command("cat")
	heir.ExtraFiles = []*os.File{dup(t, l.Files()[0])}
	in, err := heir.StdinPipe()
	must(t, err)
	must(t, heir.Start())
	for _, f := range heir.ExtraFiles {
		f.Close()
	}
	// As if golock had been killed: its descriptors go, without an unlock.
	unix.Close(l.place.hold)
	l.place.hold, l.once = -1, sync.Once{}
	l.Settle()
	sweep(t, s, 0, 0)
	refused(t, s, "x")
	in.Close()
	must(t, heir.Wait())
	sweep(t, s, 0, 1)
}

func dup(t testing.TB, fd int) *os.File {
	t.Helper()
	again, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	must(t, err)
	return os.NewFile(uintptr(again), "lock")
}

// Two who clean up all the time and twenty who use two names: never two inside,
// and nobody fails.
func TestSweepBesideUsers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	until := time.Now().Add(campaign())
	var inside [2]atomic.Int32
	var visits, removed atomic.Int64
	goesOn := func() bool {
		now := time.Now()
		return now.Before(until) || (visits.Load() < 100 || removed.Load() < 10) && now.Before(until.Add(patience)) // or it means nothing
	}
	var all sync.WaitGroup
	failed := make(chan error, 100)
	for i := range 20 {
		all.Go(func() {
			s := New(dir)
			defer s.Close()
			for goesOn() {
				name := fmt.Sprint("n", i%2)
				r := locks.Request{Name: name, Claim: locks.Claim{Weight: 1, Max: 1}, NoWait: i%5 == 0}
				r.Ref, _ = locks.NewRef(name)
				ticket, err := s.Join(background, r)
				var busy *locks.BusyError
				if errors.As(err, &busy) {
					time.Sleep(time.Millisecond)
					continue
				}
				if err != nil {
					failed <- err
					return
				}
				l, err := ticket.Wait(background)
				if err != nil {
					failed <- err
					return
				}
				if n := inside[i%2].Add(1); n != 1 {
					failed <- fmt.Errorf("%d are inside", n)
				}
				if i%4 == 1 {
					time.Sleep(100 * time.Microsecond)
				}
				inside[i%2].Add(-1)
				visits.Add(1)
				_ = l.Release(background)
				if i%3 == 0 {
					time.Sleep(2 * time.Millisecond) // now and then nobody uses a name
				}
			}
		})
	}
	for range 2 {
		all.Go(func() {
			s := New(dir)
			defer s.Close()
			for goesOn() {
				n, err := s.Sweep(background, 0)
				if err != nil {
					failed <- err
					return
				}
				removed.Add(int64(n))
			}
		})
	}
	all.Wait()
	close(failed)
	for err := range failed {
		t.Error(err)
	}
	t.Logf("%d visits, %d removed", visits.Load(), removed.Load())
	if visits.Load() < 100 || removed.Load() < 10 {
		t.Error("too few to mean anything")
	}
}

// campaign is how long a test with chance in it lasts: seconds, or what
// GOLOCK_CAMPAIGN says.
func campaign() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("GOLOCK_CAMPAIGN")); err == nil {
		return d
	}
	return 3 * time.Second
}

// Another process can see who holds.
func TestHolds(t *testing.T) {
	t.Parallel()
	s := newStore(t, t.TempDir())
	other := newStore(t, s.path)
	holds := func(l locks.Lease, want error) {
		t.Helper()
		if err := other.Holds(background, l.Grant().Ref); err != want {
			t.Fatalf("Holds = %v, want %v", err, want)
		}
	}
	l := take(t, s, "a/b", limit(2))
	second := take(t, s, "a/b", limit(2))
	holds(l, nil)
	w := queue(t, s, "a/b")
	for _, e := range list(t, s, "a/b") {
		want := error(nil)
		if e.State == locks.Waiting {
			want = locks.ErrLost
		}
		if err := other.Holds(background, e.Ref); err != want {
			t.Errorf("%s: Holds = %v, want %v", e.State, err, want)
		}
	}
	release(t, l)
	holds(l, locks.ErrLost)
	holds(second, nil)
	release(t, second)
	w.granted()
	if err := newStore(t, s.path+"/none").Holds(background, l.Grant().Ref); err != locks.ErrLost {
		t.Errorf("no directory: %v", err)
	}
}

// A table that cannot be read says nothing; the locks do.
func TestSweepOfDamagedFile(t *testing.T) {
	t.Parallel()
	s := newStore(t, t.TempDir())
	l := take(t, s, "x")
	f, err := os.OpenFile(lockPath(s.path, "x"), os.O_WRONLY, 0)
	must(t, err)
	defer f.Close()
	_, err = f.WriteAt([]byte("damage"), 40)
	must(t, err)
	sweep(t, s, 0, 0)
	if !exists(f.Name()) {
		t.Fatal("the file of a holder was removed")
	}
	release(t, l)
	sweep(t, s, 0, 1)
}

// A file that has come into the place of the one that was opened is another
// matter.
func TestSweepOfReplacedFile(t *testing.T) {
	t.Parallel()
	s := newStore(t, t.TempDir())
	release(t, take(t, s, "x"))
	path := lockPath(s.path, "x")
	d, err := s.directory()
	must(t, err)
	defer d.close()
	gate, err := d.open(fileName("x"), unix.O_RDWR)
	must(t, err)
	defer gate.close()
	must(t, gate.gate(background, unix.F_WRLCK, gateLimit))
	swept := make(chan int)
	go func() {
		n, _ := New(s.path).Sweep(background, 0)
		swept <- n
	}()
	asleep(t, path, 1)
	must(t, os.Rename(path, path+".old"))
	l := take(t, s, "x")
	gate.openGate()
	if n := <-swept; n != 0 || !exists(path) {
		t.Errorf("%d removed, the file is there: %v", n, exists(path))
	}
	release(t, l)
}

// A slot that stays taken by its time alone is in use.
func TestSweepSparesHolds(t *testing.T) {
	t.Parallel()
	s := newStore(t, t.TempDir())
	l := take(t, s, "x", func(r *locks.Request) { r.Hold = time.Hour })
	release(t, l)
	sweep(t, s, 0, 0)
	refused(t, s, "x")
	if err := s.Holds(background, l.Grant().Ref); err != locks.ErrLost {
		t.Errorf("nobody holds it, and Holds = %v", err)
	}
}
