package local

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/locktest"
	"golock/test/testkit"
)

// insideGate starts a child that stays inside the gate of a name.
func insideGate(t *testing.T, s *Store, name string) *child {
	t.Helper()
	locktest.Release(t, take(t, s, name))
	c := startChild(t)
	c.Ask(call{Do: "gate", Dir: s.path, Name: name})
	return c
}

func TestProcessStoppedInsideGateIsNamed(t *testing.T) {
	t.Parallel()
	s := New(t.TempDir())
	c := insideGate(t, s, "x")
	c.Stop()
	pid := strconv.Itoa(c.PID)
	began := time.Now()
	locktest.ExpectError(t, fails(t, s, "x", lockPath(s.path, "x")), "process "+pid+" is stopped")
	testkit.Lasted(t, began, gateWait, time.Hour) // who is only slow is waited for
	_, err := s.Entries(background, "x")
	locktest.ExpectError(t, err, pid)
	locktest.Release(t, take(t, s, "y")) // other names are not concerned
	c.Kill()
	take(t, s, "x")
}

// One that runs is waited for, but not without end.
func TestRunningProcessInsideGateIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := New(t.TempDir())
	c := insideGate(t, s, "x")
	err := openLock(t, s, "x").lockGate(background, unix.F_WRLCK, gateWait) // Join allows gateLimit
	locktest.ExpectError(t, err, strconv.Itoa(c.PID))
	done := make(chan error, 1)
	go func() { done <- serve(s, locktest.NewRequest(t, "x", locktest.NoWait), func() {}) }()
	select {
	case err := <-done:
		t.Fatalf("Join = %v while another process is inside", err)
	case <-time.After(gateWait * 3 / 2):
	}
	c.Ask(call{Do: "ungate", Dir: s.path, Name: "x"})
	if err := <-done; err != nil {
		t.Errorf("Join: %v", err)
	}
}

// A crowd is no reason to turn anybody away: as long as others come through
// the gate, a newcomer waits for it.
func TestCrowdAtTheGateIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := New(t.TempDir())
	locktest.Release(t, take(t, s, "x"))
	crowd, newcomer := openLock(t, s, "x"), openLock(t, s, "x")
	testkit.Must(t, crowd.lockGate(background, unix.F_WRLCK, forever))
	done := make(chan error, 1)
	const limit = 3 * gateWait // a busy machine may hold the crowd up for some of it
	go func() { done <- newcomer.lockGate(background, unix.F_WRLCK, limit) }()
	tab, err := crowd.read()
	testkit.Must(t, err)
	for began := time.Now(); time.Since(began) < limit+2*gateWait; {
		select {
		case err := <-done:
			t.Fatalf("gate = %v after %v", err, time.Since(began))
		case <-time.After(gateWait / 10):
			tab.next++
			testkit.Must(t, crowd.writeAt(tab.encode(), 0))
		}
	}
	crowd.unlockGate()
	testkit.Must(t, <-done)
	newcomer.unlockGate()
}

// Who waits for the gate of a file that is removed goes to the new file, or lists it as missing: those
// who come through that gate change nothing, and would look like one that is stuck.
func TestGateOfARemovedFileIsLeft(t *testing.T) {
	t.Parallel()
	s := New(t.TempDir())
	locktest.Release(t, take(t, s, "x"))
	inside, path := openLock(t, s, "x"), lockPath(s.path, "x")
	testkit.Must(t, inside.lockGate(background, unix.F_WRLCK, forever))
	defer inside.unlockGate()
	joined, listed := make(chan error, 1), make(chan error, 1)
	go func() { joined <- serve(s, locktest.NewRequest(t, "x", locktest.NoWait), func() {}) }()
	go func() {
		_, err := s.Entries(background, "x")
		listed <- err
	}()
	testkit.AwaitSleepers(t, path, 2)
	testkit.Must(t, os.Remove(path))
	testkit.Must(t, <-joined)
	testkit.Must(t, <-listed)
}

// All waits of a listing share a limit, also those that end well.
func TestWaitsForGatesShareALimit(t *testing.T) {
	t.Parallel()
	s := New(t.TempDir())
	locktest.Release(t, take(t, s, "x"))
	inside := openLock(t, s, "x")
	testkit.Must(t, inside.lockGate(background, unix.F_WRLCK, forever))
	d, err := openDirectory(s.path, s.roots, doNotCreate)
	testkit.Must(t, err)
	defer d.close()
	remaining, done := gateLimit, make(chan error, 1)
	go func() {
		done <- d.withTable(background, inside.base, unix.O_RDONLY, &remaining, func(*lockFile, *table) error { return nil })
	}()
	testkit.AwaitSleepers(t, lockPath(s.path, "x"), 1)
	const long = gateWait / 20
	<-time.After(long)
	inside.unlockGate()
	testkit.Must(t, <-done)
	if remaining > gateLimit-long {
		t.Errorf("%v of %v are left after a wait of %v", remaining, gateLimit, long)
	}
}

// A waiter in the queue waits for the gate without a limit, and still leaves without delay when it
// gives up.
func TestQueuedWaitersOutlastAStoppedProcess(t *testing.T) {
	t.Parallel()
	s := New(t.TempDir())
	path := lockPath(s.path, "x")
	holder := take(t, s, "x")
	stays, leaves := queue(t, s, "x"), queue(t, s, "x", locktest.Priority(1))
	testkit.AwaitSleepers(t, path, 2)
	c := startChild(t)
	c.Ask(call{Do: "gate", Dir: s.path, Name: "x"})
	c.Stop()
	locktest.Release(t, holder)
	testkit.AwaitSleepers(t, path, 2) // one on the gate, one on the one in front
	staysQueued(leaves, gateWait*3/2)
	leaves.Leave()
	staysQueued(stays, gateWait*3/2)
	c.Continue()
	c.Ask(call{Do: "ungate", Dir: s.path, Name: "x"})
	locktest.Release(t, stays.ExpectGrant())
}

// A waiter that gives up at the gate closes its file while a goroutine still sleeps on
// it. That one must not open the gate of another file that has got the same
// descriptor number since.
func TestGivingUpAtTheGateOpensNoOther(t *testing.T) {
	s := New(t.TempDir())
	c := insideGate(t, s, "x")
	f := openLock(t, s, "x")
	ctx, cancel := context.WithCancel(background)
	done := make(chan error, 1)
	go func() { done <- f.lockGate(ctx, unix.F_WRLCK, gateLimit) }()
	testkit.AwaitSleepers(t, lockPath(s.path, "x"), 1)
	cancel()
	if err := <-done; err != context.Canceled {
		t.Fatalf("gate = %v", err)
	}
	f.close()

	testkit.Must(t, openLock(t, s, "y").lockGate(background, unix.F_WRLCK, gateLimit))
	c.Ask(call{Do: "ungate", Dir: s.path, Name: "x"})
	testkit.Eventually(t, "the sleeping goroutine ends", func() bool { return f.users.Load() == 0 })

	if !openLock(t, s, "y").isLocked(gateByte, 1) {
		t.Error("the gate of the other file is open")
	}
}

// leavesNothingOpen demands, when it is called again, that no goroutine and no descriptor has
// been left since.
func leavesNothingOpen(t *testing.T, s *Store) (check func()) {
	locktest.Release(t, take(t, s, "x"))
	goroutines, files := goleak.IgnoreCurrent(), openFiles(t)
	return func() {
		t.Helper()
		testkit.Eventually(t, "all descriptors are closed", func() bool { return openFiles(t) <= files })
		if err := goleak.Find(goroutines); err != nil {
			t.Error(err)
		}
	}
}

// Whoever gives up waiting, wherever it slept, leaves nothing open once those
// have gone that it slept on.
func TestCancelledWaitsLeaveNothingOpen(t *testing.T) {
	dir := t.TempDir()
	s := New(dir)
	check := leavesNothingOpen(t, s)
	var held []*lease
	for range 4 {
		held = append(held, take(t, s, "x", locktest.Limit(4)))
	}
	single := take(t, s, "y")
	waiters := []*locktest.WaiterOf[*lease]{
		queue(t, s, "x", locktest.Limit(4), locktest.Weight(2)), // a goroutine for each of three holders
		queue(t, s, "x", locktest.Limit(4)),                     // behind another waiter
		queue(t, s, "y"),                                        // one holder after the other
	}
	testkit.AwaitSleepers(t, lockPath(dir, "x"), 4)
	testkit.AwaitSleepers(t, lockPath(dir, "y"), 1)
	locktest.ExpectBusy(t, s, "y")
	for _, w := range waiters {
		w.Leave()
	}
	if got := locktest.List(t, s, "x"); len(got) != len(held) {
		t.Errorf("%d entries are left beside %d holders", len(got)-len(held), len(held))
	}
	for _, l := range append(held, single) {
		locktest.Release(t, l)
	}
	check()
}

// The same for those who were granted: a waiter that watched several holders
// still has goroutines asleep on the others, with a context that never ends.
func TestGrantLeavesNothingOpen(t *testing.T) {
	dir := t.TempDir()
	s := New(dir)
	check := leavesNothingOpen(t, s)
	var held []*lease
	for range 4 {
		held = append(held, take(t, s, "x", locktest.Limit(4)))
	}
	files := openFiles(t) - 2*len(held)
	joined, err := s.Join(background, locktest.NewRequest(t, "x", locktest.Limit(4)))
	testkit.Must(t, err)
	file := joined.(*admission).entry.Load().file
	granted := make(chan locks.Lease, 1)
	go func() {
		l, _ := joined.Wait(background)
		granted <- l
	}()
	testkit.AwaitSleepers(t, lockPath(dir, "x"), 4)
	locktest.Release(t, held[2])
	l := <-granted
	if l == nil {
		t.Fatal("no grant")
	}
	// They may be interrupted and ask for the lock once more, so the descriptor
	// must still be what it was.
	if to, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", file.fd)); err != nil || to != lockPath(dir, "x") {
		t.Errorf("the sleepers' descriptor is of %s, %v", to, err)
	}
	for _, h := range held {
		locktest.Release(t, h)
	}
	testkit.Eventually(t, "what only the waiter needed is closed", func() bool { return openFiles(t) <= files+2 })
	locktest.Release(t, l)
	check()
}
