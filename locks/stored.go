package locks

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// The limits of what golock writes into a store. Others can write to a store too: golock does not
// calculate with a larger number.
const (
	MaxUnits  = 1 << 16        // the largest weight: every unit has a slot number
	maxSlot   = math.MaxInt32  // the highest slot number
	MaxNumber = int64(1) << 62 // the highest ticket and fence: golock can count on from there without an overflow
	MaxTTL    = 3650 * 24 * time.Hour
	MaxMoment = int64(math.MaxInt64 / 1000) // us since 1970, in the year 2262; in ns it fits into a Duration
)

// Stored is an entry as an engine has read it from its store. A field that the engine does not store is
// zero, which is valid.
type Stored struct {
	Claim   Claim
	Replace Replacement
	Holds   bool // the entry has slots
	Slots   []int
	Fence   int64
	TTL     time.Duration
	Hold    time.Duration
	Moments []int64 // us since 1970
}

// Check returns an error about a field that golock cannot have written. Every engine calls it for every
// entry that it reads.
func (s *Stored) Check() error {
	c := &s.Claim
	if s.TTL < 0 || s.TTL > MaxTTL {
		return fmt.Errorf("a TTL of %v", s.TTL)
	}
	if s.Hold < 0 {
		return fmt.Errorf("a hold of %v", s.Hold)
	}
	for _, n := range [...]struct {
		what               string
		value, least, most int64
	}{
		{"weight", int64(c.Weight), 1, MaxUnits},
		{"max", int64(c.Max), 0, math.MaxInt32},
		{"priority", int64(c.Priority), math.MinInt32, math.MaxInt32},
		{"ticket", c.Ticket, 0, MaxNumber},
		{"fence", s.Fence, 0, MaxNumber},
	} {
		if n.value < n.least || n.value > n.most {
			return fmt.Errorf("%s %d", n.what, n.value)
		}
	}
	for _, moment := range s.Moments {
		if moment < 0 || moment > MaxMoment {
			return fmt.Errorf("time %d", moment)
		}
	}
	switch {
	case c.Max != 0 && c.Weight > c.Max:
		return fmt.Errorf("weight %d and max %d", c.Weight, c.Max)
	case !slices.Contains([]Replacement{ReplaceNone, ReplaceWaiting, ReplaceRunning}, s.Replace):
		return fmt.Errorf("replaces %q", Printable(string(s.Replace), 40))
	}
	return s.checkSlots()
}

// checkSlots checks that a holder has as many slots as its weight, ascending and below its max.
func (s *Stored) checkSlots() error {
	units := 0
	if s.Holds {
		units = s.Claim.Weight
	}
	if len(s.Slots) != units {
		return fmt.Errorf("%d slots, which is not %d", len(s.Slots), units)
	}
	for i, slot := range s.Slots {
		if slot < 0 || i > 0 && slot <= s.Slots[i-1] {
			return fmt.Errorf("slot %d is not in order", slot)
		}
	}
	if highest := units - 1; units > 0 && s.Claim.Max > 0 && s.Slots[highest] >= s.Claim.Max {
		return fmt.Errorf("slot %d and max %d", s.Slots[highest], s.Claim.Max)
	}
	return nil
}

// InvalidEntry is an entry in the queue of a lock, or the state of the lock, that somebody other than golock
// has written or changed.
type InvalidEntry struct {
	Name string // the name of the lock; empty if it is not known
	ID   string // the ID in the store; empty for the state of the lock itself
	Ref  Ref    // zero if ID is not a valid ID
	TTL  time.Duration
	Err  error
}

// InvalidError says which entries of a store are invalid. Nobody gets a slot of their locks until they
// are removed, because they may hold. A newcomer is refused. A process that holds or waits already goes
// on, as in an outage.
type InvalidError struct{ Entries []InvalidEntry }

func (e *InvalidError) Error() string {
	i := &e.Entries[0]
	text := fmt.Sprintf("lock %q: the entry %q", Printable(i.Name, 80), Printable(i.ID, 80))
	remedy := "golock clean removes it"
	switch {
	case i.Ref != Ref{}:
		text = fmt.Sprintf("lock %q: the entry %s", Printable(i.Name, 80), i.Ref)
		remedy = fmt.Sprintf("golock break --id %s removes it, golock clean when its time is over", i.Ref)
	case i.ID == "":
		text = fmt.Sprintf("lock %q: its state", Printable(i.Name, 80))
		remedy = "golock clean removes it when nobody uses the lock"
	}
	text += fmt.Sprintf(" is not what golock has written: %v (%s)", i.Err, remedy)
	if more := len(e.Entries) - 1; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// AsInvalid returns the invalid entries of an error, or nil if it is another error.
func AsInvalid(err error) []InvalidEntry {
	switch e := err.(type) {
	case *InvalidError:
		return e.Entries
	case interface{ Unwrap() error }:
		return AsInvalid(e.Unwrap())
	case interface{ Unwrap() []error }:
		var all []InvalidEntry
		for _, one := range e.Unwrap() {
			all = append(all, AsInvalid(one)...)
		}
		return all
	}
	return nil
}

// Invalid returns the error of invalid entries, or nil if there are none.
func Invalid(entries []InvalidEntry) error {
	if len(entries) == 0 {
		return nil
	}
	return &InvalidError{entries}
}
