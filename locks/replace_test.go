package locks_test

import (
	"slices"
	"testing"

	"golock/locks"
)

func TestReplaced(t *testing.T) {
	const none, waiting, running = locks.ReplaceNone, locks.ReplaceWaiting, locks.ReplaceRunning
	claim := func(ticket int64, max int) locks.Claim { return locks.Claim{Weight: 1, Max: max, Ticket: ticket} }
	wait := func(ticket int64, r locks.Replacement) locks.Rival {
		return locks.Rival{Claim: claim(ticket, 1), Waits: true, Replace: r}
	}
	holds := func(ticket int64, max int, r locks.Replacement) locks.Rival {
		return locks.Rival{Claim: claim(ticket, max), Replace: r}
	}
	leaving := func(r locks.Rival) locks.Rival { r.Leaving = true; return r }
	first := wait(5, waiting)
	first.Claim.Priority = -1
	for what, tt := range map[string]struct {
		rivals []locks.Rival
		max    int
		weight int
		how    locks.Replacement
		want   []int
	}{
		"nobody who did not ask":            {[]locks.Rival{holds(1, 1, running), wait(2, running)}, 1, 1, none, nil},
		"waiters of any kind":               {[]locks.Rival{wait(2, running), wait(3, none), wait(4, waiting)}, 1, 1, waiting, []int{0, 2}},
		"not those behind":                  {[]locks.Rival{first}, 1, 1, waiting, nil},
		"not those who leave":               {[]locks.Rival{leaving(wait(2, running)), leaving(holds(1, 1, running))}, 1, 1, running, nil},
		"no holder by one for waiters":      {[]locks.Rival{holds(1, 1, running)}, 1, 1, waiting, nil},
		"only holders for the running":      {[]locks.Rival{holds(1, 3, waiting), holds(2, 3, none), holds(3, 3, running)}, 3, 1, running, []int{2}},
		"the oldest":                        {[]locks.Rival{holds(3, 3, running), holds(1, 3, running), holds(2, 3, running)}, 3, 1, running, []int{1}},
		"as many as it takes":               {[]locks.Rival{holds(3, 3, running), holds(1, 3, running), holds(2, 3, running)}, 3, 2, running, []int{1, 2}},
		"nobody if it fits":                 {[]locks.Rival{holds(1, 3, running)}, 3, 2, running, nil},
		"one that leaves makes room":        {[]locks.Rival{leaving(holds(1, 2, running)), holds(2, 2, running)}, 2, 1, running, nil},
		"also if another one is in the way": {[]locks.Rival{holds(1, 1, none), holds(2, 2, running)}, 1, 1, running, []int{1}},
	} {
		c := claim(9, tt.max)
		c.Weight = tt.weight
		if got := locks.Replaced(tt.rivals, c, tt.how); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", what, got, tt.want)
		}
	}
}
