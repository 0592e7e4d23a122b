//go:build integration

package crash_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golock/test/testkit"
)

// A waiter that gets TSTP leaves the queue and comes again with CONT.
func TestTSTPLeavesTheQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	first := w.holding(spec{max: 1})
	absent := w.queued(spec{max: 1})
	behind := w.queued(spec{max: 1, hold: -1})
	absent.Signal(syscall.SIGTSTP)
	absent.Says("left the queue")
	w.AwaitWaiters(behind.PID)
	first.release()
	w.awaitBegin(behind)
	last := w.queued(spec{max: 1})
	absent.Signal(syscall.SIGCONT)
	w.AwaitWaiters(last.PID, absent.PID)
	behind.release()
	w.finishInOrder(first, behind, last, absent)
}

// A golock that was told to stop just when the slot comes to it either has it,
// or leaves with nothing in its hands.
func TestTSTPWhenTheSlotComes(t *testing.T) {
	t.Parallel()
	random := newRand(t)
	w := newWorld(t, "")
	for range 25 {
		holder := w.holding(spec{max: 1})
		waiter := w.queued(spec{max: 1})
		holder.release()
		pass(time.Duration(random.Int64N(int64(600 * time.Microsecond))))
		left := func() bool { return strings.Contains(waiter.Stderr(), "left the queue") }
		w.Signal(waiter.PID, syscall.SIGTSTP)
		holder.Wait()
		w.Eventually("the golock leaves, its command stops, or both end", func() bool {
			return !waiter.Running() || left() || slices.ContainsFunc(testkit.Children(waiter.PID), testkit.Stopped)
		})
		if left() {
			w.IsFree()
		}
		// A signal of a golock that has just stopped its command may be on its way.
		w.Eventually("the waiter ends", func() bool {
			w.Signal(waiter.PID, syscall.SIGCONT)
			return !waiter.Running()
		})
	}
	w.finish()
}

// CONT right after TSTP: no process may be left stopped. Known and not to be
// helped without a terminal: a CONT that comes between golock's last look and
// its own STOP is lost (signals.Relay.Suspend). That is one of forty, and more
// on a busy machine; it goes on with the next CONT.
func TestTSTPAndCONTAtOnce(t *testing.T) {
	t.Parallel()
	random := newRand(t)
	w := newWorld(t, "")
	holder := w.holding(spec{max: 1})
	var waiters []*proc
	for range 20 {
		p := w.queued(spec{max: 1})
		waiters = append(waiters, p)
		p.Signal(syscall.SIGTSTP)
		pass(time.Duration(random.Int64N(int64(400 * time.Microsecond))))
		p.Signal(syscall.SIGCONT)
	}
	holder.release()
	again := map[*proc]bool{}
	w.Eventually("all have ended", func() bool {
		ended := true
		for _, p := range waiters {
			ended = ended && !p.Running()
			if testkit.Stopped(p.PID) && w.Signal(p.PID, syscall.SIGCONT) {
				again[p] = true
			}
		}
		return ended
	})
	if len(again) > len(waiters)/2 {
		t.Errorf("%d of %d golocks were left stopped", len(again), len(waiters))
	}
	w.finish()
}

// A golock that is stopped at the worst moment, while it changes the table,
// holds up the others. Those who do not want to wait are told; those who wait
// go on waiting and are served when it continues.
func TestStoppedWhileItChangesTheTable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	queue := []*proc{w.holding(spec{max: 1}), w.queued(spec{max: 1}), w.queued(spec{max: 1})}
	inside := w.trace(spec{max: 1, flags: []string{"-n"}}, func(p *proc) syscall.Signal {
		if holdsLock(p.PID) {
			return syscall.SIGSTOP
		}
		return 0
	})
	if !testkit.Stopped(inside.PID) || !holdsLock(inside.PID) {
		t.Fatal("there is no golock that is stopped inside")
	}
	queue[0].release()
	queue[0].Wait()
	impatient := w.start(spec{max: 1, flags: []string{"-n"}})
	impatient.judged = true
	if r := impatient.Wait(); r.Code != 69 && r.Code != 75 {
		t.Errorf("-n behind a stopped golock: %v", r)
	}
	inside.Signal(syscall.SIGCONT)
	w.finishInOrder(queue...)
}

// holdsLock reports whether a golock has a write lock, which one that does not
// wait and is not served has only while it changes the table.
func holdsLock(pid int) bool {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	return slices.ContainsFunc(files, func(f string) bool {
		text, _ := os.ReadFile(f)
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "lock:") && strings.Contains(line, " OFDLCK ") && strings.Contains(line, " WRITE ") {
				return true
			}
		}
		return false
	})
}
