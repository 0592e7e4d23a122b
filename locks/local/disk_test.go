package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"golock/locks/locktest"
	"golock/test/testkit"
)

// A lock that was used before needs no more space, until its table has to grow. What cannot be
// written is not granted, and what is given back serves the next. With space again all is well.
func TestFullDiskDoesNotConcernAnExistingLock(t *testing.T) {
	t.Parallel()
	s := New(mount(t, "tmpfs", "size=64k"))
	locktest.Release(t, take(t, s, "x"))
	filler, err := os.Create(filepath.Join(s.path, "filler"))
	testkit.Must(t, err)
	defer filler.Close()
	for err == nil {
		_, err = filler.Write(make([]byte, 4096)) // a page of tmpfs
	}
	isFull := func(err error, name string) {
		t.Helper()
		locktest.ExpectError(t, err, unix.ENOSPC.Error(), lockPath(s.path, name))
	}
	isFull(fails(t, s, "new", s.path), "new")
	if isInUse(t, lockPath(s.path, "new")) {
		t.Error("something is locked after the error")
	}
	for range 3 {
		l := take(t, s, "x")
		locktest.ExpectBusy(t, s, "x")
		w := queue(t, s, "x")
		locktest.Release(t, l)
		locktest.Release(t, w.ExpectGrant())
	}
	var held []*lease
	for range (firstSize - pageSize) / recordSize {
		held = append(held, take(t, s, "x", locktest.Limit(0)))
	}
	for _, limit := range []int{0, 1} { // one would be granted, one would wait
		_, err := s.Join(background, locktest.NewRequest(t, "x", locktest.Limit(limit)))
		isFull(err, "x")
	}
	if got := locktest.List(t, s, "x"); len(got) != len(held) {
		t.Errorf("%d entries for %d grants", len(got), len(held))
	}
	locktest.Release(t, held[1])
	if got := take(t, s, "x", locktest.Limit(0)).Grant().Slots; got[0] != 1 {
		t.Errorf("slots %v, want the one that was given back", got)
	}
	testkit.Must(t, filler.Truncate(0))
	take(t, s, "x", locktest.Limit(0))
	take(t, s, "new")
}

// The limit of a file's size cuts between any two writes, also between header
// and record: what was not written whole is not granted.
func TestFileSizeLimitAtEveryWrite(t *testing.T) {
	for _, prepared := range []bool{false, true} {
		for _, size := range []int{0, 100, headerEnd, pageSize, pageSize + 100, pageSize + recordSize, firstSize - 1, firstSize} {
			s := New(t.TempDir())
			path := lockPath(s.path, "x")
			var last int64
			if prepared {
				l := take(t, s, "x")
				last = l.Grant().Fence
				locktest.Release(t, l)
			}
			c := startChild(t)
			c.Ask(call{Do: "fsize", Number: size})
			a := c.Try(call{Do: "join", Dir: s.path, Name: "x", Max: 1})
			if a.Err == "" {
				if locktest.ExpectBusy(t, s, "x"); a.Fence <= last {
					t.Errorf("size %d: fence %d after %d", size, a.Fence, last)
				}
				last = a.Fence
				c.Kill()
			} else {
				if !strings.Contains(a.Err, path) || !strings.Contains(a.Err, unix.EFBIG.Error()) {
					t.Errorf("size %d: %s", size, a.Err)
				}
				if isInUse(t, path) {
					t.Errorf("size %d: something is locked after the error", size)
				}
				if size >= firstSize {
					t.Errorf("size %d: %s", size, a.Err)
				}
			}
			testkit.Eventually(t, "the child's lock is gone", func() bool { return !isInUse(t, path) })
			l := take(t, s, "x")
			if f := l.Grant().Fence; f <= last {
				t.Errorf("size %d: fence %d after %d", size, f, last)
			}
			locktest.ExpectBusy(t, s, "x")
		}
	}
}

// On a read-only file system nothing can be locked, but looked at.
func TestReadOnlyFileSystem(t *testing.T) {
	t.Parallel()
	dir := mount(t, "tmpfs", "size=64k")
	s := New(dir)
	locktest.Release(t, take(t, s, "x"))
	testkit.Eventually(t, "it is read-only", func() bool {
		return unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "") == nil
	})
	again := New(dir)
	for _, name := range []string{"x", "new"} {
		locktest.ExpectError(t, fails(t, again, name, lockPath(dir, name)), unix.EROFS.Error(), "ReadWritePaths="+dir)
		if got := locktest.List(t, again, name); len(got) != 0 {
			t.Errorf("%v", got)
		}
	}
	missing := New(filepath.Join(dir, "missing"))
	locktest.ExpectError(t, fails(t, missing, "x", filepath.Join(dir, "missing")), unix.EROFS.Error(), "ReadWritePaths="+dir)
}
