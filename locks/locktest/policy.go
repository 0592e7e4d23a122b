package locktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golock/locks"
)

// Higher goes first, equal ones in the order in which they came.
func testPriority(t *testing.T, w *world) {
	holder := w.join(t, request(t, "n", 1, Priority(-9)))
	holder.expect("granted")
	var queue []*peer
	for _, p := range []int{0, 5, -5, 5, 6, 0, -2147483648, 2147483647} {
		one := w.join(t, request(t, "n", 1, Priority(p)))
		one.expect("queued")
		queue = append(queue, one)
	}
	w.join(t, request(t, "n", 1, Priority(99), NoWait)).expect("busy")
	for _, i := range []int{7, 4, 1, 3, 0, 5, 2, 6} {
		for _, one := range queue {
			one.silent()
		}
		holder.release()
		holder = queue[i]
		holder.expect("granted")
	}
}

// Who would be one too many in the queue is turned away and leaves nothing
// behind.
func testMaxQueue(t *testing.T, w *world) {
	s := w.open(t)
	holder := w.join(t, request(t, "n", 1, MaxQueue(0)))
	holder.expect("granted")
	if b := w.join(t, request(t, "n", 1, MaxQueue(0))).expect("busy"); !strings.Contains(b.Text, "full") {
		t.Errorf("the message %q does not say why", b.Text)
	}
	first := w.join(t, request(t, "n", 1, MaxQueue(1)))
	first.expect("queued")
	w.join(t, request(t, "n", 1, MaxQueue(1), Priority(1))).expect("busy")
	second := w.join(t, request(t, "n", 1, MaxQueue(2)))
	second.expect("queued")
	w.join(t, request(t, "n", 1)).expect("queued")
	if got := states(t, s, "n"); !slices.Equal(got, []string{"holding 0", "waiting 1", "waiting 2", "waiting 3"}) {
		t.Errorf("entries %v", got)
	}
	// The limit is about joining: who waits already stays.
	holder.release()
	first.expect("granted")
	first.release()
	second.expect("granted")
}

// However many come at once, no more wait than may.
func testMaxQueueCrowd(t *testing.T, w *world) {
	holder := w.join(t, request(t, "n", 1))
	holder.expect("granted")
	const crowd, most = 12, 3
	var all []*peer
	for range crowd {
		all = append(all, w.join(t, request(t, "n", 1, MaxQueue(most))))
	}
	count := map[string]int{}
	for _, p := range all {
		select {
		case r := <-p.reports:
			count[r.State]++
		case <-time.After(patience):
			t.Fatal("a peer says nothing")
		}
	}
	if count["queued"] != most || count["busy"] != crowd-most {
		t.Errorf("of %d at once: %v, want %d in the queue", crowd, count, most)
	}
}

func evict(t *testing.T, s locks.Store, ref locks.Ref, by string) {
	t.Helper()
	if err := s.(locks.QueueStore).Evict(context.Background(), ref, by); err != nil {
		t.Fatalf("Evict: %v", err)
	}
}

// A waiter that is evicted is told by whom, and those behind it move up.
func testEvictWaiter(t *testing.T, w *world) {
	s := w.open(t)
	holder := w.join(t, request(t, "n", 1))
	holder.expect("granted")
	var queue []*peer
	for range 3 {
		p := w.join(t, request(t, "n", 1))
		p.expect("queued")
		queue = append(queue, p)
	}
	evict(t, s, queue[1].ref, "user anna")
	if r := queue[1].expect("evicted"); !strings.Contains(r.Text, "user anna") {
		t.Errorf("the message %q does not say by whom", r.Text)
	}
	evict(t, s, queue[0].ref, "user anna")
	queue[0].expect("evicted")
	eventually(t, "they are gone", func() bool {
		return slices.Equal(states(t, s, "n"), []string{"holding 0", "waiting 1"})
	})
	if err := s.(locks.QueueStore).Evict(context.Background(), queue[0].ref, "user anna"); !errors.Is(err, locks.ErrLost) {
		t.Errorf("evicting it once more: %v, want ErrLost", err)
	}
	queue[2].silent()
	holder.release()
	queue[2].expect("granted")
}

// A holder that is evicted is told by whom; its slot stays taken until it gives
// it back.
func testEvictHolder(t *testing.T, w *world) {
	s := w.open(t)
	holder := w.join(t, request(t, "n", 1, Hold(time.Hour)))
	holder.expect("granted")
	next := w.join(t, request(t, "n", 1))
	next.expect("queued")
	evict(t, s, holder.ref, "user anna")
	if r := holder.expect("evicted"); !strings.Contains(r.Text, "user anna") {
		t.Errorf("the message %q does not say by whom", r.Text)
	}
	evict(t, s, holder.ref, "user berta") // changes nothing
	if e := List(t, s, "n")[0]; e.State != locks.Holding || e.Evicted != "user anna" {
		t.Errorf("the entry is %+v", e)
	}
	w.join(t, request(t, "n", 1, NoWait)).expect("busy")
	next.silent()
	holder.release() // the hold has gone with the eviction
	next.expect("granted")
}

func testEvictNobody(t *testing.T, w *world) {
	s := w.open(t)
	nobody := request(t, "n", 1).Ref
	for range 2 {
		if err := s.(locks.QueueStore).Evict(context.Background(), nobody, "user anna"); !errors.Is(err, locks.ErrLost) {
			t.Errorf("Evict = %v, want ErrLost", err)
		}
		w.join(t, request(t, "n", 2)).expect("granted")
	}
}

// The newest of those that replace waits alone; others keep their places.
func testReplaceWaiting(t *testing.T, w *world) {
	s := w.open(t)
	holder := w.join(t, request(t, "n", 1, Replace(locks.ReplaceRunning)))
	holder.expect("granted")
	plain := w.join(t, request(t, "n", 1))
	plain.expect("queued")
	old := w.join(t, request(t, "n", 1, Replace(locks.ReplaceWaiting)))
	old.expect("queued")
	high := w.join(t, request(t, "n", 1, Priority(1)))
	high.expect("queued")
	newest := w.join(t, request(t, "n", 1, Replace(locks.ReplaceWaiting)))
	newest.expect("queued")
	if r := old.expect("evicted"); !strings.Contains(r.Text, fmt.Sprintf("pid %d", newest.cmd.Process.Pid)) {
		t.Errorf("the message %q does not say by whom", r.Text)
	}
	eventually(t, "one is gone", func() bool { return len(List(t, s, "n")) == 4 })
	for _, p := range []*peer{high, plain, newest} {
		holder.silent()
		holder.release()
		p.expect("granted")
		holder = p
	}
}

// A holder that can be replaced is evicted, and the newest holds only when that
// one has given the slot back. Holders that do not replace the running are left
// alone.
func testReplaceRunning(t *testing.T, w *world) {
	running := Replace(locks.ReplaceRunning)
	for _, old := range []locks.Replacement{locks.ReplaceNone, locks.ReplaceWaiting} {
		name := "left alone " + string(old)
		holder := w.join(t, request(t, name, 1, Replace(old)))
		holder.expect("granted")
		newest := w.join(t, request(t, name, 1, running))
		newest.expect("queued")
		holder.silent()
		holder.release()
		newest.expect("granted")
	}
	first := w.join(t, request(t, "n", 1, running))
	first.expect("granted")
	second := w.join(t, request(t, "n", 1, running))
	second.expect("queued")
	if r := first.expect("evicted"); !strings.Contains(r.Text, fmt.Sprintf("pid %d", second.cmd.Process.Pid)) {
		t.Errorf("the message %q does not say by whom", r.Text)
	}
	third := w.join(t, request(t, "n", 1, running))
	third.expect("queued")
	second.expect("evicted")
	third.silent()
	first.release()
	third.expect("granted")
}

// With several slots no more are replaced than it takes, the oldest first; a
// free one is taken without any.
func testReplaceOldest(t *testing.T, w *world) {
	running := Replace(locks.ReplaceRunning)
	var all []*peer
	for range 3 {
		p := w.join(t, request(t, "n", 3, running))
		p.expect("granted")
		all = append(all, p)
	}
	heavy := w.join(t, request(t, "n", 3, running, Weight(2)))
	heavy.expect("queued")
	all[0].expect("evicted")
	all[1].expect("evicted")
	all[1].release()
	all[2].silent()
	heavy.silent()
	all[0].release()
	heavy.expect("granted")
	all[2].silent()
}

// Waiters that go do not count against the limit, and nobody is replaced by one
// that is turned away.
func testReplaceMaxQueue(t *testing.T, w *world) {
	waiting := Replace(locks.ReplaceWaiting)
	w.join(t, request(t, "n", 1)).expect("granted")
	old := w.join(t, request(t, "n", 1, waiting))
	old.expect("queued")
	plain := w.join(t, request(t, "n", 1))
	plain.expect("queued")
	w.join(t, request(t, "n", 1, waiting, MaxQueue(1))).expect("busy")
	old.silent()
	newest := w.join(t, request(t, "n", 1, waiting, MaxQueue(2)))
	newest.expect("queued")
	old.expect("evicted")
	plain.silent()
}

// Many come at once, each to replace the others: one is left in the end, and
// never do two hold.
func testReplaceCrowd(t *testing.T, w *world) {
	s := w.open(t)
	var all []*peer
	for range 8 {
		all = append(all, w.join(t, request(t, "n", 1, Replace(locks.ReplaceRunning))))
	}
	left := len(all)
	inside := 0
	for end := time.Now().Add(patience); left > 1 || inside != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d are left, %d hold", left, inside)
		}
		for _, p := range all {
			select {
			case r := <-p.reports:
				switch r.State {
				case "granted":
					if inside++; inside > 1 {
						t.Fatal("two hold")
					}
					p.holds = true
				case "evicted":
					left--
					if p.holds {
						inside--
						p.release()
					}
				}
			default:
			}
		}
	}
	eventually(t, "one holds", func() bool { return slices.Equal(states(t, s, "n"), []string{"holding 0"}) })
}

// A slot with a hold stays taken after its release: its number, its weight.
func testHold(t *testing.T, w *world) {
	s := w.open(t)
	before := time.Now()
	holder := w.join(t, request(t, "n", 2, Hold(time.Hour)))
	holder.expect("granted")
	after := time.Now()
	holder.release()
	if b := w.join(t, request(t, "n", 1, NoWait)).expect("busy"); !strings.Contains(b.Text, "its command has ended") {
		t.Errorf("the message %q does not say what holds it", b.Text)
	}
	const blur = 10 * time.Millisecond
	e := List(t, s, "n")[0]
	if !e.Ended || e.Orphaned || e.HeldTill.Before(before.Add(time.Hour-blur)) || e.HeldTill.After(after.Add(time.Hour+patience)) {
		t.Errorf("the entry is %+v", e)
	}
	if g := w.join(t, request(t, "n", 2, NoWait)).expect("granted"); !slices.Equal(g.Slots, []int{1}) {
		t.Errorf("slots %v beside a held one", g.Slots)
	}
	w.join(t, request(t, "n", 2, NoWait)).expect("busy")
	// Nobody is inside a run that has ended.
	w.join(t, request(t, "n", 1, Within(holder.ref))).expect("queued")
}

// The next in line gets the slot when the time is over, and so does not need to
// be told by anybody.
func testHoldEnds(t *testing.T, w *world) {
	span := 1200*time.Millisecond + w.engine.TTL
	began := time.Now()
	next := map[bool]*peer{}
	for _, kill := range []bool{false, true} {
		name := fmt.Sprint("killed ", kill)
		lease := TTL(LongTTL) // one that runs out before it is given back would be lost
		if kill {
			lease = w.mortal
		}
		holder := w.join(t, request(t, name, 1, Hold(span), lease))
		holder.granted()
		next[kill] = w.join(t, request(t, name, 1))
		if kill {
			holder.kill()
		} else {
			holder.release()
		}
	}
	for kill, p := range next {
		p.granted()
		if took := time.Since(began); took < span {
			t.Errorf("killed %v: granted %v after the start of a hold of %v", kill, took, span)
		}
	}
}

// So does the next but one, which was not in front when the hold began: it gets
// the slot then, and not when it would look by itself.
func testHoldEndsBehind(t *testing.T, w *world) {
	const span = time.Second
	holder := w.join(t, request(t, "n", 1))
	holder.expect("granted")
	short := w.join(t, request(t, "n", 1, Hold(span)))
	short.expect("queued")
	next := w.join(t, request(t, "n", 1))
	next.expect("queued")
	began := time.Now()
	holder.release()
	short.expect("granted")
	short.release()
	next.expect("granted")
	if took := time.Since(began); took < span-10*time.Millisecond || took > 15*span {
		t.Errorf("granted %v after the start of a hold of %v", took, span)
	}
}

func testShortHold(t *testing.T, w *world) {
	holder := w.join(t, request(t, "n", 1, Hold(time.Millisecond)))
	holder.expect("granted")
	next := w.join(t, request(t, "n", 1))
	next.expect("queued")
	next.silent()
	holder.release()
	next.expect("granted")
}

// The hold goes on whatever becomes of its holder.
func testHoldKilled(t *testing.T, w *world) {
	s := w.open(t)
	holder := w.join(t, request(t, "n", 1, Hold(time.Hour), w.mortal))
	holder.expect("granted")
	next := w.join(t, request(t, "n", 1))
	next.expect("queued")
	holder.kill()
	eventually(t, "the entry says that nobody is there", func() bool {
		all := List(t, s, "n")
		return len(all) == 2 && all[0].Ended && !all[0].Orphaned
	})
	w.join(t, request(t, "n", 1, NoWait)).expect("busy")
	next.silent()

	// But not of one that was evicted.
	evicted := w.join(t, request(t, "evicted", 1, Hold(time.Hour), w.mortal))
	evicted.expect("granted")
	evict(t, s, evicted.ref, "user anna")
	evicted.kill()
	w.join(t, request(t, "evicted", 1)).granted()
}

// What nobody holds any more ends at once when it is evicted, for the newest of those
// that replace each other behind it.
func testHoldEvicted(t *testing.T, w *world) {
	s := w.open(t)
	holder := w.join(t, request(t, "n", 1, Hold(time.Hour)))
	holder.expect("granted")
	holder.release()
	old := w.join(t, request(t, "n", 1, Replace(locks.ReplaceWaiting)))
	old.expect("queued")
	next := w.join(t, request(t, "n", 1, Replace(locks.ReplaceWaiting)))
	next.expect("queued")
	old.expect("evicted")
	evict(t, s, holder.ref, "user anna")
	next.expect("granted")
	if err := s.(locks.QueueStore).Evict(context.Background(), holder.ref, "user anna"); !errors.Is(err, locks.ErrLost) {
		t.Errorf("evicting it once more: %v, want ErrLost", err)
	}
}

// Of many that come at about the same time, none of which waits, one runs. The
// fence tells when.
func testTicks(t *testing.T, w *world) {
	const hosts, ticks, span = 10, 3, 700 * time.Millisecond
	var grants []int64
	for range ticks {
		var all []*peer
		for range hosts {
			all = append(all, w.join(t, request(t, "n", 1, NoWait, Hold(span))))
		}
		for _, p := range all {
			select {
			case r := <-p.reports:
				if r.State == "granted" {
					grants = append(grants, r.Fence)
					p.release()
				}
			case <-time.After(patience):
				t.Fatal("a peer says nothing")
			}
		}
		waits := w.join(t, request(t, "n", 1))
		waits.granted() // the hold is over
		waits.release()
	}
	slices.Sort(grants)
	for i := range grants[1:] {
		if apart := time.Duration(grants[i+1]-grants[i]) * time.Microsecond; apart < span {
			t.Errorf("two runs within %v, the hold is %v", apart, span)
		}
	}
	if len(grants) < ticks {
		t.Errorf("%d runs in %d ticks", len(grants), ticks)
	}
}
