package locktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golock/locks"
	"golock/test/testkit"
)

// The fence grows with every grant, also over the end of all processes.
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
		t.Run(tt.name, func(t *testing.T) {
			for _, limit := range tt.holders {
				l := GetOf[locks.Lease](t, s, tt.name, Limit(limit), NoWait)
				if slots := l.Grant().Slots; len(slots) != 1 {
					t.Errorf("a holder has slots %v", slots)
				}
			}
			if tt.want == "busy" {
				Refused(t, s, tt.name, Limit(tt.max))
			} else {
				GetOf[locks.Lease](t, s, tt.name, Limit(tt.max), NoWait)
			}
		})
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

// Many wait; they are served in the order in which they came, and nobody who
// did not queue gets in between.
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
			Refused(t, s, name, Limit(limit))
			holders[0].release()
			queue[0].expect("granted")
			holders, queue = append(holders[1:], queue[0]), queue[1:]
		}
	}
}

// A waiter is not overtaken by one for which there is room: neither a heavy one nor a
// writer behind readers.
func testNotOvertaken(t *testing.T, w *world) {
	s := w.open()
	for name, limits := range map[string]struct{ first, second, weight int }{"heavy": {3, 3, 3}, "writer": {0, 1, 1}} {
		first := w.granted(name, limits.first)
		second := w.queued(name, limits.second, Weight(limits.weight))
		third := w.queued(name, limits.first)
		Refused(t, s, name, Limit(limits.first))
		first.release()
		second.expect("granted")
		third.silent()
		second.release()
		third.expect("granted")
	}
}

// Who gives up is gone from the queue at once, and those behind move up.
func testLeave(t *testing.T, w *world) {
	s := w.open()
	holder := w.granted("n", 1)
	left := QueueOf[locks.Lease](t, s, "n")
	behind := w.queued("n", 1)
	left.Leave()
	// A networked store is told, and its answer not awaited for long.
	testkit.Eventually(t, "the waiter that left is gone", func() bool {
		return slices.Equal(states(t, s, "n"), []string{"holding 0", "waiting 1"})
	})
	holder.release()
	behind.expect("granted")
}

// The slot of a holder that was killed goes to the next that lives, however many waiters
// have died with it, and however seldom it looks.
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
		lease := TTL(LongTTL) // who lives must not lose its place on a busy machine
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
		"refused": func() bool { return Refused(t, s, "refused").Waiters == 0 },
		"room": func() bool {
			ctx, cancel := context.WithCancel(context.Background())
			ticket, err := s.Join(ctx, NewRequest(t, "room", MaxQueue(1)))
			cancel()
			if err == nil {
				_, _ = ticket.Wait(ctx)
			}
			return err == nil
		},
	} {
		w.granted(name, 1)
		dead := w.queued(name, 1, Priority(-1), w.shortTTL)
		if busy := Refused(t, s, name); busy.Waiters != 1 {
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
		GetOf[locks.Lease](t, s, name, NoWait)
	}
}

// A run inside a run of the same name gets a free slot at once or is refused. All requests are of this
// process: one that does not descend from the outer run is not inside it (testdata/nested.txtar).
func testNested(t *testing.T, w *world) {
	s := w.open()
	outer := GetOf[locks.Lease](t, s, "n", NoWait, Limit(2))
	within := outer.Grant().Ref
	inner := GetOf[locks.Lease](t, s, "n", NoWait, Limit(2), Within(within))
	busy := Refused(t, s, "n", Limit(2), Within(within, inner.Grant().Ref))
	if busy.Inside == nil || *busy.Inside != inner.Grant().Ref {
		t.Errorf("%+v, want that it is inside %v", busy, inner.Grant().Ref)
	}
	// A free slot that somebody waits for is not free.
	heavy := w.queued("n", 2, Weight(2))
	Release(t, inner)
	if busy := Refused(t, s, "n", Limit(2), Within(within)); busy.Inside == nil || *busy.Inside != within {
		t.Errorf("%+v, want that it is inside %v", busy, within)
	}
	Release(t, outer)
	heavy.expect("granted")
	// Who is no longer held is nobody's enclosing run.
	w.queued("n", 2, Within(within))
}

func testEntries(t *testing.T, w *world) {
	s := w.open()
	if got := states(t, s, "unknown"); len(got) != 0 {
		t.Errorf("entries of an unknown name: %v", got)
	}
	before := time.Now()
	longest := strings.Repeat("é\"", locks.MaxNote/2)
	holder := w.granted("n", 2, Weight(2), Note(longest))
	waiter := w.queued("n", 2, Priority(-3), Note("why: a=b&c=%20"))
	w.granted("m", 1)
	w.join("n", 2, NoWait).expect("busy", "job", "1 waiting")

	entries := List(t, s, "n")
	if len(entries) != 2 {
		t.Fatalf("entries %+v, want 2", entries)
	}
	h, q := entries[0], entries[1]
	if h.State != locks.Holding || h.Ref != holder.ref || !slices.Equal(h.Slots, []int{0, 1}) ||
		h.Fence != holder.last.Fence || h.Claim.Weight != 2 || h.Claim.Max != 2 || h.PID != holder.PID {
		t.Errorf("holder %+v", h)
	}
	if !slices.Equal(h.Command, []string{"job", "of a test"}) || h.Since.Before(before.Add(-time.Second)) || h.Since.After(time.Now().Add(time.Second)) ||
		!h.HasAge || h.Age > time.Since(before)+time.Second || h.Orphaned {
		t.Errorf("holder %+v", h)
	}
	if !q.HasAge || q.Age > time.Since(before)+time.Second || q.State != locks.Waiting || q.Position != 1 || q.Ref != waiter.ref || q.Claim.Weight != 1 || q.Claim.Max != 2 || q.Claim.Priority != -3 {
		t.Errorf("waiter %+v", q)
	}
	if h.Note != longest || q.Note != "why: a=b&c=%20" {
		t.Errorf("notes %q and %q", h.Note, q.Note)
	}
	if got := states(t, s, ""); !slices.Equal(got, []string{"holding 0", "holding 0", "waiting 1"}) {
		t.Errorf("all entries: %v", got)
	}
}

// Who knows no more than an ID learns whether a command runs for it, and evicts nobody with
// that of what has gone.
func testFind(t *testing.T, w *world) {
	s := w.open()
	queue := s.Abilities().Queue
	leases := s.Abilities().Leases != nil // only those keep whether there is a command
	find := func(p *peer, state locks.State, runs bool) {
		t.Helper()
		if e, err := queue.Find(context.Background(), p.ref); err != nil || e.Ref != p.ref || e.Name != "n" || e.State != state || e.Runs != (runs && leases) {
			t.Errorf("found %+v, %v; want it %s, runs %v", e, err, state, runs)
		}
		var want error
		if state != locks.Holding {
			want = locks.ErrLost
		}
		if err := locks.Holds(context.Background(), queue, p.ref); !errors.Is(err, want) {
			t.Errorf("Holds = %v of one that is %s", err, state)
		}
	}
	run := w.granted("n", 1, func(r *locks.Request) { r.Keeper = locks.KeptByRun })
	kept := w.queued("n", 1)
	find(run, locks.Holding, true)
	find(kept, locks.Waiting, false)
	run.release()
	kept.expect("granted")
	for _, gone := range []locks.Ref{run.ref, NewRequest(t, "unknown").Ref} {
		if e, err := queue.Find(context.Background(), gone); !errors.Is(err, locks.ErrLost) {
			t.Errorf("found %+v, %v of what has gone", e, err)
		}
		IsGone(t, s, gone)
	}
	find(kept, locks.Holding, false)
}

// Who knows no more than an ID renews what another one has taken, and gives it back: then
// that one has lost it, and gets nothing back.
func testAttach(t *testing.T, w *world) {
	s := w.open()
	leases := s.Abilities().Leases
	if leases == nil {
		return // nothing is renewed
	}
	l := Take(t, w.open(), "n", Limit(3), Weight(2))
	a := leases.Attach(l.Grant().Ref)
	Renew(t, a)
	Same(t, a.Grant(), l.Grant())
	Renew(t, l)
	Release(t, a)
	Release(t, a)
	Take(t, s, "n", Limit(3), Weight(3))
	isLost(t, s, l)
}

// isLost demands that a lease cannot be renewed, and that who gives it back is told. (An
// attempt whose answer a busy machine has lost may have done it.)
func isLost(t *testing.T, s locks.Store, l locks.Lease) {
	t.Helper()
	Lost(t, l)
	testkit.Eventually(t, "there is nothing to give back", func() bool {
		return errors.Is(s.Abilities().Leases.Attach(l.Grant().Ref).Release(context.Background()), locks.ErrLost)
	})
}

// A lease that has run out is lost, also if a hold keeps its slot, and a slot that was
// given back is not taken again by what comes late.
func testEnded(t *testing.T, w *world) {
	s := w.open()
	leases := s.Abilities().Leases
	if leases == nil {
		return // nothing runs out
	}
	short := Take(t, s, "n", TTL(w.engine.TTL))
	next := Get(t, s, "n")
	isLost(t, s, short)
	Renew(t, next)

	kept := Take(t, s, "kept", TTL(w.engine.TTL), Hold(time.Hour))
	testkit.Eventually(t, "only the hold is left", func() bool { return List(t, s, "kept")[0].Ended })
	isLost(t, s, kept)

	l := Take(t, s, "m", Hold(time.Hour))
	Release(t, l)
	isLost(t, s, l)
	late := NewRequest(t, "m", Hold(time.Hour))
	late.Ref = l.Grant().Ref
	if ticket, err := s.Join(context.Background(), late); err == nil {
		t.Errorf("a join that comes late is taken, queued %v", ticket.Queued())
	}
	for _, name := range []string{"kept", "m"} {
		if busy := Refused(t, s, name); len(busy.Holders) != 1 || !busy.Holders[0].Ended {
			t.Errorf("%s: holders %+v", name, busy.Holders)
		}
	}
}

// Whoever cleans up again and again is in nobody's way: never are two inside, and what is
// held, waited for, or stays for its time alone is left.
func testSweep(t *testing.T, w *world) {
	s := w.open()
	leases := s.Abilities().Leases != nil
	w.granted("held", 1)
	w.queued("held", 1)
	stays := w.granted("stays", 1, Hold(time.Hour))
	stays.release()
	inside := make([]atomic.Int32, 5)
	var users, sweepers sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	for range 2 {
		s := w.open().Abilities().Queue
		sweepers.Go(func() {
			for ctx.Err() == nil {
				if _, err := s.Sweep(ctx, "", 0); err != nil && ctx.Err() == nil {
					t.Errorf("Sweep: %v", err)
				}
			}
		})
	}
	for user := range 6 {
		s := w.open()
		users.Go(func() {
			for round := range 12 {
				n := (user + round) % len(inside)
				r := NewRequest(t, fmt.Sprint("n", n))
				dies := leases && user == 0 && round == 3
				if dies {
					w.shortTTL(&r)
				}
				ticket, err := s.Join(context.Background(), r)
				if err != nil {
					t.Errorf("Join: %v", err)
					return
				}
				l, err := ticket.Wait(context.Background())
				switch {
				case err != nil:
					t.Errorf("Wait: %v", err)
					return
				case dies:
					continue
				case inside[n].Add(1) != 1:
					t.Error("two are inside")
				}
				inside[n].Add(-1)
				if err := GiveBack(l); err != nil {
					t.Errorf("Release: %v", err)
				}
			}
		})
	}
	users.Wait()
	stop()
	sweepers.Wait()
	if held, stays := states(t, s, "held"), states(t, s, "stays"); !slices.Equal(held, []string{"holding 0", "waiting 1"}) || len(stays) != 1 {
		t.Errorf("left are %v and %v", held, stays)
	}
}

// A name that is forgotten is as one that was never used, and no other is.
func testForget(t *testing.T, w *world) {
	s := w.open()
	if err := s.Abilities().Queue.Forget(context.Background(), "unknown"); err != nil {
		t.Errorf("Forget of an unknown name: %v", err)
	}
	w.granted("m", 1)
	for range 2 {
		holder := w.granted("n", 1)
		killed := w.queued("n", 1, w.shortTTL)
		killed.Kill()
		holder.release()
		if err := s.Abilities().Queue.Forget(context.Background(), "n"); err != nil {
			t.Fatalf("Forget: %v", err)
		}
		if got := states(t, s, ""); !slices.Equal(got, []string{"holding 0"}) {
			t.Errorf("entries %v, want that of the other name", got)
		}
	}
	Refused(t, s, "m")
}

func states(t *testing.T, s locks.Store, name string) []string {
	t.Helper()
	var words []string
	for _, e := range List(t, s, name) {
		words = append(words, string(e.State)+" "+string(rune('0'+e.Position)))
	}
	return words
}
