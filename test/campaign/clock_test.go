//go:build integration

package campaign_test

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// This file pins nothing. A clock is one server's wall clock, which is set while
// it runs: a library between it and the C library adds what a file says. (The
// wall clock of the machine is everybody's, and no namespace has its own.)

type clock struct {
	library, file string
	ahead         int64 // seconds
	set           bool
}

// environmentOf guards the variables of this process, which a server that is
// started gets.
var environmentOf sync.Mutex

func newClock(t *testing.T) *clock {
	t.Helper()
	dir, err := os.MkdirTemp("", "golock-clock-") // servers have users of their own, who must get at it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c := &clock{library: filepath.Join(dir, "shift.so"), file: filepath.Join(dir, "seconds")}
	source := filepath.Join("..", "crash", "testdata", "shift.c")
	if out, err := exec.Command("gcc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", c.library, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c.write(t)
	return c
}

func (c *clock) write(t testing.TB) {
	// In place: the server has the file mapped.
	f, err := os.OpenFile(c.file, os.O_WRONLY|os.O_CREATE, 0o644)
	if err == nil {
		_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(c.ahead)), 0)
		f.Close()
	}
	if err != nil && t != nil {
		t.Fatal(err)
	}
}

// under starts something that has this clock.
func (c *clock) under(start func()) {
	environmentOf.Lock()
	defer environmentOf.Unlock()
	os.Setenv("LD_PRELOAD", c.library)
	os.Setenv("CLOCK_SHIFT_FILE", c.file)
	defer os.Unsetenv("LD_PRELOAD")
	defer os.Unsetenv("CLOCK_SHIFT_FILE")
	start()
}

// longestStep is by how many seconds a clock is set forward or back at most.
const longestStep = 8

func (c *clock) step(pick int) {
	by := int64(1 + pick%longestStep)
	if pick&64 != 0 {
		by = -by
	}
	c.ahead, c.set = c.ahead+by, true
	c.write(nil)
}
