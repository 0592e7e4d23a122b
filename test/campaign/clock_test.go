//go:build integration

package campaign_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golock/test/testkit"
)

// A clock is one server's wall clock, which is set while the server runs: a preloaded library adds
// the seconds in a file. (The kernel has one wall clock for all namespaces.)

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
	dir := testkit.Place(t, 0o755) // servers have users of their own, who must get at it
	c := &clock{library: filepath.Join(dir, "shift.so"), file: filepath.Join(dir, "seconds")}
	testkit.Output(t, "", "gcc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", c.library, "testdata/shift.c")
	testkit.Must(t, c.write())
	return c
}

func (c *clock) write() error {
	f, err := os.OpenFile(c.file, os.O_WRONLY|os.O_CREATE, 0o644) // in place: the server has it mapped
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(c.ahead)), 0)
	return err
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
	_ = c.write()
}
