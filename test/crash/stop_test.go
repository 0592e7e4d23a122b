package crash_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// This file pins what happens around golocks that are stopped and continued: a
// waiter that gets TSTP leaves the queue and comes again with CONT; one that
// stands still in the midst of a step holds up others, but breaks nothing.

func TestTSTPLeavesTheQueue(t *testing.T) {
	w := newWorld(t)
	w.wanted = []string{""}
	first, release := w.lasting(spec{max: 1})
	w.awaitBegin(w.start(first))
	absent := w.queued(spec{max: 1})
	second, releaseSecond := w.lasting(spec{max: 1})
	behind := w.queued(second)
	if err := absent.process.Signal(syscall.SIGTSTP); err != nil {
		t.Fatal(err)
	}
	await(t, "a golock that leaves", func() bool { return w.said("left the queue") > 0 })
	for _, e := range w.ls() {
		if e.PID == absent.process.Pid {
			t.Errorf("the stopped golock is still listed: %+v", e)
		}
	}
	release()
	w.awaitBegin(behind)
	last := w.queued(spec{max: 1})
	waiting := w.said("waiting")
	if err := absent.process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	await(t, "the return to the queue", func() bool { return w.said("waiting") > waiting })
	if list := w.ls(); len(list) != 3 || list[1].PID != last.process.Pid || list[2].PID != absent.process.Pid {
		t.Errorf("ls after the return: %+v", list)
	}
	releaseSecond()
	w.drain()
	w.check()
	inOrder(t, []*proc{behind, last, absent}, "fence", func(p *proc) int64 { return p.fence })
	w.nothingLeft()
}

// A golock that was told to stop just when the slot comes to it either has it,
// or leaves with nothing in its hands.
func TestTSTPWhenTheSlotComes(t *testing.T) {
	random := newRand(t)
	w := newWorld(t)
	w.wanted = []string{""}
	leavers := 0
	for range 60 {
		first, release := w.lasting(spec{max: 1})
		holder := w.start(first)
		w.awaitBegin(holder)
		waiter := w.queued(spec{max: 1})
		release()
		pass(time.Duration(random.Int64N(int64(600 * time.Microsecond))))
		before := w.said("left the queue")
		left := func() bool { return w.said("left the queue") > before }
		_ = waiter.process.Signal(syscall.SIGTSTP)
		<-holder.done
		await(t, "the golock leaves, its command stops, or both end", func() bool {
			return waiter.isDone() || left() || waiter.commandStopped()
		})
		if left() {
			leavers++
			if p := w.start(spec{max: 1, judge: "n", flags: []string{"-n"}}); p.code() != 0 {
				t.Errorf("-n after the only other golock has left the queue: %v, ls: %+v", p.state, w.ls())
			}
		}
		// A signal of a golock that has just stopped its command may be on its way.
		await(t, "the end of the waiter", func() bool {
			_ = waiter.process.Signal(syscall.SIGCONT)
			return waiter.isDone()
		})
	}
	t.Logf("%d left the queue", leavers)
	w.drain()
	w.check()
	w.nothingLeft()
}

// CONT right after TSTP: no process may be left stopped. Known and not to be
// helped without a terminal: a CONT that comes between golock's last look and
// its own STOP is lost (signals.Relay.Suspend). On a busy machine that is one of
// forty or less, which goes on with the next CONT.
func TestTSTPAndCONTAtOnce(t *testing.T) {
	random := newRand(t)
	w := newWorld(t)
	w.wanted = []string{""}
	first, release := w.lasting(spec{max: 1})
	w.awaitBegin(w.start(first))
	var waiters []*proc
	for range 40 {
		p := w.queued(spec{max: 1})
		waiters = append(waiters, p)
		_ = p.process.Signal(syscall.SIGTSTP)
		pass(time.Duration(random.Int64N(int64(400 * time.Microsecond))))
		_ = p.process.Signal(syscall.SIGCONT)
	}
	release()
	if !within(limit/6, func() bool { return !slices.ContainsFunc(waiters, func(p *proc) bool { return !p.isDone() }) }) {
		n := 0
		for _, p := range waiters {
			if p.stopped() {
				n++
				_ = p.process.Signal(syscall.SIGCONT)
			}
		}
		t.Logf("%d of %d golocks are stopped, after a CONT", n, len(waiters))
		if n == 0 || n > len(waiters)/10 {
			t.Errorf("that is no accident; ls: %+v", w.ls())
		}
	}
	w.drain()
	w.check()
}

// A golock that is stopped at the worst moment, while it changes the table,
// holds up the others. Those who do not want to wait are told; those who wait
// go on waiting and are served when it continues.
func TestStoppedWhileItChangesTheTable(t *testing.T) {
	w := newWorld(t)
	w.wanted = []string{""}
	first, release := w.lasting(spec{max: 1})
	holder := w.start(first)
	w.awaitBegin(holder)
	queue := []*proc{holder, w.queued(spec{max: 1}), w.queued(spec{max: 1})}
	inside, _ := w.trace(spec{max: 1, flags: []string{"-n"}}, func(p *proc) syscall.Signal {
		if p.holdsLock() {
			return syscall.SIGSTOP
		}
		return 0
	})
	if !inside.stopped() || !inside.holdsLock() {
		t.Fatal("there is no golock that is stopped inside")
	}
	release()
	<-holder.done
	impatient := w.start(spec{max: 1, flags: []string{"-n"}})
	if code := impatient.code(); code != 69 && code != 75 {
		t.Errorf("-n behind a stopped golock: %v", impatient.state)
	}
	impatient.killed = true // its end is judged here
	_ = inside.process.Signal(syscall.SIGCONT)
	w.drain()
	w.check()
	inOrder(t, queue, "fence", func(p *proc) int64 { return p.fence })
	w.nothingLeft()
}

// holdsLock reports whether the golock has a write lock, which one that does
// not wait and is not served has only while it changes the table.
func (p *proc) holdsLock() bool {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", p.process.Pid))
	for _, f := range files {
		text, _ := os.ReadFile(f)
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "lock:") && strings.Contains(line, " OFDLCK ") && strings.Contains(line, " WRITE ") {
				return true
			}
		}
	}
	return false
}

// commandStopped reports whether a child of the golock is stopped.
func (p *proc) commandStopped() bool {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.process.Pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, pid := range strings.Fields(string(text)) {
			if n, _ := strconv.Atoi(pid); processState(n) == 'T' {
				return true
			}
		}
	}
	return false
}

// stopped reports whether the golock is stopped.
func (p *proc) stopped() bool { return processState(p.process.Pid) == 'T' }
