package locks

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

// What golock writes is valid; each value at the end of what its type can be is not.
func TestStored(t *testing.T) {
	valid := func() Stored {
		return Stored{
			Claim: Claim{Weight: 2, Max: 4, Priority: math.MinInt32, Ticket: MaxNumber}, Replace: ReplaceRunning, Holds: true,
			Slots: []int{0, 3}, Fence: MaxNumber, TTL: MaxTTL, Hold: math.MaxInt64, Moments: []int64{0, MaxMoment},
		}
	}
	s := valid()
	if err := s.Check(); err != nil {
		t.Errorf("%+v: %v", s, err)
	}
	for what, change := range map[string]func(s *Stored){
		"no weight": func(s *Stored) { s.Claim.Weight = 0 }, "weight": func(s *Stored) { s.Claim.Weight = -5 },
		"max": func(s *Stored) { s.Claim.Max = -1 }, "weight above max": func(s *Stored) { s.Claim.Max = 1 },
		"heavy": func(s *Stored) { s.Claim = Claim{Weight: MaxUnits + 1} }, "ticket": func(s *Stored) { s.Claim.Ticket = MaxNumber + 1 },
		"negative ticket": func(s *Stored) { s.Claim.Ticket = math.MinInt64 }, "fence": func(s *Stored) { s.Fence = math.MaxInt64 },
		"TTL": func(s *Stored) { s.TTL = math.MaxInt64 }, "negative TTL": func(s *Stored) { s.TTL = -1 },
		"hold": func(s *Stored) { s.Hold = math.MinInt64 }, "time": func(s *Stored) { s.Moments = []int64{MaxMoment + 1} },
		"replace": func(s *Stored) { s.Replace = "all" }, "no slots": func(s *Stored) { s.Slots = nil },
		"slots of a waiter": func(s *Stored) { s.Holds = false }, "slot twice": func(s *Stored) { s.Slots = []int{0, 0} },
		"slot order": func(s *Stored) { s.Slots = []int{3, 0} }, "slot above max": func(s *Stored) { s.Slots = []int{0, 4} },
		"negative slot": func(s *Stored) { s.Slots = []int{-1, 0} },
	} {
		s := valid()
		if change(&s); s.Check() == nil {
			t.Errorf("%s: %+v is valid", what, s)
		}
	}
}

// With whatever is valid the rule of admission can be computed, on 32 bits too.
func FuzzStored(f *testing.F) {
	f.Add(2, 4, 0, int64(1), "0,3", int64(2), int64(30e9), int64(0), int64(1))
	f.Add(-5, 0, math.MaxInt32, int64(math.MaxInt64), "9223372036854775807", int64(-1), int64(9e18), int64(-1), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, weight, limit, priority int, ticket int64, text string, fence, ttl, hold, moment int64) {
		slots, err := ParseSlots(text, min(max(weight, 0), MaxUnits))
		if err != nil {
			return
		}
		s := Stored{
			Claim: Claim{Weight: weight, Max: limit, Priority: priority, Ticket: ticket}, Holds: len(slots) > 0, Slots: slots,
			Fence: fence, TTL: time.Duration(ttl), Hold: time.Duration(hold), Moments: []int64{moment},
		}
		if s.Check() != nil {
			return
		}
		if s.Claim.Ticket+1 < s.Claim.Ticket || s.Fence+1 < s.Fence || s.TTL < 0 || time.Duration(moment)*time.Microsecond < 0 {
			t.Errorf("%+v is valid", s)
		}
		free := FreeSlots(func(slot int) bool { return slices.Contains(slots, slot) }, min(weight, 100))
		if Admits([]Claim{s.Claim}, s.Claim) && limit > 0 && free[len(free)-1] >= limit {
			t.Errorf("%+v: slot %v", s, free)
		}
	})
}

// Slots are read in no more memory than they may take, and as they are written.
func FuzzSlots(f *testing.F) {
	for _, text := range []string{"0,3-5", "9223372036854775807", "1-9223372036854775807", "2147483647", "2147483646-2147483647", "-", "0,0"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const most = 1000
		slots, err := ParseSlots(text, most)
		switch {
		case len(slots) > most || err != nil && slots != nil:
			t.Errorf("%q is read as %d slots, %v", text, len(slots), err)
		case err == nil && slices.IsSorted(slots):
			again, err := ParseSlots(FormatSlots(slots), most)
			if err != nil || !slices.Equal(again, slots) {
				t.Errorf("%q is written as %q: %v", text, FormatSlots(slots), err)
			}
		}
	})
}

// A listing with invalid entries says of another one that it is not there.
func TestInvalidError(t *testing.T) {
	ref, other := Ref{Key: KeyOf("x"), ID: ID{1}}, Ref{Key: KeyOf("x"), ID: ID{2}}
	err := fmt.Errorf("store: %w", errors.Join(Invalid([]InvalidEntry{{Name: "x", ID: ref.ID.String(), Ref: ref, Err: errors.New("weight -5")}})))
	if _, got := ref.In(nil, err); len(AsInvalid(got)) != 1 {
		t.Errorf("the invalid one: %v", got)
	}
	if _, got := other.In(nil, err); !errors.Is(got, ErrLost) {
		t.Errorf("another one: %v", got)
	}
	if _, got := other.In([]Entry{{Ref: other}}, err); got != nil {
		t.Errorf("a valid one: %v", got)
	}
}

// Times at the end of what they can be do not wrap.
func TestInstantsAtTheEnd(t *testing.T) {
	const last = Instant(math.MaxInt64)
	if got := Instant(1).Add(math.MaxInt64); got != last {
		t.Errorf("Add: %d", got)
	}
	if got := last.Sub(-1); got != math.MaxInt64 {
		t.Errorf("Sub: %d", got)
	}
	if got := Instant(math.MinInt64).Sub(1); got != math.MinInt64 {
		t.Errorf("Sub: %d", got)
	}
	if Instant(5).Add(-7) != -2 || Instant(5).Sub(7) != -2 {
		t.Error("small times are wrong")
	}
}
