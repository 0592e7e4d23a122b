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

// freeNumbers returns the numbers up to last at which no descriptor is open, the highest first.
func freeNumbers() (list []int) {
	for n := last; n >= 0; n-- {
		if _, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0); err == unix.EBADF {
			list = append(list, n)
		}
	}
	return list
}

// Threads that move descriptors at the same time do not push each other beyond the table, and lose
// no descriptor.
func TestMoveHighAtOnce(t *testing.T) {
	before := freeNumbers()
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
		areDistinct := len(slices.Compact(slices.Clone(moved))) == len(moved)
		if moved[len(moved)-1] > last || !areDistinct {
			t.Fatalf("moved to %v, want distinct numbers up to %d", moved, last)
		}
		for _, fd := range moved {
			_ = syscall.Close(fd)
		}
	}
	if after := freeNumbers(); !slices.Equal(after, before) {
		t.Errorf("free numbers are %v, want %v as before", after, before)
	}
}
