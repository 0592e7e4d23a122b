package locktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"golock/locks"
	"golock/test/testkit"
)

// testHistories lets random joins, releases and departures happen on the store
// and on a model that applies the rule, and compares them after every step. All
// entries are of this process, each through a store of its own.
func testHistories(t *testing.T, w *world) {
	round, watch := 0, w.open(t).(locks.QueueStore)
	beTold()
	rapid.Check(t, func(rt *rapid.T) {
		round++
		h := &history{t: t, rt: rt, w: w, leases: locks.KindOf(watch) == locks.LeaseQueue, watch: watch, name: fmt.Sprintf("history %d", round)}
		defer h.end()
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			switch rapid.IntRange(0, 5).Draw(rt, "step") {
			case 0, 1:
				h.join()
			case 2, 3:
				h.release()
			case 4:
				h.leave()
			case 5:
				h.evict()
			}
			h.compare()
		}
	})
}

// history is one random history.
type history struct {
	t        *testing.T
	rt       *rapid.T
	w        *world
	leases   bool
	watch    locks.QueueStore // for looking at the entries
	name     string
	ticket   int64
	queue    []*actor // of the model
	holders  []*actor
	all      []*actor
	fence    int64    // the highest so far
	replaced []string // by the last request that had to wait
}

// actor is one entry, in the model and in the store.
type actor struct {
	claim  locks.Claim // with the model's ticket
	slots  []int       // the model's
	store  locks.Store // its own
	cancel context.CancelFunc
	done   chan struct{} // Wait has returned
	lease  locks.Lease
	err    error

	ref     locks.Ref
	replace locks.Replacement
	hold    bool // the slot stays for longer than the history
	ended   bool // and that is all there is
	evicted bool
	fence   int64
}

func (h *history) join() {
	h.ticket++
	a := &actor{claim: locks.Claim{Ticket: h.ticket, Max: rapid.IntRange(0, 4).Draw(h.rt, "max")}, done: make(chan struct{})}
	a.claim.Weight = rapid.IntRange(1, max(a.claim.Max, 1)).Draw(h.rt, "weight")
	r := request(h.t, h.name, a.claim.Max, weight(a.claim.Weight))
	a.ref = r.Ref
	r.NoWait = rapid.IntRange(0, 4).Draw(h.rt, "patience") == 0
	a.claim.Priority = max(rapid.IntRange(-2, 1).Draw(h.rt, "priority"), -1)
	r.Claim.Priority = a.claim.Priority
	if rapid.IntRange(0, 4).Draw(h.rt, "hold") == 0 {
		a.hold, r.Hold = true, time.Hour
	}
	place := 0
	for place < len(h.queue) && h.queue[place].claim.Before(a.claim) {
		place++
	}

	h.replaced = nil
	fits := place == 0 && locks.Admits(h.claims(), a.claim)
	var gone []*actor // from the queue, replaced by this one
	a.replace = rapid.SampledFrom([]locks.Replacement{"", "", "", locks.ReplaceWaiting, locks.ReplaceRunning}).Draw(h.rt, "replace")
	r.Replace = a.replace
	if rapid.IntRange(0, 3).Draw(h.rt, "limited") == 0 {
		most := rapid.IntRange(0, 3).Draw(h.rt, "max queue")
		r.MaxQueue = &most
	}
	refused := r.NoWait && !fits
	if !fits && !refused {
		gone, refused = h.makeRoom(a, r.MaxQueue)
		place = 0
		for place < len(h.queue) && h.queue[place].claim.Before(a.claim) {
			place++
		}
		fits = place == 0 && locks.Admits(h.claims(), a.claim)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	var err error
	if a.store, err = h.w.engine.Open(h.w.url); err != nil {
		h.rt.Fatal(err)
	}
	h.all = append(h.all, a)
	ticket, err := a.store.Join(ctx, r)
	if refused {
		cancel()
		h.isBusy(err, !r.NoWait)
		return
	}
	if err != nil {
		h.rt.Fatalf("Join: %v", err)
	}
	for _, o := range gone {
		h.isEvicted(o, locks.ReplacedBy(r))
	}
	h.same("replaced", refs(ticket.Replaced()), h.replaced)
	if ticket.Queued() == fits {
		h.rt.Fatalf("queued %v, the rule says fits %v", ticket.Queued(), fits)
	}
	go func() {
		defer close(a.done)
		a.lease, a.err = ticket.Wait(ctx)
	}()
	h.queue = slices.Insert(h.queue, place, a)
	h.admit()
}

func (h *history) release() {
	var able []*actor
	for _, a := range h.holders {
		if !a.ended {
			able = append(able, a)
		}
	}
	if len(able) == 0 {
		return
	}
	a := able[rapid.IntRange(0, len(able)-1).Draw(h.rt, "holder")]
	if a.ended = a.hold && !a.evicted; !a.ended {
		h.holders = slices.DeleteFunc(h.holders, func(o *actor) bool { return o == a })
	}
	if err := a.lease.Release(context.Background()); err != nil {
		h.rt.Fatalf("Release: %v", err)
	}
	if err := a.lease.Release(context.Background()); err != nil {
		h.rt.Fatalf("second Release: %v", err)
	}
	h.admit()
}

func (h *history) leave() {
	if len(h.queue) == 0 {
		return
	}
	i := rapid.IntRange(0, len(h.queue)-1).Draw(h.rt, "waiter")
	a := h.queue[i]
	h.queue = slices.Delete(h.queue, i, i+1)
	a.cancel()
	<-a.done
	if a.lease != nil {
		h.rt.Fatal("a waiter was granted out of turn")
	}
	h.admit()
}

// makeRoom is the model's: it evicts whom a newcomer replaces, unless there are
// too many waiters also without them. It returns the waiters.
func (h *history) makeRoom(a *actor, most *int) (gone []*actor, full bool) {
	var rivals []locks.Rival
	all := append(slices.Clone(h.queue), h.holders...)
	for i, o := range all {
		rival := locks.Rival{Claim: o.claim, State: locks.Holding, Replace: o.replace, Leaving: o.evicted}
		if i < len(h.queue) {
			rival.State = locks.Waiting
		}
		rivals = append(rivals, rival)
	}
	picked := locks.Replaced(rivals, a.claim, a.replace)
	h.replaced = nil
	for _, i := range picked {
		h.replaced = append(h.replaced, all[i].ref.String())
		if i < len(h.queue) {
			gone = append(gone, all[i])
		}
	}
	if most != nil && len(h.queue)-len(gone) >= *most {
		return nil, true
	}
	for _, i := range picked {
		all[i].evicted = true
	}
	h.queue = slices.DeleteFunc(h.queue, func(o *actor) bool { return o.evicted })
	h.holders = slices.DeleteFunc(h.holders, func(o *actor) bool { return o.evicted && o.ended })
	return gone, false
}

// isBusy demands that a request which may not wait is told who is in the way.
func (h *history) isBusy(err error, full bool) {
	var busy *locks.BusyError
	if !errors.As(err, &busy) {
		h.rt.Fatalf("Join = %v, want that it is busy", err)
	}
	var holders []string
	for _, a := range h.holders {
		holders = append(holders, a.ref.String())
	}
	h.same("in the way", refs(busy.Holders), holders)
	if busy.Waiters != len(h.queue) || busy.Full != full {
		h.rt.Fatalf("%d wait, full %v; want %d, %v", busy.Waiters, busy.Full, len(h.queue), full)
	}
}

func refs(entries []locks.Entry) []string {
	var all []string
	for _, e := range entries {
		all = append(all, e.Ref.String())
	}
	return all
}

// same compares two lists that may differ in order.
func (h *history) same(what string, got, want []string) {
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		h.rt.Fatalf("%s: %q, want %q", what, got, want)
	}
}

// isEvicted demands that a waiter is told that it was evicted, and by whom.
func (h *history) isEvicted(a *actor, by string) {
	if !h.leases {
		a.cancel() // as its owner does when it gets the signal
	}
	<-a.done
	var evicted *locks.EvictedError
	if a.lease != nil || !errors.As(a.err, &evicted) || !strings.HasPrefix(by, evicted.By) {
		h.rt.Fatalf("an evicted waiter is told %v", a.err)
	}
}

// evict takes back a place or a slot. A holder keeps its slot until it releases
// it; what only a hold keeps is free at once.
func (h *history) evict() {
	if len(h.all) == 0 {
		return
	}
	a := h.all[rapid.IntRange(0, len(h.all)-1).Draw(h.rt, "victim")]
	err := h.watch.Evict(context.Background(), a.ref, "the model")
	var evicted *locks.EvictedError
	is := func(o *actor) bool { return o == a }
	switch {
	case slices.ContainsFunc(h.queue, is):
		h.isEvicted(a, "the model")
		h.queue = slices.DeleteFunc(h.queue, is)
	case !slices.ContainsFunc(h.holders, is):
		if !errors.Is(err, locks.ErrLost) {
			h.rt.Fatalf("evicting nobody: %v", err)
		}
		return
	case a.ended:
		h.holders = slices.DeleteFunc(h.holders, is)
	default:
		a.evicted = true
		told := a.lease.Evicted()
		if l, ok := a.lease.(locks.RenewableLease); ok {
			_, told = l.Renew(context.Background())
		}
		if !errors.As(told, &evicted) {
			h.rt.Fatalf("an evicted holder is told %v", told)
		}
	}
	if err != nil {
		h.rt.Fatalf("Evict: %v", err)
	}
	h.admit()
}

func (h *history) claims() []locks.Claim {
	var cs []locks.Claim
	for _, a := range h.holders {
		cs = append(cs, a.claim)
	}
	return cs
}

// admit is the model's step.
func (h *history) admit() {
	for len(h.queue) > 0 && locks.Admits(h.claims(), h.queue[0].claim) {
		a := h.queue[0]
		h.queue = h.queue[1:]
		a.slots = locks.FreeSlots(func(slot int) bool {
			return slices.ContainsFunc(h.holders, func(o *actor) bool { return slices.Contains(o.slots, slot) })
		}, a.claim.Weight)
		h.holders = append(h.holders, a)
	}
}

// compare waits until all of the model's holders hold in the store, and
// demands that nobody else does.
func (h *history) compare() {
	var fresh []*actor
	for _, a := range h.holders {
		select {
		case <-a.done:
		case <-time.After(patience):
			h.rt.Fatalf("%+v is not granted", a.claim)
		}
		if a.err != nil {
			h.rt.Fatalf("Wait: %v", a.err)
		}
		if got := a.lease.Grant().Slots; !slices.Equal(got, a.slots) {
			h.rt.Fatalf("slots %v, want %v", got, a.slots)
		}
		if a.fence == 0 {
			fresh = append(fresh, a)
		}
	}
	h.slotsDiffer()
	before := h.fence // of two that are granted in one step either may have the higher one
	for _, a := range fresh {
		if a.fence = a.lease.Grant().Fence; a.fence <= before {
			h.rt.Fatalf("fence %d after %d", a.fence, before)
		}
		h.fence = max(h.fence, a.fence)
	}
	for _, a := range h.queue {
		select {
		case <-a.done:
			h.rt.Fatalf("%+v is granted out of turn (%v)", a.claim, a.err)
		default:
		}
	}
	// Who left is gone a moment later in a networked store.
	want := h.shown()
	var got []string
	if !testkit.Within(patience, func() bool {
		got = nil
		for _, e := range list(h.t, h.watch, h.name) {
			got = append(got, show(e))
		}
		return slices.Equal(got, want)
	}) {
		h.rt.Fatalf("the store shows %q, want %q", got, want)
	}
}

// shown is what the store has to show: holders by slot, then waiters in order.
func (h *history) shown() []string {
	all := []string{}
	holders := slices.SortedFunc(slices.Values(h.holders), func(a, b *actor) int { return a.slots[0] - b.slots[0] })
	for _, a := range holders {
		all = append(all, show(locks.Entry{
			Ref: a.ref, State: locks.Holding, Claim: a.claim, Slots: a.slots, Fence: a.lease.Grant().Fence,
			Ended: a.ended, Evicted: map[bool]string{true: "x"}[a.evicted], HeldTill: map[bool]time.Time{true: time.Now()}[a.hold && !a.evicted],
		}))
	}
	for i, a := range h.queue {
		all = append(all, show(locks.Entry{Ref: a.ref, State: locks.Waiting, Claim: a.claim, Position: i + 1}))
	}
	return all
}

// show writes what an entry tells. A store without priorities has none to show.
func show(e locks.Entry) string {
	return fmt.Sprintf("%s %s slots %v fence %d position %d, %d of %d, priority %d, ended %v, evicted %v, held %v", e.Ref, e.State, e.Slots, e.Fence,
		e.Position, e.Claim.Weight, e.Claim.Max, e.Claim.Priority, e.Ended, e.Evicted != "", !e.HeldTill.IsZero())
}

// slotsDiffer demands that no two holders have the same slot, and none has one
// that its own max does not allow.
func (h *history) slotsDiffer() {
	var taken []int
	for _, a := range h.holders {
		for _, slot := range a.slots {
			if slices.Contains(taken, slot) || a.claim.Max > 0 && slot >= a.claim.Max {
				h.rt.Fatalf("slot %d of %+v, beside %v", slot, a.claim, taken)
			}
			taken = append(taken, slot)
		}
	}
}

// end leaves nothing behind for the next history.
func (h *history) end() {
	for _, a := range h.queue {
		a.cancel()
		<-a.done
	}
	for _, a := range h.holders {
		<-a.done
		if a.lease != nil && !a.ended {
			_ = a.lease.Release(context.Background())
		}
		a.cancel()
	}
	for _, a := range h.all {
		a.store.Close()
	}
}
