package locks

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// State of an Entry.
type State string

// The two states of an entry.
const (
	Waiting State = "waiting"
	Holding State = "holding"
)

// Entry is one line of what a store shows.
type Entry struct {
	Name     string
	Ref      Ref
	State    State
	Slots    []int // holders only
	Position int   // waiters only; 1 is the next
	Claim    Claim
	Host     string
	PID      int
	UID      int           // of this machine's users; -1 if it is another's
	User     string        // as the store tells it; "" if it keeps the UID only
	Command  []string      // may be cut by the store
	Note     string        // why it is there (Request.Note); may be cut by the store
	Next     string        // the name that its run takes after this one (Request.Next); "" if there is none
	WaitsFor string        // holders only: the name that its run waits for meanwhile, as far as ls has looked
	Since    time.Time     // when it began to hold or wait, on this host's wall clock; zero if it is not known
	Age      time.Duration // for how long it has held or waited, or at least that; see SetAge
	HasAge   bool          // whether Age is known
	Fence    int64         // holders only
	Orphaned bool          // the holder's golock is gone; what it started keeps the slot
	Expires  time.Duration // stores with leases: how long it lasts from now without a renewal
	TTL      time.Duration // stores with leases: of its lease
	HeldTill time.Time     // until when the slot stays taken whatever becomes of its holder; zero without a hold
	Ended    bool          // nobody holds it any more, it only stays until HeldTill
	Evicted  string        // by whom it was evicted, while it has not gone yet; "": by nobody
	Runs     bool          // stores with leases: whether it is for a command (Keeper.HasCommand)
}

// SetAge sets for how long an entry has held or waited. The clock that keeps the lock tells that: two
// wall clocks may differ by hours. Since is of this host, for people to read.
func (e *Entry) SetAge(age time.Duration) {
	e.Age, e.HasAge = max(age, 0), true
	e.Since = time.Now().Add(-e.Age)
}

// Holder describes in a few words who an entry belongs to.
func (e Entry) Holder() string {
	who := e.Who(60)
	if !e.Since.IsZero() {
		who += " since " + e.Since.Local().Format("2006-01-02 15:04:05")
	}
	who += e.NoteText()
	switch {
	case e.Ended:
		who += ", held until " + ClockTime(e.HeldTill) + ", its command has ended"
	case e.Evicted != "":
		who += ", evicted by " + Printable(e.Evicted, 80)
	}
	return who
}

// NoteText is the note as messages append it to a description, or "" if there is none.
func (e Entry) NoteText() string {
	if e.Note == "" {
		return ""
	}
	return fmt.Sprintf(", note %q", Printable(e.Note, MaxNote))
}

// Who names the process of an entry, with at most limit characters of its command.
func (e Entry) Who(command int) string {
	who := "a process that cannot be seen" // of another container, or user
	if e.PID > 0 {
		who = fmt.Sprintf("pid %d", e.PID)
	}
	if e.Orphaned {
		who = "what " + who + " left running"
	}
	// Others may be on other hosts, or in containers that share a directory.
	if here, _ := os.Hostname(); e.Host != "" && (e.TTL > 0 || e.Host != here) {
		who += " on " + Printable(e.Host, 80)
	}
	if len(e.Command) > 0 && command > 0 {
		who += " (" + Printable(strings.Join(e.Command, " "), command) + ")"
	}
	return who
}

// ClockTime is a moment of today without its date.
func ClockTime(t time.Time) string {
	t = t.Local()
	if t.Format(time.DateOnly) == time.Now().Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// In gives the entry that r names in the result of a listing, or why it is not there. Invalid
// entries are listed as an error; those that r does not name do not hide that it is not there.
func (r Ref) In(entries []Entry, err error) (Entry, error) {
	for _, e := range entries {
		if e.Ref == r {
			return e, nil
		}
	}
	invalid := AsInvalid(err)
	for _, e := range invalid {
		if e.Ref == r {
			return Entry{}, Invalid([]InvalidEntry{e})
		}
	}
	if len(invalid) > 0 {
		err = nil
	}
	return Entry{}, cmp.Or(err, ErrLost)
}

// Arrange sorts entries as they are shown, by name, holders before waiters, holders by
// slot and waiters in the order of their queue, and numbers the waiters.
func Arrange(entries []Entry) {
	slices.SortStableFunc(entries, func(a, b Entry) int {
		switch {
		case a.Name != b.Name:
			return strings.Compare(a.Name, b.Name)
		case a.State == Waiting && b.State == Waiting:
			return cmp.Or(a.Claim.Compare(b.Claim), bytes.Compare(a.Ref.ID[:], b.Ref.ID[:]))
		case len(a.Slots) == 0 || len(b.Slots) == 0:
			return len(b.Slots) - len(a.Slots)
		}
		return a.Slots[0] - b.Slots[0]
	})
	for i := range entries {
		e := &entries[i]
		if e.State != Waiting {
			continue
		}
		e.Position = 1
		if i > 0 && entries[i-1].Name == e.Name {
			e.Position += entries[i-1].Position
		}
	}
}
