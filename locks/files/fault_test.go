package files_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golock/locks"
	"golock/locks/locktest"
	"golock/test/testkit"
)

// shortTTL is that of processes which are killed.
const shortTTL = 400 * time.Millisecond

// nextTTL is that of the one that comes after a process which has left no record: it waits
// for so long.
const nextTTL = 2 * time.Second

// A process that is killed before any step of the protocol holds up nobody for longer than
// its TTL: neither the next one, nor one behind it in the queue.
func TestKilledAtEveryStep(t *testing.T) {
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprint("waits ", waits), func(t *testing.T) {
			t.Parallel()
			const together = 8
			var survivor atomic.Int64
			for from := 1; survivor.Load() == 0 && !t.Failed(); from += together {
				t.Run(fmt.Sprint("from ", from), func(t *testing.T) {
					for step := from; step < from+together; step++ {
						t.Run(fmt.Sprint("step ", step), func(t *testing.T) {
							t.Parallel()
							if testKilled(t, step, waits) {
								survivor.Store(int64(step))
							}
						})
					}
				})
			}
			if n := int(survivor.Load()); n < 12 && !t.Failed() {
				t.Errorf("the protocol has %d steps only: are they told?", n)
			}
		})
	}
}

// testKilled has a process take the slot and give it back, and kill itself before a step.
func testKilled(t *testing.T, step int, waits bool) (survived bool) {
	url := scheme(t) + "://" + memory(t)
	s, killed := open(url), process(t, order{URL: url, Step: step, TTL: shortTTL})
	killed.Stderr = os.Stderr
	var next locks.Lease
	began := time.Now()
	if waits {
		first := locktest.AcquireAtOnce(t, s, "n")
		testkit.Must(t, killed.Start())
		ended := make(chan error, 1)
		go func() { ended <- killed.Wait() }()
		testkit.Eventually(t, "the process waits or has ended", func() bool { return len(ended) > 0 || len(locktest.List(t, s, "n")) == 2 })
		behind := locktest.Enqueue(t, s, "n", locktest.TTL(nextTTL))
		testkit.Must(t, locktest.ReleaseUntilAnswered(first))
		survived = <-ended == nil
		next = behind.ExpectGrant()
	} else {
		survived = killed.Run() == nil
		began = time.Now()
		next = locktest.Acquire(t, s, "n", locktest.TTL(nextTTL))
	}
	testkit.Lasted(t, began, 0, testkit.Patience/2)
	if err := locktest.ReleaseUntilAnswered(next); err != nil && !errors.Is(err, locks.ErrLost) { // lost on a busy machine
		t.Fatal(err)
	}
	sweepAll(t, url)
	return survived
}

// sweepAll demands that nothing is left after a sweep.
func sweepAll(t *testing.T, url string) {
	t.Helper()
	// Entries without a record are given time, so it is virtual. It begins in 2000.
	synctest.Test(t, func(t *testing.T) {
		_, err := openAt(t, url, "virtual", 0).Sweep(background, "", math.MinInt64)
		testkit.Must(t, err)
	})
	if left, err := filepath.Glob(directory(t, url) + "/*/data/*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
