package locktest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"golock/locks"
)

// testHistories lets random joins, releases and departures happen on the store
// and on a model that applies the rule, and compares them after every step. All
// entries are of this process, each through a store of its own.
func testHistories(t *testing.T, w *world) {
	round, watch := 0, w.open(t)
	rapid.Check(t, func(rt *rapid.T) {
		round++
		h := &history{t: t, rt: rt, w: w, watch: watch, name: fmt.Sprintf("history %d", round)}
		defer h.end()
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			switch rapid.IntRange(0, 4).Draw(rt, "step") {
			case 0, 1:
				h.join()
			case 2, 3:
				h.release()
			case 4:
				h.leave()
			}
			h.compare()
		}
	})
}

// history is one random history.
type history struct {
	t       *testing.T
	rt      *rapid.T
	w       *world
	watch   locks.Store // for looking at the entries
	name    string
	ticket  int64
	queue   []*actor // of the model
	holders []*actor
	all     []*actor
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
}

func (h *history) join() {
	h.ticket++
	a := &actor{claim: locks.Claim{Ticket: h.ticket, Max: rapid.IntRange(0, 4).Draw(h.rt, "max")}, done: make(chan struct{})}
	a.claim.Weight = rapid.IntRange(1, max(a.claim.Max, 1)).Draw(h.rt, "weight")
	r := request(h.t, h.name, a.claim.Max, weight(a.claim.Weight))
	r.NoWait = rapid.IntRange(0, 4).Draw(h.rt, "patience") == 0

	fits := len(h.queue) == 0 && locks.Admits(h.claims(), a.claim)
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	var err error
	if a.store, err = h.w.engine.Open(h.w.url); err != nil {
		h.rt.Fatal(err)
	}
	h.all = append(h.all, a)
	ticket, err := a.store.Join(ctx, r)
	if r.NoWait && !fits {
		cancel()
		if err == nil {
			h.rt.Fatal("granted out of turn to one that does not wait")
		}
		return
	}
	if err != nil {
		h.rt.Fatalf("Join: %v", err)
	}
	if ticket.Queued() == fits {
		h.rt.Fatalf("queued %v, the rule says fits %v", ticket.Queued(), fits)
	}
	go func() {
		defer close(a.done)
		a.lease, a.err = ticket.Wait(ctx)
	}()
	h.queue = append(h.queue, a)
	h.admit()
}

func (h *history) release() {
	if len(h.holders) == 0 {
		return
	}
	i := rapid.IntRange(0, len(h.holders)-1).Draw(h.rt, "holder")
	a := h.holders[i]
	h.holders = slices.Delete(h.holders, i, i+1)
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
	}
	for _, a := range h.queue {
		select {
		case <-a.done:
			h.rt.Fatalf("%+v is granted out of turn (%v)", a.claim, a.err)
		default:
		}
	}
	// Who left is gone a moment later in a networked store.
	eventually(h.rt, "the store shows the model's holders and waiters", func() bool {
		holding, waiting := 0, 0
		for _, e := range list(h.t, h.watch, h.name) {
			if e.State == locks.Holding {
				holding++
			} else {
				waiting++
			}
		}
		return holding == len(h.holders) && waiting == len(h.queue)
	})
}

// end leaves nothing behind for the next history.
func (h *history) end() {
	for _, a := range h.queue {
		a.cancel()
		<-a.done
	}
	for _, a := range h.holders {
		<-a.done
		if a.lease != nil {
			_ = a.lease.Release(context.Background())
		}
		a.cancel()
	}
	for _, a := range h.all {
		a.store.Close()
	}
}
