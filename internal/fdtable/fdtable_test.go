package fdtable

import (
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"golock/test/testkit"
)

// free are the numbers up to last that nobody has, the highest first.
func free() (list []int) {
	for n := last; n >= 0; n-- {
		if _, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0); err == unix.EBADF {
			list = append(list, n)
		}
	}
	return list
}

// Threads that move descriptors at the same time do not take numbers beyond the
// table from each other, nor lose a descriptor.
func TestMoveHighAtOnce(t *testing.T) {
	before := free()
	for range 200 {
		var group sync.WaitGroup
		moved := make([]int, 8)
		for i := range moved {
			fd, err := syscall.Open(os.DevNull, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
			testkit.Must(t, err)
			group.Go(func() { moved[i] = MoveHigh(fd) })
		}
		group.Wait()
		slices.Sort(moved)
		if moved[len(moved)-1] > last || len(slices.Compact(slices.Clone(moved))) != len(moved) {
			t.Fatalf("moved to %v", moved)
		}
		for _, fd := range moved {
			_ = syscall.Close(fd)
		}
	}
	if after := free(); !slices.Equal(after, before) {
		t.Errorf("free are %v, before %v", after, before)
	}
}
