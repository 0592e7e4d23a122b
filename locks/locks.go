// Package locks is the contract between the runner and the stores: what is
// asked of a store (Request), what it gives (Ticket, Lease, Grant), what it
// shows (Entry), what it can do (Traits), and the one admission rule that all
// of them apply (rule.go).
//
// A name in a store has an ordered queue of entries. An entry waits or holds;
// only the first waiter may be admitted. How waiters sleep, how they are woken
// and what keeps a holder's claim alive is each store's own business.
package locks

import (
	"context"
	"fmt"
	"iter"
	"runtime/debug"
	"strings"
	"time"
)

// Store is one place where locks live. Opening one does no I/O; errors of the
// place itself (unreachable, refused, not writable) come from its methods.
// A Store is safe for use by several goroutines.
type Store interface {
	// Join puts one entry into the queue of r.Name, in one atomic step. It
	// never waits for a slot: the ticket it returns is granted already or
	// queued. With a ctx that has ended it does what takes no waiting of any
	// kind, or returns ctx's error. A store that cannot be reached is tried
	// again until ctx ends. Errors: *BusyError if the request cannot be granted
	// now and may not wait, *NestedError if an enclosing run holds the name and
	// there is no free slot, *OutageError if ctx ended before the store was
	// reached; any other error means that the store could not be used. After
	// an error nothing of the request is left in the store, except by a
	// networked one that could not be told; there it ends with its TTL.
	Join(ctx context.Context, r Request) (Ticket, error)

	// Entries yields the live entries of one name, or of all names ("") name
	// by name: holders first, then waiters in their order. It changes nothing.
	// After an error the sequence ends.
	Entries(ctx context.Context, name string) iter.Seq2[Entry, error]

	// Traits says what the store can do. It does no I/O.
	Traits() Traits

	// URL is the store's address without secrets, in a form that opens the
	// same store again.
	URL() string

	// Close gives back what the store itself has open. Leases stay valid.
	Close() error
}

// Ticket is a place in a queue, or a grant that waits to be fetched. It
// belongs to the caller of Join, who calls Wait exactly once.
type Ticket interface {
	// Queued reports whether the ticket had to queue.
	Queued() bool

	// Wait sleeps until the slot is granted. If ctx ends first it leaves the
	// queue and returns ctx's error without delay, or an *OutageError if the
	// store was out of reach then, or a *BusyError with a Reason if something
	// other than holders and waiters was in the way; the place is gone (a networked store is told
	// so, its answer not awaited). A place that was taken back gives an
	// *EvictedError. An outage does not end the waiting. The
	// returned lease must be released by the caller.
	Wait(ctx context.Context) (Lease, error)
}

// Lease is a held slot.
type Lease interface {
	// Grant says what was given.
	Grant() Grant

	// Release gives the slot back. It may be called more than once.
	Release(ctx context.Context) error
}

// Inherited is a Lease that lives in open files: whoever has inherited them
// keeps the slot when the holder dies without releasing it.
type Inherited interface {
	Lease

	// Files are the descriptors to hand to the command under the same numbers.
	// They are close-on-exec; clearing that for one spawn is up to the caller.
	// The lease owns them.
	Files() []int
}

// Settler is a Lease with something to do that can wait: the first moments
// after a grant belong to the start of the command. Nothing depends on when
// Settle is called, or whether; Release does it too.
type Settler interface {
	Lease
	Settle()
}

// Request is everything that a store decides with.
type Request struct {
	Ref    Ref
	Name   string
	Claim  Claim
	NoWait bool  // do not queue: *BusyError instead
	Within []Ref // the enclosing runs, outermost first

	MaxQueue *int          // *BusyError if it would have to wait and this many wait already; nil: no limit
	Replace  Replacement   // whom it puts out of its way
	Hold     time.Duration // keep the slot until this long after the grant, whatever becomes of its holder
	NoGolock bool          // no golock stays with the holder, be it that it becomes its command or has nothing but its lease: nobody there heeds an eviction

	// TTL is how long a leased store keeps the slot, or the place in the
	// queue, without a sign of life. Others do not look at it.
	TTL time.Duration

	// Runs says that the slot is for a command, which only its own golock can end:
	// nobody else may give the slot back.
	Runs bool

	// What ls shows. A networked store publishes it as it stands.
	Command []string
}

// Grant is what a holder was given.
type Grant struct {
	Ref   Ref
	Slots []int // the lowest numbers that were free, ascending, one per unit of weight
	Fence int64 // grows with every grant of the name; 0: the store has none
}

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
	UID      int      // of this machine's users; -1 if it is another's
	User     string   // as the store tells it; "" if it keeps the UID only
	Command  []string // may be cut by the store
	Since    time.Time
	Fence    int64         // holders only
	Orphaned bool          // the holder's golock is gone; what it started keeps the slot
	Expires  time.Duration // leased stores: how long it lasts from now without a renewal
	TTL      time.Duration // leased stores: of its lease
	HeldTill time.Time     // until when the slot stays taken whatever becomes of its holder; zero: not at all
	Ended    bool          // nobody holds it any more, it only stays until HeldTill
	Evicted  string        // by whom it was told to go, but has not gone yet; "": by nobody
	Runs     bool          // leased stores: as in the Request
}

// Traits declares what a store can do, so that a flag it cannot honour is
// refused before anything is joined.
type Traits struct {
	Inherits bool // leases implement Inherited: --exec and --close have a meaning
	Leased   bool // leases implement Leased, the store Attacher: --ttl and --on-lost have a meaning
	MaxUnits int  // largest max and weight the store can count; 0: no limit
	Queue    bool // strict order: --priority, --max-queue and --replace have a meaning
	Hold     bool // --hold has a meaning
}

// BusyError says that there was no slot to be had now.
type BusyError struct {
	Name    string
	Holders []Entry // who holds it, as far as the store knows
	Waiters int     // how many wait already
	Full    bool    // and no more than these may (Request.MaxQueue)
	Reason  string  // set if something other than holders and waiters is in the way
}

func (e *BusyError) Error() string {
	if e.Reason != "" {
		return fmt.Sprintf("%q is busy: %s", e.Name, e.Reason)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%q is busy", e.Name)
	for i, h := range e.Holders {
		if i == 3 {
			fmt.Fprintf(&b, " and %d more", len(e.Holders)-i)
			break
		}
		sep := ": held"
		if i > 0 {
			sep = ","
		}
		fmt.Fprintf(&b, "%s by %s", sep, h.Holder())
	}
	if e.Waiters > 0 {
		fmt.Fprintf(&b, "; %d waiting", e.Waiters)
	}
	if e.Full {
		b.WriteString(", the queue is full")
	}
	return b.String()
}

// Holder describes in a few words who an entry belongs to.
func (e Entry) Holder() string {
	who := "a process that cannot be seen" // of another container, or user
	if e.PID > 0 {
		who = fmt.Sprintf("pid %d", e.PID)
	}
	if e.Orphaned {
		who = "what " + who + " left running"
	}
	if e.TTL > 0 && e.Host != "" { // others may be on other hosts
		who += " on " + Printable(e.Host, 80)
	}
	if len(e.Command) > 0 {
		who += " (" + Printable(strings.Join(e.Command, " "), 60) + ")"
	}
	if !e.Since.IsZero() {
		who += " since " + e.Since.Local().Format("2006-01-02 15:04:05")
	}
	switch {
	case e.Ended:
		who += ", held until " + clockTime(e.HeldTill) + ", its command has ended"
	case e.Evicted != "":
		who += ", told to go by " + Printable(e.Evicted, 80)
	}
	return who
}

// clockTime is a moment of today without its date.
func clockTime(t time.Time) string {
	t = t.Local()
	if t.Format(time.DateOnly) == time.Now().Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// NestedError says that a run asked for a name that a run around it holds, and
// that waiting for it would be waiting for itself.
type NestedError struct {
	Name   string
	Inside Ref
	Busy   *BusyError
}

func (e *NestedError) Error() string {
	return fmt.Sprintf("%q is held by the enclosing run %s and has no free slot: waiting here would wait for ever", e.Name, e.Inside)
}

// Unwrap gives the *BusyError: a nested run without a slot is busy too.
func (e *NestedError) Unwrap() error { return e.Busy }

// PanicError carries a panic from a store's goroutine to whoever waits for it,
// who releases what is held before anything else.
type PanicError struct {
	Value any
	Stack []byte
}

// NewPanicError is called in the deferred function that recovered v.
func NewPanicError(v any) *PanicError { return &PanicError{Value: v, Stack: debug.Stack()} }

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Printable shortens s to at most limit runes on one line, with control
// characters replaced: what others wrote into a store must not steer a
// terminal.
func Printable(s string, limit int) string {
	var b strings.Builder
	n := 0
	for _, r := range s {
		if n == limit {
			b.WriteString("…")
			break
		}
		if Steers(r) {
			r = '�'
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}

// Steers reports whether a character does something to a terminal, or to the
// order in which text is read, instead of being seen: control characters, those
// of C1 among them, ends of lines, and what turns the direction of writing
// (Unicode Standard Annex 9).
func Steers(r rune) bool {
	switch {
	case isControl(r), r == '\u061c', r == '\u200e', r == '\u200f', r >= '\u2028' && r <= '\u202e', r >= '\u2066' && r <= '\u2069':
		return true
	}
	return false
}
