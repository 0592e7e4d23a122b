package sql_test

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
	"golock/locks/sql"
)

// The same random history through the stores of both families: every answer is
// the same, the entries are, and what the first waiter is granted, and when, is
// what the rule says of the entries that the store shows.
func TestHistoriesOfBoth(t *testing.T) {
	t.Parallel()
	const enough = 20 * time.Second
	var bases []*base
	for _, f := range families() {
		bases = append(bases, f.fresh(t))
	}
	started, round := time.Now(), 0
	rapid.Check(t, func(rt *rapid.T) {
		if time.Since(started) > enough {
			return
		}
		round++
		h := &twins{rt: rt}
		for _, b := range bases {
			h.sides = append(h.sides, &side{rt: rt, t: t, base: b, store: b.store(t), names: [2]string{fmt.Sprint("a", round), fmt.Sprint("b", round)}, fences: map[string]int64{}})
		}
		defer h.end()
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			h.step()
		}
	})
	t.Logf("%d histories", round)
}

// twins is one history, in all families.
type twins struct {
	rt    *rapid.T
	sides []*side
	count int // of those who came
}

// side is a history in one of them.
type side struct {
	rt     *rapid.T
	t      *testing.T
	base   *base
	store  *sql.Store
	names  [2]string
	actors []*actor
	fences map[string]int64 // the last of each name
}

// actor is one that came.
type actor struct {
	name   string
	ref    locks.Ref
	ticket locks.Ticket // of one that waits
	lease  locks.Leased // of one that holds, or did
	dead   bool
}

func (h *twins) step() {
	who := 0
	if h.count > 0 {
		who = rapid.IntRange(0, h.count-1).Draw(h.rt, "who")
	}
	switch rapid.IntRange(0, 8).Draw(h.rt, "step") {
	case 0, 1, 2, 3:
		h.count++
		join := h.draw()
		h.do("join", func(s *side) string { return s.join(join) })
	case 4, 5:
		h.do("release", func(s *side) string { return s.release(s.actors[who]) })
	case 6:
		h.do("renew", func(s *side) string { return s.renew(s.actors[who]) })
	case 7:
		h.do("evict", func(s *side) string { return s.evict(s.actors[who]) })
	case 8:
		h.do("expire", func(s *side) string { return s.expire(s.actors[who]) })
	}
	h.do("settle", func(s *side) string { return s.settle() })
}

// do does the same on all sides and compares the answers.
func (h *twins) do(what string, do func(*side) string) {
	if h.count == 0 {
		return
	}
	var answers []string
	for _, s := range h.sides {
		answers = append(answers, do(s))
	}
	for i, a := range answers {
		if a != answers[0] {
			h.rt.Fatalf("%s: %s answers\n%s\n%s answers\n%s", what, h.sides[0].base.family.name, answers[0], h.sides[i].base.family.name, a)
		}
	}
}

// draw makes a request, with the name's number instead of the name.
func (h *twins) draw() func(names [2]string) locks.Request {
	name := rapid.IntRange(0, 1).Draw(h.rt, "name")
	limit := rapid.IntRange(0, 3).Draw(h.rt, "max")
	r := locks.Request{TTL: longTTL, Command: []string{"job", fmt.Sprint(h.count)}}
	r.Claim = locks.Claim{Max: limit, Weight: rapid.IntRange(1, max(limit, 1)).Draw(h.rt, "weight"), Priority: rapid.IntRange(-1, 1).Draw(h.rt, "priority")}
	r.NoWait = rapid.IntRange(0, 3).Draw(h.rt, "patience") == 0
	if rapid.IntRange(0, 3).Draw(h.rt, "limited") == 0 {
		most := rapid.IntRange(0, 2).Draw(h.rt, "max queue")
		r.MaxQueue = &most
	}
	if rapid.IntRange(0, 3).Draw(h.rt, "holds") == 0 {
		r.Hold = time.Hour
	}
	r.Replace = rapid.SampledFrom([]locks.Replacement{locks.ReplaceNone, locks.ReplaceNone, locks.ReplaceWaiting, locks.ReplaceRunning}).Draw(h.rt, "replace")
	return func(names [2]string) locks.Request {
		r.Name = names[name]
		ref, err := locks.NewRef(r.Name)
		if err != nil {
			h.rt.Fatal(err)
		}
		r.Ref = ref
		return r
	}
}

func (s *side) join(draw func([2]string) locks.Request) string {
	r := draw(s.names)
	a := &actor{name: r.Name, ref: r.Ref}
	s.actors = append(s.actors, a)
	ticket, err := s.store.Join(background, r)
	var busy *locks.BusyError
	switch {
	case errors.As(err, &busy):
		return fmt.Sprintf("busy: %d hold, %d wait, %s", len(busy.Holders), busy.Waiters, busy.Reason)
	case err != nil:
		s.rt.Fatalf("Join: %v", err)
	case ticket.Queued():
		a.ticket = ticket
		return fmt.Sprintf("queued: %d", ticket.(locks.Placed).Place())
	}
	return s.wait(a, ticket)
}

// wait fetches what a ticket that does not have to wait any more has got.
func (s *side) wait(a *actor, ticket locks.Ticket) string {
	a.ticket = nil
	ctx, cancel := context.WithTimeout(background, patience)
	defer cancel()
	l, err := ticket.Wait(ctx)
	if err != nil {
		return "told: " + s.told(err)
	}
	a.lease = l.(locks.Leased)
	g := l.Grant()
	if g.Fence <= s.fences[a.name] {
		s.rt.Fatalf("%s: fence %d after %d", s.base.family.name, g.Fence, s.fences[a.name])
	}
	s.fences[a.name] = g.Fence
	return fmt.Sprintf("granted: %v", g.Slots)
}

func (s *side) told(err error) string {
	var evicted *locks.EvictedError
	switch {
	case err == nil:
		return "good"
	case errors.As(err, &evicted):
		return "evicted by " + evicted.By
	case errors.Is(err, locks.ErrLost):
		return "lost"
	}
	s.rt.Fatalf("%s: %v", s.base.family.name, err)
	return ""
}

// release gives back a slot, perhaps a second time, or a place.
func (s *side) release(a *actor) string {
	switch {
	case a.ticket != nil && !a.dead:
		return s.leave(a)
	case a.lease != nil:
		return s.told(a.lease.Release(background))
	}
	return "nothing"
}

// leave gives a place up and waits until the store knows.
func (s *side) leave(a *actor) string {
	ctx, cancel := context.WithCancel(background)
	cancel()
	_, err := a.ticket.Wait(ctx)
	a.ticket = nil
	eventually(s.t, "the place is gone", func() bool {
		return !slices.ContainsFunc(list(s.t, s.store, a.name), func(e locks.Entry) bool { return e.Ref == a.ref })
	})
	return fmt.Sprint(errors.Is(err, context.Canceled))
}

func (s *side) renew(a *actor) string {
	if a.lease == nil || a.dead {
		return "nothing"
	}
	return s.told(tryRenew(a.lease))
}

func (s *side) evict(a *actor) string {
	return s.told(s.store.Evict(background, a.ref, "the test"))
}

// expire ends an entry as time does, and has somebody look at the name.
func (s *side) expire(a *actor) string {
	s.base.exec(s.t, fmt.Sprintf("UPDATE golock SET ends=1 WHERE entry_id='%x' AND state IN ('H','W')", a.ref.ID))
	a.dead = true
	ref, err := locks.NewRef(a.name)
	if err != nil {
		s.rt.Fatal(err)
	}
	ticket, err := s.store.Join(background, locks.Request{Ref: ref, Name: a.name, Claim: locks.Claim{Weight: 1, Max: 1, Priority: -2}, NoWait: true, TTL: longTTL})
	if err != nil {
		return "busy"
	}
	visitor := &actor{name: a.name, ref: ref}
	return s.wait(visitor, ticket) + s.told(visitor.lease.Release(background))
}

// settle tells those who were put out, serves whom the rule lets in, and gives
// what the store shows in the end.
func (s *side) settle() string {
	var text strings.Builder
	for _, name := range s.names {
		entries := list(s.t, s.store, name)
		for i, a := range s.actors {
			if a.name == name && a.ticket != nil && !a.dead && !slices.ContainsFunc(entries, func(e locks.Entry) bool { return e.Ref == a.ref }) {
				fmt.Fprintln(&text, i, s.wait(a, a.ticket))
			}
		}
		for s.serve(&text, entries) {
			entries = list(s.t, s.store, name)
		}
		for _, e := range entries {
			fmt.Fprintf(&text, "%s %d: place %d, weight %d, max %d, priority %d, slots %v, hold %v, left %v, evicted %q\n", e.State, s.index(e.Ref),
				e.Position, e.Claim.Weight, e.Claim.Max, e.Claim.Priority, e.Slots, !e.HeldTill.IsZero(), e.Orphaned || e.Ended, e.Evicted)
		}
	}
	return text.String()
}

// serve lets the first waiter in, if the rule does.
func (s *side) serve(text *strings.Builder, entries []locks.Entry) bool {
	var holders []locks.Claim
	taken := map[int]bool{}
	for i, e := range entries {
		if e.State == locks.Holding {
			holders = append(holders, e.Claim)
			for _, slot := range e.Slots {
				if taken[slot] {
					s.rt.Fatalf("%s: slot %d is given twice", s.base.family.name, slot)
				}
				taken[slot] = true
			}
		} else if i > len(holders) && !entries[i-1].Claim.Before(e.Claim) {
			s.rt.Fatalf("%s: %+v stands before %+v", s.base.family.name, entries[i-1].Claim, e.Claim)
		}
	}
	s.check(holders)
	if len(entries) == len(holders) || !locks.Admits(holders, entries[len(holders)].Claim) {
		return false
	}
	first := entries[len(holders)]
	i := s.index(first.Ref)
	want := fmt.Sprintf("granted: %v", locks.FreeSlots(func(slot int) bool { return taken[slot] }, first.Claim.Weight))
	if got := s.wait(s.actors[i], s.actors[i].ticket); got != want {
		s.rt.Fatalf("%s: %+v is %s, want %s", s.base.family.name, first.Claim, got, want)
	}
	fmt.Fprintln(text, i, want)
	return true
}

// check holds the holders to each one's own promise.
func (s *side) check(holders []locks.Claim) {
	units := 0
	for _, c := range holders {
		units += c.Weight
	}
	if limit := locks.Limit(holders, locks.Claim{}); limit != 0 && units > limit {
		s.rt.Fatalf("%s: %d units of %d: %+v", s.base.family.name, units, limit, holders)
	}
}

func (s *side) index(ref locks.Ref) int {
	return slices.IndexFunc(s.actors, func(a *actor) bool { return a.ref == ref })
}

// end leaves nothing behind.
func (h *twins) end() {
	ctx, cancel := context.WithCancel(background)
	cancel()
	for _, s := range h.sides {
		for _, a := range s.actors {
			if a.ticket != nil {
				_, _ = a.ticket.Wait(ctx)
			}
			if a.lease != nil {
				_ = a.lease.Release(background)
			}
		}
	}
}
