package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	. "golock/locks/locktest"
	"golock/test/testkit"
)

const memoryPage = 4096 // of tmpfs

// fill writes a file until the disk is full, but for some pages. It returns
// what makes all of it free again.
func fill(t *testing.T, dir string, pages int64) (empty func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	testkit.Must(t, err)
	defer f.Close()
	var size int64
	for page := make([]byte, memoryPage); ; size += memoryPage {
		if _, err = f.Write(page); err != nil {
			break
		}
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	if size < pages*memoryPage {
		t.Fatalf("only %d bytes were free", size)
	}
	testkit.Must(t, f.Truncate(size-pages*memoryPage))
	return func() { discard(t, path) }
}

// discard removes a file and frees its space at once: a process that another test is just
// starting may still have it open.
func discard(t *testing.T, path string) {
	t.Helper()
	testkit.Must(t, os.Truncate(path, 0))
	testkit.Must(t, os.Remove(path))
}

// A lock that was used before needs no more space.
func TestFullDiskDoesNotConcernAnExistingLock(t *testing.T) {
	t.Parallel()
	s := New(mount(t, "tmpfs", "size=64k"))
	Release(t, take(t, s, "x"))
	empty := fill(t, s.path, 0)
	for range 3 {
		l := take(t, s, "x")
		Refused(t, s, "x")
		w := queue(t, s, "x")
		Release(t, l)
		Release(t, w.Granted())
	}
	for range (firstSize - pageSize) / recordSize {
		take(t, s, "x", Limit(0))
	}
	empty()
}

// The disk becomes full at every write in turn. Either all is well, or nothing
// is granted, and what is given back serves the next; with space again all is well.
func TestDiskBecomesFullAtEveryWrite(t *testing.T) {
	t.Parallel()
	dir := mount(t, "tmpfs", "size=64k")
	granted, refused := 0, 0
	for pages := range int64(8) {
		s := New(dir)
		name := fmt.Sprint("lock ", pages)
		empty := fill(t, dir, pages)
		isFull := func(err error) {
			if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), lockPath(dir, name)) {
				t.Errorf("with %d pages: %v", pages, err)
			}
		}
		var held []*lease
		for range 9 { // so many need four pages
			ticket, err := s.Join(background, NewRequest(t, name, Limit(0)))
			if err != nil {
				isFull(err)
				refused++
				continue
			}
			l, err := ticket.Wait(background)
			testkit.Must(t, err)
			held = append(held, l.(*lease))
			granted++
		}
		if len(held) == 0 && isInUse(t, lockPath(dir, name)) {
			t.Errorf("with %d pages: something is locked after the error", pages)
		}
		if n := len(held); n > 0 && n < 9 { // the table cannot grow
			_, err := s.Join(background, NewRequest(t, name)) // it would have to wait
			isFull(err)
			Release(t, held[1])
			if held[1] = take(t, s, name, Limit(0)); held[1].Grant().Slots[0] != 1 {
				t.Errorf("with %d pages: slots %v", pages, held[1].Grant().Slots)
			}
		}
		if got := List(t, s, name); len(got) != len(held) {
			t.Errorf("with %d pages: %d entries for %d grants", pages, len(got), len(held))
		}
		empty()
		for _, l := range append(held, take(t, s, name, Limit(0))) {
			Release(t, l)
		}
		discard(t, lockPath(dir, name))
	}
	if granted == 0 || refused == 0 {
		t.Errorf("%d grants and %d refusals: the disk was never on the edge", granted, refused)
	}
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
				Release(t, l)
			}
			c := startChild(t)
			c.Ask(call{Do: "fsize", Number: size})
			a := c.Try(call{Do: "join", Dir: s.path, Name: "x", Max: 1})
			if a.Err == "" {
				if Refused(t, s, "x"); a.Fence <= last {
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
			Refused(t, s, "x")
		}
	}
}

// On a read-only file system nothing can be locked, but looked at.
func TestReadOnlyFileSystem(t *testing.T) {
	t.Parallel()
	dir := mount(t, "tmpfs", "size=64k")
	s := New(dir)
	l := take(t, s, "x")
	w := queue(t, s, "x")
	awaitSleepers(t, lockPath(dir, "x"), 1)
	leave(t, w)
	Release(t, l)
	testkit.Eventually(t, "nothing is open there any more", func() bool { return !isInUse(t, lockPath(dir, "x")) })
	testkit.Eventually(t, "it is read-only", func() bool {
		return unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "") == nil
	})
	again := New(dir)
	for _, name := range []string{"x", "new"} {
		if err := fails(t, again, name, lockPath(dir, name)); !errors.Is(err, unix.EROFS) {
			t.Errorf("%v", err)
		}
		if got := List(t, again, name); len(got) != 0 {
			t.Errorf("%v", got)
		}
	}
	missing := New(filepath.Join(dir, "missing"))
	if err := fails(t, missing, "x", filepath.Join(dir, "missing")); !errors.Is(err, unix.EROFS) {
		t.Errorf("%v", err)
	}
}
