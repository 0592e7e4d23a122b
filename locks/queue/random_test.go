package queue_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"golock/locks"
	"golock/locks/queue"
	"golock/test/testkit"
)

// The rule of admission holds after any steps in any order. The bytes that rapid draws can be shortened
// when a history fails; those of ChaCha8 are more evenly distributed.
func TestRandomSteps(t *testing.T) {
	testkit.FixRapid()
	rapid.Check(t, func(rt *rapid.T) {
		play(rt, rapid.SliceOfN(rapid.Byte(), 0, 400).Draw(rt, "steps"))
		even := rand.NewChaCha8([32]byte{rapid.Byte().Draw(rt, "seed"), rapid.Byte().Draw(rt, "more")})
		for range 3 {
			data := make([]byte, 400)
			_, _ = even.Read(data)
			play(rt, data)
		}
	})
}

func FuzzDecide(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09"))
	f.Fuzz(func(t *testing.T, data []byte) { play(t, data[:min(len(data), 500)]) })
}

// game is a random history: bytes choose its steps.
type game struct {
	*script
	t     interface{ Fatalf(string, ...any) }
	data  []byte
	log   []string
	ids   []string
	fence int64 // the highest fence so far
}

func play(t interface{ Fatalf(string, ...any) }, data []byte) {
	g := &game{script: newScript(), t: t, data: data}
	g.decide = func(v queue.View, q queue.Question) queue.Decision {
		copied := v
		copied.Holders, copied.Waiters, copied.Replaceable = slices.Clone(v.Holders), slices.Clone(v.Waiters), slices.Clone(v.Replaceable)
		d := queue.Decide(v, q)
		if !reflect.DeepEqual(v, copied) {
			g.fail("the view is changed")
		}
		return d
	}
	g.front = g.pick(4)
	for len(g.data) > 0 {
		g.next()
	}
}

func (g *game) fail(format string, args ...any) {
	g.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(g.log, "\n"))
}

// pick returns a number below n, or 0 when there are no more bytes.
func (g *game) pick(n int) int {
	if len(g.data) == 0 || n == 0 {
		return 0
	}
	b := g.data[0]
	g.data = g.data[1:]
	return int(b) % n
}

// pickID picks the ID of an entry for which a condition holds, or returns "" if there is none.
func (g *game) pickID(condition func(c *client, e queue.Entry) bool) string {
	able := slices.DeleteFunc(slices.Clone(g.ids), func(id string) bool { return !condition(g.clients[id], g.entries[id]) })
	if len(able) == 0 {
		return ""
	}
	return able[g.pick(len(able))]
}

// next makes the next random step.
func (g *game) next() {
	waits := func(c *client, e queue.Entry) bool { return c.waits }
	holds := func(c *client, e queue.Entry) bool { return c.holds }
	isLive := func(_ *client, e queue.Entry) bool { return strings.ContainsRune("WOHE", rune(e.State)) && e.ID != "" }
	isAny := func(*client, queue.Entry) bool { return true }
	lost := []string{"", "", " lost"}[g.pick(3)]
	step := func(id, verb string) {
		if id != "" {
			g.step(id + " " + verb)
		}
	}
	// A change without a question is followed by a look, as in the engines.
	change := func(id, what string) {
		if id != "" {
			g.log = append(g.log, id+what)
			g.do(id + what)
			g.step("look")
		}
	}
	switch g.pick(18) {
	case 0, 1, 2, 3:
		g.join(lost)
	case 4, 5:
		step(g.pickID(waits), "join"+lost)
	case 6:
		step(g.pickID(isAny), "late")
	case 7:
		step(g.pickID(holds), "renew"+lost)
	case 8, 9, 10:
		step(g.pickID(holds), "release"+lost)
	case 11:
		step(g.pickID(func(c *client, _ queue.Entry) bool { return !c.holds }), "leave"+lost)
	case 12:
		step(g.pickID(isAny), "evict")
	case 13:
		id := g.pickID(func(_ *client, e queue.Entry) bool { return e.State == queue.Waiting || e.State == queue.Offered })
		change(id, []string{" absent", " deaf"}[g.pick(2)])
	case 14:
		change(g.pickID(func(c *client, e queue.Entry) bool {
			return c.waits && e.State == queue.Offered && !g.quarantined && !e.Absent
		}), " accept")
	case 15:
		change(g.pickID(isLive), " holdends")
	case 16:
		change(g.pickID(isLive), " expires")
	case 17:
		what := []string{"save", "crash", "over", "over"}[g.pick(4)]
		if what == "crash" {
			g.fence = 0
		}
		change(what, "")
	}
}

// join lets a newcomer join.
func (g *game) join(lost string) {
	id := fmt.Sprint("e", len(g.ids))
	limit := g.pick(5)
	text := fmt.Sprintf("%s join max=%d weight=%d", id, limit, 1+g.pick(max(limit, 1)))
	for _, more := range [][]string{
		{"", "", " priority=1", " priority=-1"}, {"", "", "", " hold"}, {"", "", "", " deaf"}, {"", "", "", " nowait", " queue=0", " queue=2"},
		{"", "", "", " replace=waiting", " replace=running"}, {"", "", "", " in=" + g.pickID(func(c *client, _ queue.Entry) bool { return c.holds })},
	} {
		text += more[g.pick(len(more))]
	}
	g.ids = append(g.ids, id)
	g.step(text + lost)
}

// step makes a step twice: the repetition of a lost answer must change nothing.
func (g *game) step(text string) {
	before := g.snapshot()
	answer := g.do(text)
	g.log = append(g.log, text+": "+answer)
	g.check(before, strings.HasPrefix(answer, "held"))
	after := g.snapshot()
	id, verb, hasEntry := strings.Cut(text, " ")
	// A waiter that got an offer in the same step, or that is first outside the view, asks again: its
	// next answer is another one.
	isDue := after.entries[id].State == queue.Offered || strings.HasSuffix(answer, "due "+id)
	if !hasEntry || strings.HasPrefix(answer, "waiting") && isDue {
		return
	}
	verb, _, _ = strings.Cut(verb, " ")
	switch {
	case verb == "evict":
	case verb == "join" && before.entries[id].ID == "":
		verb = "late"
	default:
		verb += " lost"
	}
	again := g.do(id + " " + verb)
	if !reflect.DeepEqual(after.entries, g.entries) || after.counter != g.counter {
		g.fail("asked again: %s", again)
	}
}

// check holds a step against the rule. If it put a holder back, that one has the slots that it had.
func (g *game) check(before *line, putBack bool) {
	var fresh []queue.Entry // those that got their slots in this step
	taken := map[int]bool{}
	hasSlots := func(e queue.Entry) bool { return len(e.Slots) > 0 }
	var claims []locks.Claim
	units := 0
	for _, e := range g.in("OHE") {
		old := before.entries[e.ID]
		if e.Fence > g.counter {
			g.fail("%s has fence %d, the counter is %d", e.ID, e.Fence, g.counter)
		}
		isUnchanged := hasSlots(old) && old.Fence == e.Fence
		isRestored := putBack && !hasSlots(old) && e.State == queue.Holding
		if isUnchanged || isRestored {
			g.fence = max(g.fence, e.Fence)
			for _, slot := range e.Slots {
				if taken[slot] {
					g.fail("two have slot %d", slot)
				}
				taken[slot] = true
			}
		} else {
			fresh = append(fresh, e)
		}
		claims = append(claims, e.Claim)
		units += e.Claim.Weight
	}
	if !locks.Admits(claims, locks.Claim{}) {
		g.fail("%d units are too many", units)
	}
	g.checkGrants(fresh, taken)
	g.checkWaiters(claims, fresh)
	g.checkNobodyBack(before)
	g.checkHolders()
}

// checkGrants demands that each new holder got the lowest free slots, and the next fence.
func (g *game) checkGrants(fresh []queue.Entry, taken map[int]bool) {
	slices.SortFunc(fresh, func(a, b queue.Entry) int { return cmp.Compare(a.Fence, b.Fence) })
	for _, e := range fresh {
		want := locks.FreeSlots(func(slot int) bool { return taken[slot] }, e.Claim.Weight)
		if !slices.Equal(e.Slots, want) {
			g.fail("%s has slots %v, want %v", e.ID, e.Slots, want)
		}
		if e.Fence <= g.fence || g.quarantined {
			g.fail("%s has fence %d after %d, quarantine %v", e.ID, e.Fence, g.fence, g.quarantined)
		}
		g.fence = e.Fence
		for _, slot := range e.Slots {
			taken[slot] = true
		}
	}
}

// checkNobodyBack demands that an entry that has left, or whose command has ended, does not come back.
func (g *game) checkNobodyBack(before *line) {
	for id, e := range before.entries {
		now := g.entries[id].State
		leftAgain := e.State == queue.Tombstone && now != queue.Tombstone
		endedAgain := e.State == queue.Ended && now != queue.Ended && now != queue.Tombstone
		if leftAgain || endedAgain {
			g.fail("%s comes back", id)
		}
	}
}

// checkHolders demands that the store knows each holder as the holder knows itself.
func (g *game) checkHolders() {
	for id, c := range g.clients {
		e, want := g.entries[id], c.now.Entry
		isSame := e.State == queue.Holding && slices.Equal(e.Slots, want.Slots) && e.Fence == want.Fence
		if c.holds && c.isKnown && !isSame {
			g.fail("%s has lost its slot", id)
		}
	}
}

// checkWaiters demands that no waiter that is not Absent is overtaken, or left without an offer.
func (g *game) checkWaiters(holders []locks.Claim, fresh []queue.Entry) {
	isFirst := true
	for _, w := range slices.DeleteFunc(g.in("W"), func(e queue.Entry) bool { return e.Absent }) {
		for _, e := range fresh {
			if before(w, e) {
				g.fail("%s is overtaken by %s", w.ID, e.ID)
			}
		}
		if len(w.Slots) > 0 || w.Fence != 0 || w.Evicted != "" {
			g.fail("a waiter with %+v", w)
		}
		if isFirst && w.Reachable && !g.quarantined && locks.Admits(holders, w.Claim) {
			g.fail("%s has no offer", w.ID)
		}
		isFirst = false
	}
}
