package runner

import (
	"os"
	"testing"

	"golock/locks"
)

// A name of an enclosing run is refused before the run waits for another one, unless it has a free slot.
func TestRefusalInside(t *testing.T) {
	ref := func(id byte) locks.Ref { return locks.Ref{ID: locks.ID{id}} }
	outer, inner, other := ref(1), ref(2), ref(3)
	holds := func(r locks.Ref, max int) locks.Entry {
		return locks.Entry{Ref: r, State: locks.Holding, Claim: locks.Claim{Weight: 1, Max: max}, PID: os.Getpid()}
	}
	waits := func(priority int) locks.Entry {
		return locks.Entry{Ref: ref(4), State: locks.Waiting, Claim: locks.Claim{Weight: 1, Max: 3, Priority: priority}}
	}
	ended, elsewhere := holds(outer, 1), holds(outer, 1)
	ended.Ended, elsewhere.PID = true, 1<<30
	for what, c := range map[string]struct {
		entries []locks.Entry
		max     int
		isLocal bool
		inside  locks.Ref // zero if it is not refused
	}{
		"full":                        {[]locks.Entry{holds(outer, 1)}, 1, true, outer},
		"full, the outer is shared":   {[]locks.Entry{holds(outer, 0)}, 1, false, outer},
		"full of both":                {[]locks.Entry{holds(inner, 2), holds(outer, 2)}, 2, true, inner},
		"a slot is free":              {[]locks.Entry{holds(outer, 2)}, 2, true, locks.Ref{}},
		"a free slot is awaited":      {[]locks.Entry{holds(outer, 3), waits(0)}, 3, true, outer},
		"somebody waits behind":       {[]locks.Entry{holds(outer, 3), waits(-1)}, 3, true, locks.Ref{}},
		"another one holds":           {[]locks.Entry{holds(other, 1)}, 1, true, locks.Ref{}},
		"only the hold of it is left": {[]locks.Entry{ended}, 1, true, locks.Ref{}},
		"a job of at(1)":              {[]locks.Entry{elsewhere}, 1, true, locks.Ref{}},
		"on another host":             {[]locks.Entry{elsewhere}, 1, false, outer},
		"nobody":                      {nil, 1, true, locks.Ref{}},
	} {
		r := &locks.Request{Name: "n", Claim: locks.Claim{Weight: 1, Max: c.max}, Within: []locks.Ref{outer, inner}}
		got := locks.Ref{}
		if busy := refusalInside(r, c.entries, c.isLocal); busy != nil {
			got = *busy.Inside
		}
		if got != c.inside {
			t.Errorf("%s: refused for %v, want %v", what, got, c.inside)
		}
	}
}
