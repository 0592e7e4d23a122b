package locktest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golock/locks"
	"golock/test/testkit"
)

// The fence grows with every grant, also if no process of the name lived in between.
func testFence(t *testing.T, w *world) {
	var last int64
	for i, kill := range []bool{false, true, false} {
		p := w.join("n", 1, w.shortTTL).admitted()
		if p.last.Fence <= last {
			t.Errorf("grant %d has fence %d after %d", i, p.last.Fence, last)
		}
		last = p.last.Fence
		if !kill {
			p.release()
		}
		p.Kill()
	}
}

func testRule(t *testing.T, w *world) {
	s := w.open()
	for _, tt := range []struct {
		name    string
		holders []int // max of each, 0 for shared
		max     int
		want    string
	}{
		{"third of three", []int{3, 3}, 3, "granted"},
		{"fourth of three", []int{3, 3, 3}, 3, "busy"},
		{"reader beside readers", []int{0, 0, 0}, 0, "granted"},
		{"writer beside a reader", []int{0}, 1, "busy"},
		{"reader beside a writer", []int{1}, 0, "busy"},
		{"reader beside a limit with room", []int{2}, 0, "granted"},
		{"reader beside a full limit", []int{2, 0}, 0, "busy"},
		{"its own max is the smallest", []int{5, 5}, 2, "busy"},
		{"a holder's max is the smallest", []int{2, 5}, 5, "busy"},
		{"room within the smallest max", []int{5}, 2, "granted"},
	} {
		for _, limit := range tt.holders {
			l := AcquireAs[locks.Lease](t, s, tt.name, Limit(limit), NoWait)
			if slots := l.Grant().Slots; len(slots) != 1 {
				t.Errorf("%s: a holder has slots %v", tt.name, slots)
			}
		}
		if tt.want == "busy" {
			ExpectBusy(t, s, tt.name, Limit(tt.max))
		} else {
			AcquireAs[locks.Lease](t, s, tt.name, Limit(tt.max), NoWait)
		}
	}
}

// Slots are the lowest free numbers, one for each unit, and come back.
func testSlots(t *testing.T, w *world) {
	take := func(units int, want ...int) *peer {
		t.Helper()
		p := w.granted("n", 6, Weight(units))
		if !slices.Equal(p.last.Slots, want) {
			t.Errorf("slots %v, want %v", p.last.Slots, want)
		}
		return p
	}
	a := take(1, 0)
	b := take(2, 1, 2)
	take(1, 3)
	a.release()
	take(1, 0)
	b.release()
	take(3, 1, 2, 4)
}

// Waiters get their slots in the order in which they came. A request that does not queue gets none before them.
func testOrder(t *testing.T, w *world) {
	const waiters = 6
	s := w.open()
	for _, limit := range []int{1, 3} {
		name := strings.Repeat("n", limit)
		var holders, queue []*peer
		for range limit {
			holders = append(holders, w.granted(name, limit))
		}
		for range waiters {
			queue = append(queue, w.queued(name, limit))
		}
		for len(queue) > 0 {
			for _, p := range queue {
				p.silent()
			}
			ExpectBusy(t, s, name, Limit(limit))
			holders[0].release()
			queue[0].expect("granted")
			holders, queue = append(holders[1:], queue[0]), queue[1:]
		}
	}
}

// No later request overtakes a waiter, even if there is room for that request: neither a heavy waiter nor a writer
// behind readers is overtaken.
func testNotOvertaken(t *testing.T, w *world) {
	s := w.open()
	for name, limits := range map[string]struct{ first, second, weight int }{"heavy": {3, 3, 3}, "writer": {0, 1, 1}} {
		first := w.granted(name, limits.first)
		second := w.queued(name, limits.second, Weight(limits.weight))
		third := w.queued(name, limits.first)
		ExpectBusy(t, s, name, Limit(limits.first))
		first.release()
		second.expect("granted")
		third.silent()
		second.release()
		third.expect("granted")
	}
}

// A waiter that gives up leaves the queue at once, and those behind it move up.
func testLeave(t *testing.T, w *world) {
	s := w.open()
	holder := w.granted("n", 1)
	left := EnqueueAs[locks.Lease](t, s, "n")
	behind := w.queued("n", 1)
	left.Leave()
	// A waiter that leaves a networked store does not await the answer for long.
	testkit.Eventually(t, "the waiter that left is gone", func() bool {
		return slices.Equal(states(t, s, "n"), []string{"holding 0", "waiting 1"})
	})
	holder.release()
	behind.expect("granted")
}

// The slot of a killed holder goes to the next live waiter, however many waiters have died with the holder, and
// however seldom the live one looks.
func testKilledHolder(t *testing.T, w *world) {
	var dead, living []*peer
	for _, waiters := range []int{0, 5} {
		name := fmt.Sprint(waiters, " die with it")
		dead = append(dead, w.granted(name, 1, w.shortTTL))
		for range waiters {
			dead = append(dead, w.queued(name, 1, w.shortTTL))
		}
		next := w.queued(name, 1, TTL(time.Hour))
		next.silent()
		living = append(living, next)
	}
	for _, p := range dead {
		p.Kill()
	}
	for _, p := range living {
		p.expect("granted")
	}
}

// Waiters that were killed, the first or any other, do not stall the rest and
// do not change their order.
func testKilledWaiters(t *testing.T, w *world) {
	holder := w.granted("n", 1)
	var queue []*peer
	for i := range 6 {
		lease := TTL(LongTTL) // a live waiter must not lose its place on a busy machine
		if w.engine.Blind && (i == 0 || i == 2 || i == 3) {
			lease = w.shortTTL
		}
		queue = append(queue, w.queued("n", 1, lease))
	}
	for _, dead := range []int{0, 2, 3} {
		queue[dead].Kill()
	}
	for _, i := range []int{1, 4, 5} {
		began := time.Now()
		holder.release()
		holder = queue[i].expect("granted")
		testkit.Lasted(t, began, 0, LongTTL/6)
	}
}

// A dead waiter does not count, even if nobody behind it would notice.
func testDeadDoNotCount(t *testing.T, w *world) {
	s := w.open()
	for name, uncounted := range map[string]func() bool{
		"refused": func() bool { return ExpectBusy(t, s, "refused").Waiters == 0 },
		"room": func() bool {
			ctx, cancel := context.WithCancel(context.Background())
			admission, err := s.Join(ctx, NewRequest(t, "room", MaxQueue(1)))
			cancel()
			if err == nil {
				_, _ = admission.Wait(ctx)
			}
			return err == nil
		},
	} {
		w.granted(name, 1)
		dead := w.queued(name, 1, Priority(-1), w.shortTTL)
		if busy := ExpectBusy(t, s, name); busy.Waiters != 1 {
			t.Errorf("%d waiters, want 1", busy.Waiters)
		}
		dead.Kill()
		testkit.Eventually(t, name+": the dead one is not counted", uncounted)
	}
}

// Names that differ in any byte are different locks.
func testNames(t *testing.T, w *world) {
	s, long := w.open(), strings.Repeat("x", 254)
	for _, name := range []string{"a", "A", "a/b", "a_b", "../a", "..", ".", "%61", "a%2Fb", "{a}", "a ", " a", "-a", "ä", "a\u0308", long + "1", long + "2", "a.lock", "*"} {
		AcquireAs[locks.Lease](t, s, name, NoWait)
	}
}

// A run inside a run of the same name gets a free slot at once or is refused. All requests are of this
// process: one that does not descend from the outer run is not inside it (testdata/nested.txtar).
func testNested(t *testing.T, w *world) {
	s := w.open()
	outer := AcquireAs[locks.Lease](t, s, "n", NoWait, Limit(2))
	within := outer.Grant().Ref
	inner := AcquireAs[locks.Lease](t, s, "n", NoWait, Limit(2), Within(within))
	busy := ExpectBusy(t, s, "n", Limit(2), Within(within, inner.Grant().Ref))
	if busy.Inside == nil || *busy.Inside != inner.Grant().Ref {
		t.Errorf("%+v, want that it is inside %v", busy, inner.Grant().Ref)
	}
	// A free slot that somebody waits for is not free.
	heavy := w.queued("n", 2, Weight(2))
	Release(t, inner)
	if busy := ExpectBusy(t, s, "n", Limit(2), Within(within)); busy.Inside == nil || *busy.Inside != within {
		t.Errorf("%+v, want that it is inside %v", busy, within)
	}
	Release(t, outer)
	heavy.expect("granted")
	// A run that has released its slot encloses nobody.
	w.queued("n", 2, Within(within))
}
