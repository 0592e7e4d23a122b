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

// State says whether an entry waits or holds.
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
	UID      int           // the user on this machine; -1 for an entry of another machine
	User     string        // the user's name as the store has it; empty if the store has only the UID
	Command  []string      // the store may have shortened it
	Note     string        // why the run is there (Request.Note); the store may have shortened it
	Next     string        // the name that its run takes after this one (Request.Next); empty if there is none
	WaitsFor string        // holders only: the name that its run waits for meanwhile; empty if ls has not found one
	Since    time.Time     // when it began to hold or wait, on this host's wall clock; zero if that is not known
	Age      time.Duration // how long it has held or waited, or less; see SetAge
	HasAge   bool          // Age is known
	Fence    int64         // holders only
	Orphaned bool          // the holder's golock is gone; a process that it started keeps the slot
	Expires  time.Duration // stores with leases: how long it lasts from now without a renewal
	TTL      time.Duration // stores with leases: the TTL of its lease
	HeldTill time.Time     // when its hold is over; zero if it has none
	Ended    bool          // the holder has released it; it keeps the slot until HeldTill
	Evicted  string        // who evicted it, if it has not left yet; empty if nobody did
	Runs     bool          // stores with leases: the slot is for a command (Keeper.HasCommand)
	Unkept   bool          // stores with leases: no process stays with the slot (KeptByNobody)
}

// HasNoProcess reports whether only its lease holds the slot: the process that took it has ended, and no other
// process stays with it (KeptByNobody).
func (e Entry) HasNoProcess() bool { return e.Unkept && e.State == Holding && !e.Ended }

// LeaseEnd returns when the slot becomes free, on this host's clock, unless its lease is renewed. A hold may
// last longer than the lease.
func (e Entry) LeaseEnd() time.Time {
	readAt := time.Now()
	if e.HasAge { // the entry may have been read some time ago
		readAt = e.Since.Add(e.Age)
	}
	end := readAt.Add(e.Expires)
	if e.HeldTill.After(end) {
		end = e.HeldTill
	}
	return end.Round(time.Second)
}

// SetAge sets how long an entry has held or waited, as the clock of the store tells it: two wall clocks
// may differ by hours. It sets Since too, which is on this host's clock, for people to read.
func (e *Entry) SetAge(age time.Duration) {
	e.Age, e.HasAge = max(age, 0), true
	e.Since = time.Now().Add(-e.Age)
}

// Holder describes in a few words whose entry it is.
func (e Entry) Holder() string {
	who := e.Who(60)
	if !e.Since.IsZero() && !e.HasNoProcess() {
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

// Who names the process of an entry, with at most commandLimit characters of its command. Where no process
// keeps the slot, it names who took it, and until when.
func (e Entry) Who(commandLimit int) string {
	if e.HasNoProcess() {
		who := Printable(cmp.Or(e.User, "somebody"), 80) + "@" + Printable(e.Host, 80)
		return who + " without a process until " + ClockTime(e.LeaseEnd())
	}
	who := "a process that cannot be seen" // it is in another container, or of another user
	if e.PID > 0 {
		who = fmt.Sprintf("pid %d", e.PID)
	}
	if e.Orphaned {
		who = "what " + who + " left running"
	}
	// An entry with a lease may be on any host, another one in a container that shares the directory.
	if here, _ := os.Hostname(); e.Host != "" && (e.TTL > 0 || e.Host != here) {
		who += " on " + Printable(e.Host, 80)
	}
	if len(e.Command) > 0 && commandLimit > 0 {
		who += " (" + Printable(strings.Join(e.Command, " "), commandLimit) + ")"
	}
	return who
}

// ClockTime formats a moment, without the date if it is today.
func ClockTime(t time.Time) string {
	t = t.Local()
	if t.Format(time.DateOnly) == time.Now().Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// In finds the entry that r names in the result of a listing. It returns ErrLost if the listing succeeded
// without the entry. An error that only names invalid entries counts as a success, unless the entry is one of
// them. Any other error is returned.
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
	if err != nil && len(invalid) == 0 {
		return Entry{}, err
	}
	return Entry{}, ErrLost
}

// Arrange sorts entries as they are shown: by name, then holders before waiters, holders by slot and waiters
// in the order of their queue. It numbers the waiters of each name.
func Arrange(entries []Entry) {
	slices.SortStableFunc(entries, func(a, b Entry) int {
		switch {
		case a.Name != b.Name:
			return strings.Compare(a.Name, b.Name)
		case a.State == Waiting && b.State == Waiting:
			return cmp.Or(a.Claim.Compare(b.Claim), bytes.Compare(a.Ref.ID[:], b.Ref.ID[:]))
		case len(a.Slots) == 0 || len(b.Slots) == 0: // waiters, which have no slots, come last
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
