package locks

import (
	"testing"

	"pgregory.net/rapid"

	"golock/test/testkit"
)

// The rule, held by random histories of a queue that applies it: at no moment
// do the units in use exceed the max of anyone who holds, the first waiter is
// never kept out although it would fit, nobody overtakes, and slots are the
// lowest free ones.
func TestRuleKeepsEveryHoldersPromise(t *testing.T) {
	testkit.FixRapid()
	rapid.Check(t, func(t *rapid.T) {
		type entry struct {
			Claim
			slots []int
		}
		var holders, queue []entry
		var ticket int64

		claims := func() []Claim {
			cs := make([]Claim, len(holders))
			for i, h := range holders {
				cs[i] = h.Claim
			}
			return cs
		}
		admit := func() {
			for len(queue) > 0 && Admits(claims(), queue[0].Claim) {
				e := queue[0]
				queue = queue[1:]
				used := map[int]bool{}
				for _, h := range holders {
					for _, s := range h.slots {
						used[s] = true
					}
				}
				e.slots = FreeSlots(func(s int) bool { return used[s] }, e.Weight)
				holders = append(holders, e)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"join": func(t *rapid.T) {
				ticket++
				c := Claim{Ticket: ticket, Max: rapid.IntRange(0, 5).Draw(t, "max"), Priority: rapid.IntRange(-1, 1).Draw(t, "priority")}
				c.Weight = rapid.IntRange(1, max(c.Max, 1)).Draw(t, "weight")
				i := 0
				for i < len(queue) && queue[i].Before(c) {
					i++
				}
				queue = append(queue[:i], append([]entry{{Claim: c}}, queue[i:]...)...)
				admit()
			},
			"release": func(t *rapid.T) {
				if len(holders) == 0 {
					return
				}
				i := rapid.IntRange(0, len(holders)-1).Draw(t, "holder")
				holders = append(holders[:i], holders[i+1:]...)
				admit()
			},
			"leave": func(t *rapid.T) {
				if len(queue) == 0 {
					return
				}
				i := rapid.IntRange(0, len(queue)-1).Draw(t, "waiter")
				queue = append(queue[:i], queue[i+1:]...)
				admit()
			},
			"": func(t *rapid.T) {
				units, owner := 0, map[int]bool{}
				for _, h := range holders {
					units += h.Weight
					for _, s := range h.slots {
						if owner[s] {
							t.Fatalf("slot %d is held twice", s)
						}
						owner[s] = true
						if h.Max != 0 && s >= h.Max {
							t.Fatalf("slot %d is not below max %d", s, h.Max)
						}
					}
				}
				for _, h := range holders {
					if h.Max != 0 && units > h.Max {
						t.Fatalf("%d units in use beside a holder with max %d", units, h.Max)
					}
				}
				for i := 1; i < len(queue); i++ {
					if !queue[i-1].Before(queue[i].Claim) {
						t.Fatalf("queue out of order at %d", i)
					}
				}
				if len(holders) == 0 && len(queue) > 0 {
					t.Fatal("nobody holds and the first waiter is kept out")
				}
			},
		})
	})
}

func TestAdmitsExamples(t *testing.T) {
	shared, writer := Claim{Weight: 1}, Claim{Weight: 1, Max: 1}
	for _, tt := range []struct {
		name    string
		holders []Claim
		c       Claim
		want    bool
	}{
		{"first", nil, writer, true},
		{"second exclusive", []Claim{writer}, writer, false},
		{"reader beside readers", []Claim{shared, shared}, shared, true},
		{"writer beside reader", []Claim{shared}, writer, false},
		{"reader beside writer", []Claim{writer}, shared, false},
		{"third of three", []Claim{{Weight: 1, Max: 3}, {Weight: 1, Max: 3}}, Claim{Weight: 1, Max: 3}, true},
		{"fourth of three", []Claim{{Weight: 2, Max: 3}, {Weight: 1, Max: 3}}, Claim{Weight: 1, Max: 3}, false},
		{"own max smaller", []Claim{{Weight: 1, Max: 5}, {Weight: 1, Max: 5}}, Claim{Weight: 1, Max: 2}, false},
		{"holder's max smaller", []Claim{{Weight: 1, Max: 2}, {Weight: 1, Max: 5}}, Claim{Weight: 1, Max: 5}, false},
		{"reader beside a limit of two", []Claim{{Weight: 1, Max: 2}}, shared, true},
		{"second reader beside a limit of two", []Claim{{Weight: 1, Max: 2}, shared}, shared, false},
		{"heavier than its own max", nil, Claim{Weight: 3, Max: 2}, false},
	} {
		if got := Admits(tt.holders, tt.c); got != tt.want {
			t.Errorf("%s: Admits = %v, want %v", tt.name, got, tt.want)
		}
	}
}
