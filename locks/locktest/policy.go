package locktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"golock/locks"
	"golock/test/testkit"
)

// A higher priority goes first. Waiters with equal priorities go in the order in which they came.
func testPriority(t *testing.T, w *world) {
	s, holder := w.open(), w.granted("n", 1, Priority(-9))
	var queue []*peer
	for _, p := range []int{0, 5, -5, 5, 6, 0, -2147483648, 2147483647} {
		queue = append(queue, w.queued("n", 1, Priority(p)))
	}
	ExpectBusy(t, s, "n", Priority(99))
	for _, i := range []int{7, 4, 1, 3, 0, 5, 2, 6} {
		for _, one := range queue {
			one.silent()
		}
		holder.release()
		holder = queue[i]
		holder.expect("granted")
	}
}

// A newcomer that the queue has no room for is turned away and leaves nothing
// behind.
func testMaxQueue(t *testing.T, w *world) {
	s := w.open()
	holder := w.granted("n", 1, MaxQueue(0))
	w.join("n", 1, MaxQueue(0)).expect("busy", "full")
	first := w.queued("n", 1, MaxQueue(1))
	w.join("n", 1, MaxQueue(1), Priority(1)).expect("busy")
	second := w.queued("n", 1, MaxQueue(2))
	w.queued("n", 1)
	if got := states(t, s, "n"); !slices.Equal(got, []string{"holding 0", "waiting 1", "waiting 2", "waiting 3"}) {
		t.Errorf("entries %v", got)
	}
	// The limit is only for newcomers: a waiter stays.
	holder.release()
	first.expect("granted")
	first.release()
	second.expect("granted")
}

func evict(t *testing.T, s locks.Store, ref locks.Ref, by string) {
	t.Helper()
	testkit.Must(t, s.Abilities().Queue.Evict(context.Background(), []locks.Ref{ref}, by)[0])
}

// ExpectGone expects that the store has no entry to evict.
func ExpectGone(t *testing.T, s locks.Store, ref locks.Ref) {
	t.Helper()
	// An eviction whose first answer came too late cannot tell whether it has evicted somebody: it is nil.
	testkit.Eventually(t, "nobody is there to be evicted", func() bool {
		err := s.Abilities().Queue.Evict(context.Background(), []locks.Ref{ref}, "user anna")[0]
		return errors.Is(err, locks.ErrLost)
	})
}

// A waiter that is evicted is told by whom, and those behind it move up.
func testEvictWaiter(t *testing.T, w *world) {
	s := w.open()
	holder := w.granted("n", 1)
	var queue []*peer
	for range 3 {
		queue = append(queue, w.queued("n", 1))
	}
	evict(t, s, queue[1].ref, "user anna")
	queue[1].expect("evicted", "user anna")
	evict(t, s, queue[0].ref, "user anna")
	queue[0].expect("evicted")
	testkit.Eventually(t, "they are gone", func() bool {
		return slices.Equal(states(t, s, "n"), []string{"holding 0", "waiting 1"})
	})
	ExpectGone(t, s, queue[0].ref)
	queue[2].silent()
	holder.release()
	queue[2].expect("granted")
}

// An evicted holder is told who has evicted it. Its slot stays taken until the holder gives it back.
func testEvictHolder(t *testing.T, w *world) {
	s := w.open()
	holder := w.granted("n", 1, Hold(time.Hour))
	next := w.queued("n", 1)
	evict(t, s, holder.ref, "user anna")
	holder.expect("evicted", "user anna")
	evict(t, s, holder.ref, "user berta") // changes nothing
	if e := List(t, s, "n")[0]; e.State != locks.Holding || e.Evicted != "user anna" {
		t.Errorf("the entry is %+v", e)
	}
	ExpectBusy(t, s, "n")
	next.silent()
	holder.release() // the hold has gone with the eviction
	next.expect("granted")
}

// Of the waiters with Replace only the newest stays. Other waiters keep their places.
func testReplaceWaiting(t *testing.T, w *world) {
	s := w.open()
	holder := w.granted("n", 1, Replace(locks.ReplaceRunning))
	plain := w.queued("n", 1)
	old := w.queued("n", 1, Replace(locks.ReplaceWaiting))
	high := w.queued("n", 1, Priority(1))
	newest := w.queued("n", 1, Replace(locks.ReplaceWaiting))
	old.expect("evicted", newest.pid())
	testkit.Eventually(t, "one is gone", func() bool { return len(List(t, s, "n")) == 4 })
	for _, p := range []*peer{high, plain, newest} {
		holder.silent()
		holder.release()
		p.expect("granted")
		holder = p
	}
}

// A newcomer with ReplaceRunning evicts a holder with ReplaceRunning, and gets the slot when that holder has given
// it back. It evicts no other holder.
func testReplaceRunning(t *testing.T, w *world) {
	running := Replace(locks.ReplaceRunning)
	for _, old := range []locks.Replacement{locks.ReplaceNone, locks.ReplaceWaiting} {
		name := "left alone " + string(old)
		holder := w.granted(name, 1, Replace(old))
		newest := w.queued(name, 1, running)
		holder.silent()
		holder.release()
		newest.expect("granted")
	}
	first := w.granted("n", 1, running)
	second := w.queued("n", 1, running)
	first.expect("evicted", second.pid())
	third := w.queued("n", 1, running)
	second.expect("evicted")
	third.silent()
	first.release()
	third.expect("granted")
}

// With several slots a newcomer evicts no more holders than it must, the oldest first. If there is room for it, it
// evicts nobody.
func testReplaceOldest(t *testing.T, w *world) {
	running := Replace(locks.ReplaceRunning)
	var all []*peer
	for range 3 {
		all = append(all, w.granted("n", 3, running))
	}
	heavy := w.queued("n", 3, running, Weight(2))
	all[0].expect("evicted")
	all[1].expect("evicted")
	all[1].release()
	all[2].silent()
	heavy.silent()
	all[0].release()
	heavy.expect("granted")
	for _, e := range List(t, w.open(), "n") {
		if e.Evicted != "" {
			t.Errorf("%v was evicted for nothing", e)
		}
	}
}

// Waiters that are replaced do not count against MaxQueue. A newcomer that is turned away replaces nobody.
func testReplaceMaxQueue(t *testing.T, w *world) {
	waiting := Replace(locks.ReplaceWaiting)
	w.granted("n", 1)
	old := w.queued("n", 1, waiting)
	plain := w.queued("n", 1)
	w.join("n", 1, waiting, MaxQueue(1)).expect("busy")
	old.silent()
	w.queued("n", 1, waiting, MaxQueue(2))
	old.expect("evicted")
	plain.silent()
}

// The slots of an entry with a hold stay taken after its release, with their numbers.
func testHold(t *testing.T, w *world) {
	s := w.open()
	before := time.Now()
	holder := w.granted("n", 2, Hold(time.Hour))
	after := time.Now()
	holder.release()
	w.join("n", 1, NoWait).expect("busy", "its command has ended")
	const blur = 10 * time.Millisecond
	e := List(t, s, "n")[0]
	if !e.Ended || e.Orphaned || e.HeldTill.Before(before.Add(time.Hour-blur)) || e.HeldTill.After(after.Add(time.Hour+testkit.Patience)) {
		t.Errorf("the entry is %+v", e)
	}
	if got := w.granted("n", 2, NoWait).last.Slots; !slices.Equal(got, []int{1}) {
		t.Errorf("slots %v beside a held one", got)
	}
	ExpectBusy(t, s, "n", Limit(2))
	// Nobody is inside a run that has ended.
	w.queued("n", 1, Within(holder.ref))
}

// The next waiter gets the slot when the hold is over, although nobody wakes it.
func testHoldEnds(t *testing.T, w *world) {
	span := 1200*time.Millisecond + w.engine.TTL
	began := time.Now()
	next := map[bool]*peer{}
	for _, kill := range []bool{false, true} {
		name := fmt.Sprint("killed ", kill)
		lease := TTL(LongTTL) // a lease that runs out before its release would be lost
		if kill {
			lease = w.shortTTL
		}
		holder := w.join(name, 1, Hold(span), lease).admitted()
		next[kill] = w.join(name, 1)
		if kill {
			holder.Kill()
		} else {
			holder.release()
		}
	}
	for kill, p := range next {
		p.admitted()
		if took := time.Since(began); took < span {
			t.Errorf("killed %v: granted %v after the start of a hold of %v", kill, took, span)
		}
	}
}

// The second waiter, which was not in front when the hold began, also gets
// the slot when the hold ends, and not when it would look by itself. A hold that ends before its run
// changes nothing.
func testHoldEndsBehind(t *testing.T, w *world) {
	const span = time.Second
	holder := w.granted("n", 1, Hold(time.Millisecond))
	short := w.queued("n", 1, Hold(span))
	next := w.queued("n", 1)
	short.silent()
	began := time.Now()
	holder.release()
	short.expect("granted")
	short.release()
	next.expect("granted")
	testkit.Lasted(t, began, span-10*time.Millisecond, 15*span)
}

// The hold goes on whatever becomes of its holder.
func testHoldKilled(t *testing.T, w *world) {
	s := w.open()
	holder := w.granted("n", 1, Hold(time.Hour), w.shortTTL)
	next := w.queued("n", 1)
	holder.Kill()
	testkit.Eventually(t, "the entry says that nobody is there", func() bool {
		all := List(t, s, "n")
		return len(all) == 2 && all[0].Ended && !all[0].Orphaned
	})
	ExpectBusy(t, s, "n")
	next.silent()

	// The hold of an evicted holder does not go on.
	evicted := w.granted("evicted", 1, Hold(time.Hour), w.shortTTL)
	evict(t, s, evicted.ref, "user anna")
	evicted.Kill()
	w.join("evicted", 1).admitted()
}

// A slot that only a hold keeps is free at once when the hold is evicted. It goes to the newest of the
// waiters that replace each other.
func testHoldEvicted(t *testing.T, w *world) {
	s := w.open()
	holder := w.granted("n", 1, Hold(time.Hour))
	holder.release()
	old := w.queued("n", 1, Replace(locks.ReplaceWaiting))
	next := w.queued("n", 1, Replace(locks.ReplaceWaiting))
	old.expect("evicted")
	evict(t, s, holder.ref, "user anna")
	next.expect("granted")
	ExpectGone(t, s, holder.ref)
}

// A hold that begins after the grant counts from its beginning. If it never begins, the slot is free after the
// release.
func testHoldLater(t *testing.T, w *world) {
	s := w.open()
	Release(t, AcquireAtOnce(t, s, "n", HoldLater(time.Hour)))
	Release(t, AcquireAtOnce(t, s, "n", NoWait)) // the slot was free at once

	began := time.Now()
	l := AcquireAtOnce(t, s, "n", HoldLater(time.Hour), Next("o"))
	time.Sleep(1200 * time.Millisecond) // the hold is this much longer than one that counts from the grant
	if e := List(t, s, "n")[0]; !e.HeldTill.IsZero() || e.Next != "o" {
		t.Errorf("before the hold begins the entry is %+v", e)
	}
	for range 2 {
		testkit.Must(t, l.Hold(t.Context()))
	}
	Renew(t, l)
	Release(t, l)
	e := List(t, s, "n")[0]
	const blur = 10 * time.Millisecond
	least := began.Add(time.Hour + 1200*time.Millisecond - blur)
	if !e.Ended || e.HeldTill.Before(least) || e.HeldTill.After(time.Now().Add(time.Hour+2*time.Second)) {
		t.Errorf("the hold lasts until %v, want %v at least: %+v", e.HeldTill, least, e)
	}

	if err := l.Hold(t.Context()); !errors.Is(err, locks.ErrLost) {
		t.Errorf("the hold begins after the release: %v", err)
	}
	if s.Abilities().Leases == nil {
		return // the eviction of an entry of this process would send SIGTERM to it
	}
	evicted := AcquireAtOnce(t, s, "evicted", HoldLater(time.Hour))
	evict(t, s, evicted.Grant().Ref, "user anna")
	if err := evicted.Hold(t.Context()); !errors.As(err, new(*locks.EvictedError)) {
		t.Errorf("the hold of an evicted run begins: %v", err)
	}
	Release(t, evicted)
}
