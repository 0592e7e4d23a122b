package fdtable

import (
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"

	"golock/test/testkit"
)

func open(t *testing.T) int {
	fd, err := syscall.Open(os.DevNull, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	testkit.Must(t, err)
	return fd
}

func isFree(n int) bool {
	_, err := fcntl(n, syscall.F_GETFD, 0)
	return err == syscall.EBADF
}

// free are the numbers up to last that nobody has, the highest first.
func free() (list []int) {
	for n := last; n >= 0; n-- {
		if isFree(n) {
			list = append(list, n)
		}
	}
	return list
}

// Every number is given, from the top, and when the table is full the descriptor
// stays what it is.
func TestMoveHigh(t *testing.T) {
	var moved []int
	defer func() {
		for _, fd := range moved {
			_ = syscall.Close(fd)
		}
	}()
	want := free()
	for range want {
		moved = append(moved, MoveHigh(open(t)))
	}
	if !slices.Equal(moved, want) {
		t.Errorf("moved to %v, want %v", moved, want)
	}
	beyond := open(t)
	moved = append(moved, beyond)
	if got := MoveHigh(beyond); got != beyond || isFree(got) {
		t.Errorf("%d became %d in a full table", beyond, got)
	}
	for _, fd := range moved {
		if flags, err := fcntl(fd, syscall.F_GETFD, 0); err != 0 || flags != syscall.FD_CLOEXEC {
			t.Errorf("descriptor %d: flags %d, %v", fd, flags, err)
		}
	}
}

// Threads that move descriptors at the same time do not take numbers beyond the
// table from each other, nor lose a descriptor.
func TestMoveHighAtOnce(t *testing.T) {
	before := free()
	for range 200 {
		var group sync.WaitGroup
		moved := make([]int, 8)
		for i := range moved {
			fd := open(t)
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
