package local

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/procfs"
	"golock/locks/locktest"
	"golock/test/testkit"
)

// stillBusy is longer than who is first in a new file sleeps between two looks
// for the holders of the removed one: whoever is not granted meanwhile has
// looked, and has seen them.
const stillBusy = recheck + recheck/4

// removals are the ways in which a lock file can go.
var removals = map[string]func(t *testing.T, dir, name string){
	"file removed": func(t *testing.T, dir, name string) {
		testkit.Must(t, os.Remove(lockPath(dir, name)))
	},
	"file renamed away": func(t *testing.T, dir, name string) {
		testkit.Must(t, os.Rename(lockPath(dir, name), filepath.Join(dir, "old")))
	},
	"directory removed": func(t *testing.T, dir, name string) {
		testkit.Must(t, os.RemoveAll(dir))
	},
	"directory removed and made again": func(t *testing.T, dir, name string) {
		testkit.Must(t, os.RemoveAll(dir))
		testkit.Must(t, os.Mkdir(dir, 0o700))
	},
	"directory renamed away": func(t *testing.T, dir, name string) {
		testkit.Must(t, os.Rename(dir, dir+".old"))
	},
	// A copy says of itself all that the original said.
	"file replaced by a copy": func(t *testing.T, dir, name string) {
		text, err := os.ReadFile(lockPath(dir, name))
		testkit.Must(t, err)
		testkit.Must(t, os.WriteFile(filepath.Join(dir, "copy"), text, 0o600))
		testkit.Must(t, os.Rename(filepath.Join(dir, "copy"), lockPath(dir, name)))
	},
	"file replaced by another directory's": func(t *testing.T, dir, name string) {
		other := New(dir + ".other")
		locktest.Release(t, take(t, other, name))
		testkit.Must(t, os.Rename(lockPath(other.path, name), lockPath(dir, name)))
	},
	"directory replaced by another one": func(t *testing.T, dir, name string) {
		other := New(dir + ".other")
		locktest.Release(t, take(t, other, name))
		testkit.Must(t, os.Rename(dir, dir+".old"))
		testkit.Must(t, os.Rename(other.path, dir))
	},
}

// However the file goes while somebody holds, nobody else is granted before
// that holder has gone, and all who wait, by the old file or by the new one,
// are served one after the other.
func TestRemovedWhileHeld(t *testing.T) {
	t.Parallel()
	testkit.Each(t, removals, func(t *testing.T, _ string, remove func(t *testing.T, dir, name string)) {
		dir := filepath.Join(t.TempDir(), "locks")
		s := New(dir)
		holder := take(t, s, "x")
		in := guard{t: t, most: 1}
		in.inside.Add(1)
		old := []*locktest.WaiterOf[*lease]{queue(t, s, "x"), queue(t, New(dir), "x")}
		testkit.AwaitSleepers(t, lockPath(dir, "x"), 2)
		remove(t, dir, "x")

		fresh := New(dir)
		if busy := locktest.ExpectBusy(t, fresh, "x"); !strings.Contains(busy.Error(), "removed") {
			t.Errorf("%v does not say why", busy)
		}
		if busy := locktest.ExpectBusy(t, s, "x"); !strings.Contains(busy.Error(), "removed") {
			t.Errorf("%v does not say why to one who was there before", busy)
		}
		all := append(old, queue(t, fresh, "x"), queue(t, s, "x"))
		for _, w := range all {
			staysQueued(w, stillBusy/time.Duration(len(all)))
		}
		var served sync.WaitGroup
		for _, w := range all {
			served.Go(func() {
				if <-w.Done; w.Lease != nil {
					in.visit()
					_ = w.Lease.Release(background)
				}
			})
		}
		in.inside.Add(-1)
		locktest.Release(t, holder)
		for _, w := range all {
			w.ExpectGrant()
		}
		served.Wait()
		take(t, fresh, "x")
	})
}

// While somebody removes the file again and again, never more than max hold.
// Half of them wait; the others come again and again, as cron would.
// Slow: a waiter looks for the holders of a removed file once a second.
func TestRemovedAgainAndAgain(t *testing.T) {
	t.Parallel()
	for _, most := range []int{1, 3} {
		t.Run(fmt.Sprintf("max %d", most), func(t *testing.T) {
			t.Parallel()
			const people, rounds = 12, 8
			dir := filepath.Join(t.TempDir(), "locks")
			testkit.Must(t, os.Mkdir(dir, 0o700))
			in := guard{t: t, most: int32(most)}
			var removed, granted atomic.Int64
			var crowd, vandal sync.WaitGroup
			end := make(chan struct{})
			for i := range people {
				crowd.Go(func() {
					for served := 0; served < rounds; {
						r := locktest.NewRequest(t, "x", locktest.Limit(most))
						r.NoWait = i%2 == 0
						err := serve(New(dir), r, in.visit)
						switch {
						case err == nil:
							served++
							granted.Add(1)
						case locktest.IsBusy(err):
							time.Sleep(time.Millisecond)
						default:
							t.Error(err)
							return
						}
					}
				})
			}
			vandal.Go(func() {
				served := int64(-1)               // at the last removal: on a busy machine one of each millisecond lets nobody in
				for removed.Load() < maxMoves-1 { // so that nobody may give up
					select {
					case <-end:
						return
					case <-time.After(time.Millisecond):
						if now := granted.Load(); now != served && os.Remove(lockPath(dir, "x")) == nil {
							served = now
							removed.Add(1)
						}
					}
				}
			})
			crowd.Wait()
			close(end)
			vandal.Wait()
			if got := granted.Load(); got != people*rounds {
				t.Errorf("%d of %d were served", got, people*rounds)
			}
			if removed.Load() < 5 {
				t.Errorf("the file was removed only %d times", removed.Load())
			}
			t.Logf("removed %d times", removed.Load())
		})
	}
}

// What counts in the kernel's list is a lock on the byte, on the same device, of
// another file, and held, not only waited for. A long list may lack one and is not
// the last word.
func TestLockListIsReadRight(t *testing.T) {
	other := procfs.Lock{Kind: "OFDLCK", Shared: true, PID: -1, File: "fe:00:1234", Start: "99"}
	changed := func(change func(*procfs.Lock)) procfs.Lock {
		l := other
		change(&l)
		return l
	}
	noise := []procfs.Lock{
		changed(func(l *procfs.Lock) { l.Kind = "POSIX" }),
		changed(func(l *procfs.Lock) { l.Kind = "FLOCK" }),
		changed(func(l *procfs.Lock) { l.Waiting = true }),
		changed(func(l *procfs.Lock) { l.File = "fe:00:5" }), // our own file
		changed(func(l *procfs.Lock) { l.File = "fe:01:1234" }),
		changed(func(l *procfs.Lock) { l.Start = "98" }), // another path
	}
	long := slices.Repeat(noise, 20)
	for _, tt := range []struct {
		name     string
		readings [][]procfs.Lock
		want     bool
		asked    int
	}{
		{"empty", [][]procfs.Lock{nil}, false, 1},
		{"no other", [][]procfs.Lock{noise}, false, 1},
		{"another", [][]procfs.Lock{append(noise, other)}, true, 1},
		{"another by its directory", [][]procfs.Lock{append(noise, changed(func(l *procfs.Lock) { l.Start = "97" }))}, true, 1},
		{"missed twice", [][]procfs.Lock{long, long, append(long, other)}, true, 3},
		{"never there", [][]procfs.Lock{long, long, long, long}, false, 4},
	} {
		asked := 0
		got := isLockedElsewhere("fe:00:5", []int64{99, 97}, func() []procfs.Lock {
			asked++
			return tt.readings[min(asked, len(tt.readings))-1]
		})
		if got != tt.want || asked != tt.asked {
			t.Errorf("%s: %v after %d readings, want %v after %d", tt.name, got, asked, tt.want, tt.asked)
		}
	}
}

// The holder's path may not be that of who makes the new file, as in a directory that containers
// share; and on overlayfs, the root of many a container, stat(2) gives another device than the
// kernel's list.
func TestRemovedWhileHeldOnMounts(t *testing.T) {
	t.Parallel()
	dir, other := mount(t, "tmpfs", ""), t.TempDir()
	testkit.Must(t, unix.Mount(dir, other, "", unix.MS_BIND, ""))
	t.Cleanup(func() { _ = unix.Unmount(other, unix.MNT_DETACH) })
	upper := mount(t, "tmpfs", "size=1m")
	for _, d := range []string{"up", "work"} {
		testkit.Must(t, os.Mkdir(filepath.Join(upper, d), 0o755))
	}
	overlay := mount(t, "overlay", "lowerdir="+mount(t, "tmpfs", "size=1m")+",upperdir="+upper+"/up,workdir="+upper+"/work")
	for here, there := range map[string]string{dir: other, overlay: overlay} {
		holder := take(t, New(here), "x")
		locktest.ExpectBusy(t, New(there), "x")
		testkit.Must(t, os.Remove(lockPath(here, "x")))
		if busy := locktest.ExpectBusy(t, New(there), "x"); busy.Reason == "" {
			t.Errorf("%s: %+v does not tell why", there, busy)
		}
		locktest.Release(t, holder)
		locktest.Release(t, take(t, New(there), "x"))
	}
}

// The path counts, and only where it is: the same path on another file system,
// as in another container, is another lock.
func TestSamePathOnAnotherDeviceIsAnotherLock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holder := take(t, New(dir), "x")
	testkit.NeedRoot(t)
	testkit.Must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	take(t, New(dir), "x")
	locktest.Release(t, holder)
}

// Two containers have different directories at the same path, on one file system: these are two locks.
func TestSamePathOfAnotherDirectoryIsAnotherLock(t *testing.T) {
	t.Parallel()
	testkit.NeedRoot(t)
	place, one, other := t.TempDir(), t.TempDir(), t.TempDir()
	bind := func(dir string) {
		testkit.Must(t, unix.Mount(dir, place, "", unix.MS_BIND, ""))
		t.Cleanup(func() { _ = unix.Unmount(place, unix.MNT_DETACH) })
	}
	bind(one)
	first := take(t, New(place), "x")
	testkit.Must(t, unix.Unmount(place, unix.MNT_DETACH))
	bind(other)
	second := take(t, New(place), "x")
	locktest.ExpectBusy(t, New(one), "x")
	locktest.ExpectBusy(t, New(other), "x")

	// The directory is removed and made again where it really is.
	testkit.Must(t, os.RemoveAll(other))
	testkit.Must(t, os.Mkdir(other, 0o700))
	if busy := locktest.ExpectBusy(t, New(other), "x"); busy.Reason == "" {
		t.Errorf("%+v does not tell why", busy)
	}
	locktest.Release(t, second)
	locktest.Release(t, take(t, New(other), "x"))
	locktest.Release(t, first)
}

// systemd-tmpfiles leaves a directory alone that is flock'ed. It is, as long as
// somebody holds or waits, and as long as what a killed holder started lives,
// which keeps the slot; not longer.
func TestDirectoryIsMarkedAsInUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	testkit.Must(t, err)
	defer unix.Close(fd)
	marked := func() bool {
		if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
			return true
		}
		testkit.Must(t, unix.Flock(fd, unix.LOCK_UN))
		return false
	}
	s := New(dir)
	holder := take(t, s, "x")
	w := queue(t, s, "x")
	if !marked() {
		t.Error("not marked while one holds and one waits")
	}
	locktest.Release(t, holder)
	w.ExpectGrant()
	if !marked() {
		t.Error("not marked while one holds")
	}
	locktest.Release(t, w.Lease)
	testkit.Eventually(t, "the mark is gone with the last holder", func() bool { return !marked() })

	c := startChild(t)
	c.Ask(call{Do: "join", Dir: dir, Name: "x", Max: 1})
	heir := c.Ask(call{Do: "spawn", Dir: dir, Name: "x"}).PID
	defer reap(t, heir)
	c.Kill()
	if !marked() {
		t.Error("not marked while an heir holds")
	}
	locktest.ExpectSwept(t, s, 0, 0)
	if busy := locktest.ExpectBusy(t, s, "x"); len(busy.Holders) != 1 || !busy.Holders[0].Orphaned {
		t.Errorf("%+v, want the orphaned holder", busy.Holders)
	}
	w = queue(t, s, "x")
	testkit.AwaitSleepers(t, lockPath(dir, "x"), 1)
	w.ExpectWaiting()
	reap(t, heir)
	locktest.Release(t, w.ExpectGrant())
	testkit.Eventually(t, "the mark is gone with the heir", func() bool { return !marked() })
}
