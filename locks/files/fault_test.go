package files_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golock/locks"
	. "golock/locks/locktest"
	"golock/test/testkit"
)

// shortTTL is that of processes which are killed.
const shortTTL = 400 * time.Millisecond

// nextTTL is that of who comes after one that has left no record: it waits for as
// long.
const nextTTL = 2 * time.Second

// A process that is killed before any step of the protocol holds up nobody for
// longer than its TTL.
func TestKilledAtEveryStep(t *testing.T) {
	untilOneSurvives(t, 12, func(t *testing.T, url string, killed *exec.Cmd) error {
		err := killed.Run()
		began := time.Now()
		lease := Get(t, open(t, url), "n", TTL(nextTTL))
		if took := time.Since(began); took > testkit.Patience/2 {
			t.Errorf("the next one waited for %v", took)
		}
		gone(t, lease)
		return err
	})
}

// The same for one that waits in a line.
func TestKilledAtEveryStepOfWaiting(t *testing.T) {
	untilOneSurvives(t, 12, func(t *testing.T, url string, killed *exec.Cmd) error {
		s := open(t, url)
		first := Take(t, s, "n")
		testkit.Must(t, killed.Start())
		ended := make(chan struct{})
		var err error
		go func() {
			defer close(ended)
			err = killed.Wait()
		}()
		// It has joined, or it will not come.
		testkit.Eventually(t, "the process waits or has ended", func() bool {
			select {
			case <-ended:
				return true
			default:
				return len(List(t, s, "n")) == 2
			}
		})
		behind := Queue(t, s, "n", TTL(nextTTL))
		testkit.Must(t, GiveBack(first))
		<-ended
		gone(t, behind.Granted())
		return err
	})
}

// gone gives a short lease back, which may be lost on a busy machine.
func gone(t *testing.T, l locks.Lease) {
	t.Helper()
	if err := GiveBack(l); err != nil && !errors.Is(err, locks.ErrLost) {
		t.Fatal(err)
	}
}

// untilOneSurvives has processes take the slot and give it back, each in a store
// of its own, and kill themselves before their first, second, third step.
func untilOneSurvives(t *testing.T, atLeast int, test func(t *testing.T, url string, killed *exec.Cmd) error) {
	t.Parallel()
	const together = 8
	var survivor atomic.Int64
	for from := 1; survivor.Load() == 0; from += together {
		t.Run(fmt.Sprint("from ", from), func(t *testing.T) {
			for step := from; step < from+together; step++ {
				t.Run(fmt.Sprint("step ", step), func(t *testing.T) {
					t.Parallel()
					url := scheme(t) + "://" + memory(t)
					if test(t, url, process(t, order{URL: url, Do: "use", Times: 1, Step: step, TTL: shortTTL})) == nil {
						survivor.Store(int64(step))
					}
					sweepAll(t, url)
				})
			}
		})
		if t.Failed() {
			return
		}
	}
	if n := int(survivor.Load()); n < atLeast {
		t.Errorf("the protocol has %d steps only: are they told?", n)
	}
}

// sweepAll demands that a sweep leaves nothing that anybody has left behind.
func sweepAll(t *testing.T, url string) {
	t.Helper()
	// What has no record is given time, so it is virtual, and begins in 2000.
	synctest.Test(t, func(t *testing.T) {
		if _, err := openAt(t, url, "virtual", 0).Sweep(background, "", math.MinInt64); err != nil {
			t.Fatalf("Sweep: %v", err)
		}
	})
	dir := directory(t, url)
	for _, pattern := range []string{"/new.*", "/old.*", "/*/data/*"} {
		left, err := filepath.Glob(dir + pattern)
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
}

// Users, of whom many are killed at any step, and one that sweeps: never two at
// once, and nobody is held up for good.
// Slow: what a killed process leaves lasts for its TTL.
func TestCrowd(t *testing.T) {
	t.Parallel()
	url := "mkdir://" + t.TempDir() // whose listings are not those of memory
	witness := t.TempDir() + "/witness"
	testkit.Must(t, os.WriteFile(witness, nil, 0o600))
	lives, seed := 4, testkit.Seed(t)
	if testkit.Campaign() {
		lives = 100
	}
	t.Logf("seed %d", seed)
	var all sync.WaitGroup
	var killed atomic.Int64
	for i := range 8 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			for range lives {
				o := order{URL: url, Do: "use", Times: 5, Step: 1 + rng.IntN(300), Witness: witness, TTL: 700 * time.Millisecond}
				if i == 0 {
					o.Do, o.Times = "sweep", 20
				}
				cmd := process(t, o)
				err := cmd.Run()
				status, ok := cmd.ProcessState.Sys().(interface{ Signaled() bool })
				switch {
				case err == nil:
				case ok && status.Signaled():
					killed.Add(1)
				default:
					t.Errorf("seed %d: a process ended with %v", seed, err)
					return
				}
			}
		})
	}
	all.Wait()
	if killed.Load() == 0 {
		t.Error("nobody was killed")
	}
	t.Logf("%d were killed", killed.Load())
	testkit.Must(t, GiveBack(Get(t, open(t, url), "n")))
	sweepAll(t, url)
}
