package locks

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"golock/test/testkit"
)

// Whoever is admitted, one after the other, the units in use never exceed the max of anyone
// who holds, slots are held once and below the own max, and an empty lock admits anybody.
func TestRuleKeepsEveryHoldersPromise(t *testing.T) {
	testkit.FixRapid()
	rapid.Check(t, func(t *rapid.T) {
		var holders []Claim
		var slots [][]int
		isTaken := func(slot int) bool {
			return slices.ContainsFunc(slots, func(s []int) bool { return slices.Contains(s, slot) })
		}
		t.Repeat(map[string]func(*rapid.T){
			"join": func(t *rapid.T) {
				c := Claim{Max: rapid.IntRange(0, 5).Draw(t, "max")}
				c.Weight = rapid.IntRange(1, max(c.Max, 1)).Draw(t, "weight")
				if !Admits(holders, c) {
					if len(holders) == 0 {
						t.Fatalf("nobody holds and %+v is kept out", c)
					}
					return
				}
				free := FreeSlots(isTaken, c.Weight)
				if slices.ContainsFunc(free, isTaken) || c.Max != 0 && free[len(free)-1] >= c.Max {
					t.Fatalf("%+v gets %v beside %v", c, free, slots)
				}
				holders, slots = append(holders, c), append(slots, free)
			},
			"release": func(t *rapid.T) {
				if len(holders) > 0 {
					i := rapid.IntRange(0, len(holders)-1).Draw(t, "holder")
					holders, slots = slices.Delete(holders, i, i+1), slices.Delete(slots, i, i+1)
				}
			},
			"": func(t *rapid.T) {
				units := 0
				for _, h := range holders {
					units += h.Weight
				}
				for _, h := range holders {
					if h.Max != 0 && units > h.Max {
						t.Fatalf("%d units in use beside a holder with max %d", units, h.Max)
					}
				}
			},
		})
	})
}

// The other examples are asked of every store: locktest, testRule.
func TestNotAdmitted(t *testing.T) {
	for _, tt := range []struct {
		name    string
		holders []Claim
		c       Claim
	}{
		{"more than 32 bits", []Claim{{Weight: math.MaxInt32, Max: math.MaxInt32}}, Claim{Weight: math.MaxInt32, Max: math.MaxInt32}},
		{"heavier than its own max", nil, Claim{Weight: 3, Max: 2}},
	} {
		if Admits(tt.holders, tt.c) {
			t.Errorf("%s is admitted", tt.name)
		}
	}
}
