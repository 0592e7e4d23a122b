package local

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golock/locks/locktest"
	"golock/test/testkit"
)

// status sums a field of /proc/PID/task/*/status over all threads.
func status(t *testing.T, pid int, field string) (sum, threads int) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/task", pid)
	tasks, err := os.ReadDir(dir)
	testkit.Must(t, err)
	for _, task := range tasks {
		text, err := os.ReadFile(dir + "/" + task.Name() + "/status")
		testkit.Must(t, err)
		for line := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(line, field+":"); ok {
				n, err := strconv.Atoi(strings.TrimSpace(value))
				testkit.Must(t, err)
				sum += n
			}
		}
	}
	return sum, len(tasks)
}

// Many share; one who wants to be there with fewer waits for them, in few
// threads, and is granted when so many have gone and not before.
func TestFewThreadsForManyHolders(t *testing.T) {
	t.Parallel()
	const many = 100
	for _, most := range []int{1, 3} {
		s := New(t.TempDir())
		var held []*lease
		for i := range many {
			l := take(t, s, "x", locktest.Limit(0))
			if got := l.Grant().Slots; !reflect.DeepEqual(got, []int{i}) {
				t.Fatalf("slots %v, want %d", got, i)
			}
			held = append(held, l)
		}
		c := queueChild(t, s, most, 1)
		testkit.AwaitSleepers(t, lockPath(s.path, "x"), most)
		if _, threads := status(t, c.PID, "Pid"); threads > 20 {
			t.Errorf("the waiter has %d threads", threads)
		}
		busy := locktest.ExpectBusy(t, s, "x", locktest.Limit(0)) // behind the one who waits
		if len(busy.Holders) != many || busy.Waiters != 1 {
			t.Errorf("%d holders and %d waiters", len(busy.Holders), busy.Waiters)
		}
		// The first, the last and all between, in an order that is none of its own.
		for i := range many - most {
			locktest.Release(t, held[(i*7+3)%many])
		}
		c.Silent(stillBusy / 5)
		locktest.Release(t, held[((many-most)*7+3)%many])
		if a := c.Hear(); a.Err != "" || !slices.Contains(a.Slots, 0) && most == 1 {
			t.Errorf("%+v", a)
		}
	}
}

// Who is not the first sleeps: it does not wake up once, whatever the others do
// behind it.
func TestWaitersBehindTheFirstSleep(t *testing.T) {
	t.Parallel()
	s := New(t.TempDir())
	path := lockPath(s.path, "x")
	var held []*lease
	for range 3 {
		held = append(held, take(t, s, "x", locktest.Limit(3)))
	}
	first := queueChild(t, s, 3, 3)
	testkit.AwaitSleepers(t, path, 1)
	second := queueChild(t, s, 3, 3)
	testkit.AwaitSleepers(t, path, 2)
	wakeups := func() int {
		n, _ := status(t, second.PID, "voluntary_ctxt_switches")
		return n
	}
	// The runtime takes a moment to come to rest.
	was := wakeups()
	for quiet := 0; quiet < 10; time.Sleep(50 * time.Millisecond) {
		if now := wakeups(); now != was {
			was, quiet = now, 0
			continue
		}
		quiet++
	}
	for range 8 {
		w := queue(t, s, "x", locktest.Limit(3))
		locktest.ExpectBusy(t, s, "x", locktest.Limit(3))
		staysQueued(w, stillBusy/5)
		w.Leave()
		if len(held) > 1 { // this wakes the first, who still has no room
			locktest.Release(t, held[0])
			held = held[1:]
		}
	}
	if n := wakeups() - was; n != 0 {
		t.Errorf("the second waiter woke up %d times", n)
	}
	locktest.Release(t, held[0])
	if a := first.Hear(); a.Err != "" {
		t.Errorf("%+v", a)
	}
	first.Ask(call{Do: "release", Dir: s.path, Name: "x"})
	if a := second.Hear(); a.Err != "" {
		t.Errorf("%+v", a)
	}
}

// Who is alone is left in peace: the next one sleeps until Settle, is not
// admitted by it, and needs none when the slot is given back or its holder dies.
func TestNextOneSleepsUntilSettled(t *testing.T) {
	s := New(t.TempDir())
	path := lockPath(s.path, "x")
	first := take(t, s, "x")
	c := queueChild(t, s, 1, 1)
	testkit.AwaitSleepers(t, path, 1)
	waiters := []*locktest.WaiterOf[*lease]{queue(t, s, "x")}
	testkit.AwaitSleepers(t, path, 2)
	waiters = append(waiters, queue(t, s, "x"))
	testkit.AwaitSleepers(t, path, 3)

	// The child is granted and never settles. Its death wakes the next.
	locktest.Release(t, first)
	if a := c.Hear(); a.Err != "" {
		t.Fatal(a.Err)
	}
	if e := locktest.List(t, s, "x"); len(e) != 3 || e[0].PID != c.PID || e[1].Position != 1 || e[2].Position != 2 {
		t.Errorf("%+v", e)
	}
	if busy := locktest.ExpectBusy(t, s, "x"); busy.Waiters != 2 || len(busy.Holders) != 1 {
		t.Errorf("%+v", busy)
	}
	c.Kill()

	second := waiters[0].ExpectGrant()
	queued := func() bool {
		return openLock(t, s, "x").isLocked(waitByte(second.entry.record.ticket), 1)
	}
	if !queued() {
		t.Error("the next one was woken before Settle")
	}
	second.unlockWaitByte()
	second.unlockWaitByte()
	if queued() {
		t.Error("the next one was not woken by Settle")
	}
	testkit.AwaitSleepers(t, path, 1)
	staysQueued(waiters[1], 0)
	locktest.Release(t, second)
	locktest.Release(t, waiters[1].ExpectGrant())
}
