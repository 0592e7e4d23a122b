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

// A caller that knows only an ID learns whether a command runs for it. The ID of an entry that has gone
// evicts nobody.
func testFind(t *testing.T, w *world) {
	s := w.open()
	queue := s.Abilities().Queue
	leases := s.Abilities().Leases != nil // only a store with leases knows whether there is a command
	find := func(p *peer, state locks.State, runs bool) {
		t.Helper()
		if e, err := queue.Find(context.Background(), p.ref); err != nil || e.Ref != p.ref || e.Name != "n" || e.State != state || e.Runs != (runs && leases) {
			t.Errorf("found %+v, %v; want it %s, runs %v", e, err, state, runs)
		} else if isUnkept := leases && !runs && state == locks.Holding; e.HasNoProcess() != isUnkept {
			t.Errorf("found %+v; want that no process keeps it: %v", e, isUnkept)
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
	kept := w.queued("n", 1, func(r *locks.Request) { r.Keeper = locks.KeptByNobody })
	find(run, locks.Holding, true)
	find(kept, locks.Waiting, false)
	run.release()
	kept.expect("granted")
	for _, gone := range []locks.Ref{run.ref, NewRequest(t, "unknown").Ref} {
		if e, err := queue.Find(context.Background(), gone); !errors.Is(err, locks.ErrLost) {
			t.Errorf("found %+v, %v of what has gone", e, err)
		}
		ExpectGone(t, s, gone)
	}
	find(kept, locks.Holding, false)
}

// A caller that knows only an ID renews a lease that another one has taken, and releases it. Then the
// other one has lost the lease, and has nothing to release.
func testAttach(t *testing.T, w *world) {
	s := w.open()
	leases := s.Abilities().Leases
	if leases == nil {
		return // nothing is renewed
	}
	l := AcquireAtOnce(t, w.open(), "n", Limit(3), Weight(2))
	a := leases.Attach(l.Grant().Ref)
	Renew(t, a)
	ExpectGrant(t, a.Grant(), l.Grant())
	Renew(t, l)
	Release(t, a)
	Release(t, a)
	AcquireAtOnce(t, s, "n", Limit(3), Weight(3))
	isLost(t, s, l)
}

// isLost expects that a lease cannot be renewed, and that its release returns ErrLost. (It repeats the release,
// because an attempt whose answer was lost returns nil.)
func isLost(t *testing.T, s locks.Store, l locks.Lease) {
	t.Helper()
	ExpectLost(t, l)
	testkit.Eventually(t, "there is nothing to give back", func() bool {
		return errors.Is(s.Abilities().Leases.Attach(l.Grant().Ref).Release(context.Background()), locks.ErrLost)
	})
}

// A lease that has run out is lost, also if a hold keeps its slot. A late request does not take a slot again that
// was given back.
func testEnded(t *testing.T, w *world) {
	s := w.open()
	leases := s.Abilities().Leases
	if leases == nil {
		return // nothing runs out
	}
	short := AcquireAtOnce(t, s, "n", TTL(w.engine.TTL))
	next := Acquire(t, s, "n")
	isLost(t, s, short)
	Renew(t, next)

	kept := AcquireAtOnce(t, s, "kept", TTL(w.engine.TTL), Hold(time.Hour))
	testkit.Eventually(t, "only the hold is left", func() bool { return List(t, s, "kept")[0].Ended })
	isLost(t, s, kept)

	l := AcquireAtOnce(t, s, "m", Hold(time.Hour))
	Release(t, l)
	isLost(t, s, l)
	late := NewRequest(t, "m", Hold(time.Hour))
	late.Ref = l.Grant().Ref
	if admission, err := s.Join(context.Background(), late); err == nil {
		t.Errorf("a join that comes late is taken, queued %v", admission.Queued())
	}
	for _, name := range []string{"kept", "m"} {
		if busy := ExpectBusy(t, s, name); len(busy.Holders) != 1 || !busy.Holders[0].Ended {
			t.Errorf("%s: holders %+v", name, busy.Holders)
		}
	}
}

// Sweeps at any time disturb nobody: never are two inside, and entries that hold, wait or have a hold
// stay.
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
				admission, err := s.Join(context.Background(), r)
				if err != nil {
					t.Errorf("Join: %v", err)
					return
				}
				l, err := admission.Wait(context.Background())
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
				if err := ReleaseUntilAnswered(l); err != nil {
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

// A forgotten name is like one that was never used. Other names keep their entries.
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
	ExpectBusy(t, s, "m")
}

func states(t *testing.T, s locks.Store, name string) []string {
	t.Helper()
	var words []string
	for _, e := range List(t, s, name) {
		words = append(words, string(e.State)+" "+string(rune('0'+e.Position)))
	}
	return words
}
