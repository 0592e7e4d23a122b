// Package locks is the contract between the runner and the stores: what is
// asked of a store (Request), what it gives (Ticket, Lease, Grant), what it
// shows (Entry), what it can do (Traits), and the admission rule (rule.go).
//
// A name in a store has an ordered queue of entries. An entry waits or holds;
// only the first waiter may be admitted.
package locks

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// Store is one place where locks live. Its type tells what it can do. Opening one does
// no I/O; errors of the place itself (unreachable, refused, not writable) come from its
// methods, which several goroutines may call.
type Store interface {
	// Join puts one entry into the queue of r.Name, in one atomic step. It never waits
	// for a slot: the ticket is granted already, or queued. (In a quarantine the Wait of
	// a request that does not queue lasts until that is over.) With a ctx that has ended
	// it does what takes no waiting of any kind, or returns ctx's error. A store that
	// cannot be reached is tried again until ctx ends.
	//
	// Errors: *BusyError if the request cannot be granted now and may not wait, or if an
	// enclosing run holds the name and no slot is free; *OutageError if ctx ended before
	// the store was reached, or it refuses for a reason that passes. Any other error means
	// that the store could not be used. After an error nothing of the request is left in
	// the store. A networked store that could not be told of it keeps an entry for its TTL.
	Join(ctx context.Context, r Request) (Ticket, error)

	// Entries gives the live entries of one name, or of all names ("") name by name:
	// holders first, then waiters in their order. It changes nothing. What was read before
	// an error is returned too.
	Entries(ctx context.Context, name string) ([]Entry, error)

	// Examine checks, for doctor, everything that a promise depends on. It may take and
	// release the slot of a name that nobody else uses; nothing stays behind. An error
	// says that the store could not be examined at all; findings before it are returned
	// too. ttl is that of the runs in question.
	Examine(ctx context.Context, ttl time.Duration) ([]Finding, error)

	// Traits says what no type states. It does no I/O.
	Traits() Traits

	// URL is the store's address without secrets. It opens the same store again.
	URL() string

	// Close closes what the store has open. It comes after the release of its leases.
	Close() error
}

// QueueStore is a Store that serves in strict order and keeps what the kernel does
// not know: priorities, holds, evictions.
type QueueStore interface {
	Store

	// Find gives the live entry that ref names, or ErrLost. It changes nothing.
	Find(ctx context.Context, ref Ref) (Entry, error)

	// Evict marks an entry: by says who wants it gone, in words for its owner. A waiter
	// loses its place at once; its Wait ends with an *EvictedError. A holder's entry
	// stays until its golock has stopped the command and released it, or its time is
	// over; its owner's Renew ends with an *EvictedError. A hold without a process
	// (Request.Hold) ends at once, that of a holder with its release.
	//
	// ErrLost: there is no such entry. After any other error its owner may not have been
	// told; the mark stays if it was made. A second eviction changes nothing, but tries
	// again what failed in the first.
	Evict(ctx context.Context, ref Ref, by string) error

	// Sweep removes what is dead or unused and at least olderThan old, of one name or,
	// if that is empty, of all. It returns how many things that were. It never removes
	// what is live, with any number of sweepers and users at once.
	Sweep(ctx context.Context, name string, olderThan time.Duration) (removed int, err error)

	// Forget removes what is left of a name. It is for a name of the caller's own that
	// nobody uses now or later.
	Forget(ctx context.Context, name string) error
}

// BatchEvictor is a QueueStore that evicts many entries of one name in one step.
type BatchEvictor interface {
	QueueStore

	// EvictAll is Evict for each of refs, which are of one key. It returns an error, or nil, for each.
	EvictAll(ctx context.Context, refs []Ref, by string) []error
}

// UnprotectedLister is a Store that sees a command which golock has become (Request.NoGolock) and which
// has closed the descriptor of its slot: the command runs on, and the slot is free.
type UnprotectedLister interface {
	Store

	// Unprotected describes these commands, of one name or of all names (""). It changes nothing. A
	// later run of the name removes what tells of them.
	Unprotected(ctx context.Context, name string) ([]Entry, error)
}

// LeaseStore is a QueueStore whose grants expire unless they are renewed: it cannot
// see whether a holder lives. Its leases are RenewableLeases.
type LeaseStore interface {
	QueueStore

	// Attach gives the lease that ref names, also in another process than the one that
	// took it. It asks the store nothing; the lease's methods return ErrLost if it is
	// gone.
	Attach(ref Ref) RenewableLease

	// Warnings are what the store has found out, while it was used, that makes its
	// promises weaker, or, if waiting, that makes who waits hear late of its turn: a line each.
	Warnings(waiting bool) []string
}

// IsPlain reports whether a store is one kernel lock: its URL says which, and a name is
// only a label. Other tools may use the same lock.
func IsPlain(s Store) bool {
	_, ok := s.(QueueStore)
	return !ok
}

// HasLeases reports whether a store is a LeaseStore. Others see by themselves who holds.
func HasLeases(s Store) bool {
	_, ok := s.(LeaseStore)
	return ok
}

// Holds is nil if the entry that ref names holds a slot, ErrLost or an *EvictedError if it
// does not, or not any more. After any other error nothing is known.
func Holds(ctx context.Context, s QueueStore, ref Ref) error {
	e, err := s.Find(ctx, ref)
	switch {
	case err != nil:
		return err
	case e.State != Holding || e.Ended:
		return ErrLost
	case e.Evicted != "":
		return &EvictedError{By: e.Evicted}
	}
	return nil
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

// Ticket is a place in a queue, or a grant to be fetched. The caller of Join calls Wait
// exactly once.
type Ticket interface {
	// Queued reports whether the ticket had to queue.
	Queued() bool

	// Replaced are those that were evicted when it was joined.
	Replaced() []Entry

	// Evicted is as a Lease's, of the place in the queue.
	Evicted() error

	// Wait sleeps until the slot is granted; the caller must release the lease. If ctx
	// ends first, it leaves the queue and returns ctx's error without delay, or an
	// *OutageError if the store was out of reach or in quarantine then. (A networked
	// store is told, but its answer is not awaited.) A place that was taken back gives
	// an *EvictedError. An outage does not end the waiting.
	Wait(ctx context.Context) (Lease, error)
}

// Lease is a held slot. Its methods may be called from several goroutines.
type Lease interface {
	// Grant says what was given.
	Grant() Grant

	// Files are descriptors to hand to the command under the same numbers, nil where
	// there are none: whoever inherits them keeps the slot when the holder dies without
	// releasing it. They are close-on-exec, and the lease owns them.
	Files() []int

	// Evicted is an *EvictedError if the slot was taken back, in a store that tells its
	// owners by SIGTERM only. It does not wait.
	Evicted() error

	// Release gives the slot back, until ctx ends, or in two seconds if it has no deadline. It
	// may be called more than once.
	Release(ctx context.Context) error
}

// RenewableLease is a Lease of a LeaseStore. It ends by itself unless it is renewed.
type RenewableLease interface {
	Lease

	// Term is that of the last good answer: the grant's, or a renewal's.
	Term() Term

	// Renew prolongs the lease by its TTL, in one attempt that ctx bounds. If the store
	// has lost its data, Renew puts the lease back where that breaks nobody's rule.
	// ErrLost is final. After any other error nothing is known; until the term ends
	// another attempt is in order, which uses a new connection.
	Renew(ctx context.Context) (Term, error)

	// Confirm is Renew with as many attempts as ctx has time for, for who asks whether the
	// slot is still held.
	Confirm(ctx context.Context) error

	// Events gives hints that a renewal should be tried at once. The channel
	// is never closed and drops what nobody takes.
	Events() <-chan struct{}
}

// Settler is a Lease of the local queue. Settle does what can wait until the command has
// started. Nothing depends on when it is called, or whether; Release does it too.
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
	Within []Ref // the enclosing runs of the same lock, outermost first

	MaxQueue *int          // *BusyError if it would have to wait and this many wait already; nil: no limit
	Replace  Replacement   // whom it evicts to get ahead
	Hold     time.Duration // keep the slot until this long after the grant, whatever becomes of its holder
	NoGolock bool          // no golock stays to heed an eviction: it becomes the command, or leaves the slot to its lease

	// TTL is how long a store with leases keeps the slot, or the place in the queue,
	// without a sign of life. Other stores ignore it.
	TTL time.Duration

	// Reach bounds how long Join tries a store with leases that does not answer. One that answers, but
	// refuses for a reason that passes, is asked for Refusals from then on. One that only takes
	// connections has so long for its first answer, too. 0 is until ctx ends.
	Reach, Refusals time.Duration

	// Connected and Answered, if not nil, are called by an entry of a store with leases: when its
	// server has taken a connection, and when it has answered. From the latter on the store is there,
	// however slow it is.
	Connected, Answered func() `json:"-"`

	// Runs says that the slot is for a command, which only its own golock can end:
	// nobody else may give the slot back.
	Runs bool

	// User is the name of the user who asks, as a networked store publishes it; "": it is not known.
	User string

	// Command is what ls shows. A networked store publishes it as it is.
	Command []string

	// Progress, if not nil, is told the place in the queue whenever it becomes known, by
	// Join and Wait and from any goroutine; 1 is the next. At 1 or 2 it is time to prepare
	// for the grant. A plain store knows no places.
	Progress func(place int) `json:"-"`

	// Made, if not nil, is told by Join the path of a directory that the URL names and that
	// Join had to make: a misspelt path is another store.
	Made func(path string) `json:"-"`

	// Quarantined, if not nil, is told, in the same way, that the store gives no slots
	// to anybody for now.
	Quarantined func(*QuarantineError) `json:"-"`
}

// TellMade calls Made.
func (r *Request) TellMade(path string) {
	if r.Made != nil {
		r.Made(path)
	}
}

// TellPlace calls Progress.
func (r *Request) TellPlace(place int) {
	if r.Progress != nil {
		r.Progress(place)
	}
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
	UID      int           // of this machine's users; -1 if it is another's
	User     string        // as the store tells it; "" if it keeps the UID only
	Command  []string      // may be cut by the store
	Since    time.Time     // when it began to hold or wait, on this host's wall clock; zero: not known
	Age      time.Duration // for how long it has held or waited, or at least that; see SetAge
	HasAge   bool          // whether Age is known
	Fence    int64         // holders only
	Orphaned bool          // the holder's golock is gone; what it started keeps the slot
	Expires  time.Duration // stores with leases: how long it lasts from now without a renewal
	TTL      time.Duration // stores with leases: of its lease
	HeldTill time.Time     // until when the slot stays taken whatever becomes of its holder; zero: not at all
	Ended    bool          // nobody holds it any more, it only stays until HeldTill
	Evicted  string        // by whom it was evicted, while it has not gone yet; "": by nobody
	Runs     bool          // stores with leases: as in the Request
}

// Traits are what the type of a store does not state, so that a flag it cannot honour
// is refused before anything is joined.
type Traits struct {
	MaxUnits int // largest max and weight the store can count; 0: no limit

	// Reasons why something cannot be asked, in words for who asks for it; "" where it
	// can: a max above MaxUnits, a weight above 1, no max at all.
	NoMax, NoWeight, NoShared string

	// InheritorsKeep says that a process that has inherited a slot may keep it after its release.
	InheritorsKeep bool
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
	switch {
	case e.Ended:
		who += ", held until " + ClockTime(e.HeldTill) + ", its command has ended"
	case e.Evicted != "":
		who += ", evicted by " + Printable(e.Evicted, 80)
	}
	return who
}

// Who names the process of an entry, with at most so many characters of its command.
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
