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

// Whatever happens, in whatever order, the rule holds. The bytes of rapid are short
// histories when one fails; the others are more even.
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

// game is a history that bytes make up.
type game struct {
	*script
	t     interface{ Fatalf(string, ...any) }
	data  []byte
	log   []string
	ids   []string
	fence int64 // the highest so far
}

func play(t interface{ Fatalf(string, ...any) }, data []byte) {
	g := &game{script: newScript(), t: t, data: data}
	g.look = func(v queue.View, q queue.Question) queue.Decision {
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

// pick is a number below n, 0 where there are no more bytes.
func (g *game) pick(n int) int {
	if len(g.data) == 0 || n == 0 {
		return 0
	}
	b := g.data[0]
	g.data = g.data[1:]
	return int(b) % n
}

// one picks an entry that somebody has asked for; "": there is none.
func (g *game) one(of func(c *client, e queue.Entry) bool) string {
	able := slices.DeleteFunc(slices.Clone(g.ids), func(id string) bool { return !of(g.clients[id], g.entries[id]) })
	if len(able) == 0 {
		return ""
	}
	return able[g.pick(len(able))]
}

func (g *game) next() {
	waits := func(c *client, e queue.Entry) bool { return c.waits }
	holds := func(c *client, e queue.Entry) bool { return c.holds }
	alive := func(_ *client, e queue.Entry) bool { return strings.ContainsRune("WOHE", rune(e.State)) && e.ID != "" }
	each := func(*client, queue.Entry) bool { return true }
	lost := []string{"", "", " lost"}[g.pick(3)]
	step := func(id, verb string) {
		if id != "" {
			g.step(id + " " + verb)
		}
	}
	// What changes without a question is followed by a look, as by engines.
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
		step(g.one(waits), "join"+lost)
	case 6:
		step(g.one(each), "late")
	case 7:
		step(g.one(holds), "renew"+lost)
	case 8, 9, 10:
		step(g.one(holds), "release"+lost)
	case 11:
		step(g.one(func(c *client, _ queue.Entry) bool { return !c.holds }), "leave"+lost)
	case 12:
		step(g.one(each), "evict")
	case 13:
		change(g.one(func(_ *client, e queue.Entry) bool { return e.State == queue.Waiting || e.State == queue.Offered }), []string{" absent", " deaf"}[g.pick(2)])
	case 14:
		change(g.one(func(c *client, e queue.Entry) bool {
			return c.waits && e.State == queue.Offered && !g.quiet && !e.Absent
		}), " accept")
	case 15:
		change(g.one(alive), " holdends")
	case 16:
		change(g.one(alive), " expires")
	case 17:
		what := []string{"save", "crash", "over", "over"}[g.pick(4)]
		if what == "crash" {
			g.fence = 0
		}
		change(what, "")
	}
}

// join makes somebody new.
func (g *game) join(lost string) {
	id := fmt.Sprint("e", len(g.ids))
	limit := g.pick(5)
	text := fmt.Sprintf("%s join max=%d weight=%d", id, limit, 1+g.pick(max(limit, 1)))
	for _, more := range [][]string{
		{"", "", " priority=1", " priority=-1"}, {"", "", "", " hold"}, {"", "", "", " deaf"}, {"", "", "", " nowait", " queue=0", " queue=2"},
		{"", "", "", " replace=waiting", " replace=running"}, {"", "", "", " in=" + g.one(func(c *client, _ queue.Entry) bool { return c.holds })},
	} {
		text += more[g.pick(len(more))]
	}
	g.ids = append(g.ids, id)
	g.step(text + lost)
}

// step asks twice: the second time is the answer that was lost, and changes nothing.
func (g *game) step(text string) {
	before := g.snapshot()
	answer := g.do(text)
	g.log = append(g.log, text+": "+answer)
	g.check(before, strings.HasPrefix(answer, "held"))
	after := g.snapshot()
	id, verb, ok := strings.Cut(text, " ")
	if e := after.entries[id]; strings.HasPrefix(answer, "waiting") && (e.State == queue.Offered || strings.HasSuffix(answer, "due "+id)) {
		ok = false // it was let in after those before it, or the view did not show that it is first: it asks again
	}
	if ok {
		verb, _, _ = strings.Cut(verb, " ")
		switch {
		case verb == "evict":
		case verb == "join" && before.entries[id].ID == "":
			verb = "late"
		default:
			verb += " lost"
		}
		if again := g.do(id + " " + verb); !reflect.DeepEqual(after.entries, g.entries) || after.counter != g.counter {
			g.fail("asked again: %s", again)
		}
	}
}

// check holds a step against the rule. One that was put back gets what it had.
func (g *game) check(before *line, putBack bool) {
	var fresh []queue.Entry
	taken := map[int]bool{}
	had := func(e queue.Entry) bool { return len(e.Slots) > 0 }
	claims, units := []locks.Claim{}, 0
	for _, e := range g.in("OHE") {
		old := before.entries[e.ID]
		if e.Fence > g.counter {
			g.fail("%s has fence %d, the counter is %d", e.ID, e.Fence, g.counter)
		}
		if had(old) && old.Fence == e.Fence || putBack && !had(old) && e.State == queue.Holding {
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
		claims, units = append(claims, e.Claim), units+e.Claim.Weight
	}
	if !locks.Admits(claims, locks.Claim{}) {
		g.fail("%d units are too many", units)
	}
	slices.SortFunc(fresh, func(a, b queue.Entry) int { return cmp.Compare(a.Fence, b.Fence) })
	for _, e := range fresh {
		if want := locks.FreeSlots(func(slot int) bool { return taken[slot] }, e.Claim.Weight); !slices.Equal(e.Slots, want) {
			g.fail("%s has slots %v, want %v", e.ID, e.Slots, want)
		}
		if e.Fence <= g.fence || g.quiet {
			g.fail("%s has fence %d after %d, quarantine %v", e.ID, e.Fence, g.fence, g.quiet)
		}
		g.fence = e.Fence
		for _, slot := range e.Slots {
			taken[slot] = true
		}
	}
	g.checkWaiters(claims, fresh)
	for id, e := range before.entries {
		if now := g.entries[id]; e.State == queue.Tombstone && now.State != queue.Tombstone || e.State == queue.Ended && now.State != queue.Ended && now.State != queue.Tombstone {
			g.fail("%s comes back", id)
		}
	}
	for id, c := range g.clients {
		if e := g.entries[id]; c.holds && c.sure && (e.State != queue.Holding || !slices.Equal(e.Slots, c.now.Entry.Slots) || e.Fence != c.now.Entry.Fence) {
			g.fail("%s has lost its slot", id)
		}
	}
}

// checkWaiters demands that nobody who is there is overtaken, or left without an offer.
func (g *game) checkWaiters(holders []locks.Claim, fresh []queue.Entry) {
	first := true
	for _, w := range slices.DeleteFunc(g.in("W"), func(e queue.Entry) bool { return e.Absent }) {
		for _, e := range fresh {
			if before(w, e) {
				g.fail("%s is overtaken by %s", w.ID, e.ID)
			}
		}
		if len(w.Slots) > 0 || w.Fence != 0 || w.Evicted != "" {
			g.fail("a waiter with %+v", w)
		}
		if first && w.Reachable && !g.quiet && locks.Admits(holders, w.Claim) {
			g.fail("%s has no offer", w.ID)
		}
		first = false
	}
}
