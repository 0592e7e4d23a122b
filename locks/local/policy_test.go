package local

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/locktest"
	"golock/test/testkit"
)

// rewrite changes the only record of a lock file that is in use.
func rewrite(t *testing.T, path string, by func(*record)) {
	t.Helper()
	text, err := os.ReadFile(path)
	testkit.Must(t, err)
	r, err := decodeRecord(text[recordOffset(0):])
	testkit.Must(t, err)
	by(&r)
	patched(recordOffset(0), r.encode())(t, path)
}

// A hold ends with the boot that it was made in.
func TestHoldOfAnotherBoot(t *testing.T) {
	dir := t.TempDir()
	s := New(dir)
	locktest.Release(t, take(t, s, "x", locktest.Hold(time.Hour)))
	if busy := locktest.ExpectBusy(t, s, "x"); len(busy.Holders) != 1 || !busy.Holders[0].Ended {
		t.Fatalf("holders %+v", busy.Holders)
	}
	rewrite(t, lockPath(dir, "x"), func(r *record) { r.boot[0]++ })
	take(t, s, "x")
}

// A stale record of the same ID hides no live one: a file that is moved away and back has two
// of a waiter.
func TestEvictionBesideAStaleRecord(t *testing.T) {
	dir := t.TempDir()
	s := New(dir)
	stale := take(t, s, "x", locktest.Limit(2))
	held := take(t, s, "x", locktest.Limit(2), locktest.Hold(time.Hour))
	locktest.Release(t, held)
	locktest.Release(t, stale)
	rewrite(t, lockPath(dir, "x"), func(r *record) { r.id = held.Grant().Ref.ID })
	testkit.Must(t, s.Evict(background, []locks.Ref{held.Grant().Ref}, "a test")[0])
	if left := locktest.List(t, s, "x"); len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
}

// A record that slots fill to the last has room for who evicts it; a long name
// is cut between its letters.
func TestEvictorFits(t *testing.T) {
	dir := t.TempDir()
	s := New(dir)
	l := take(t, s, "x", locktest.Limit(maxUnits), locktest.Weight(maxUnits/2), command(strings.Repeat("c", 2000)))
	// Every second slot of those that there can be.
	rewrite(t, lockPath(dir, "x"), func(r *record) {
		r.weight = maxUnits / 2
		var slots []int
		for i := range maxUnits / 2 {
			slots = append(slots, 2*i)
		}
		r.slots = slots
	})
	by := strings.Repeat("ä", 100)
	f := openLock(t, s, "x")
	tab, err := f.read()
	testkit.Must(t, err)
	v, err := f.evict(&tab.records[0], by)
	testkit.Must(t, err)
	defer v.file.close()
	told, ok := l.Evicted().(*locks.EvictedError)
	if !ok || len(told.By) < maxEvictor-1 || !strings.HasPrefix(by, told.By) {
		t.Errorf("Evicted = %v", told)
	}
}

// Nobody who merely has the lock file open, or other bytes of it locked, counts
// as one who keeps the slot.
func TestSlotOwners(t *testing.T) {
	s := New(t.TempDir())
	l := take(t, s, "x", locktest.Limit(2))
	other := take(t, s, "x", locktest.Limit(2))
	f := openLock(t, s, "x")
	testkit.Must(t, f.lockGate(background, unix.F_WRLCK, gateLimit))
	file := f.kernelName()
	f.unlockGate()
	owns := func(pid int, file string, l *lease) bool {
		has, _ := (&victim{record: l.entry.record, kernelName: file}).owns(pid)
		return has
	}
	if !owns(os.Getpid(), file, l) || !owns(os.Getpid(), file, other) {
		t.Error("the holder does not keep its slot")
	}
	locktest.Release(t, other)
	if owns(os.Getpid(), file, other) || !owns(os.Getpid(), file, l) {
		t.Error("released, and still kept, or not released and not kept")
	}
	if owns(os.Getpid(), file+"0", l) || owns(os.Getppid(), file, l) {
		t.Error("a stranger keeps the slot")
	}
}
