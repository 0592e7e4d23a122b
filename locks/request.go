package locks

import "time"

// Keeper says who stays with a slot while it is held.
type Keeper int

// The keepers.
const (
	KeptByHolder  Keeper = iota // a process that only holds the slot, as that of golock acquire
	KeptByRun                   // a golock that runs a command
	KeptByCommand               // the command, which golock has become (--exec)
	KeptByNobody                // the lease alone (acquire --for none)
)

// HasCommand reports whether the slot is for a command, which only its own golock can end: nobody
// else may give the slot back.
func (k Keeper) HasCommand() bool { return k == KeptByRun || k == KeptByCommand }

// HasGolock reports whether a golock stays, which heeds an eviction.
func (k Keeper) HasGolock() bool { return k == KeptByHolder || k == KeptByRun }

// Request is everything that a store decides with.
type Request struct {
	Ref    Ref
	Name   string
	Claim  Claim
	NoWait bool  // do not queue: *BusyError instead
	Within []Ref // the enclosing runs of the same lock, outermost first

	MaxQueue *int          // *BusyError if it would have to wait and this many wait already; nil if there is no limit
	Replace  Replacement   // whom it evicts to get ahead
	Hold     time.Duration // keep the slot until this long after the grant, whatever becomes of its holder
	Keeper   Keeper        // who stays with the slot

	// HoldsLater says that Hold counts from Lease.Hold, not from the grant. Without that call nothing is
	// held.
	HoldsLater bool

	// Next is the name that the run takes after this one, as ls tells it; "" if this is the last one.
	Next string

	// AtOnce has Join do only what takes no waiting of any kind, neither for the network nor
	// for others who change the store. If that is not enough, Join changes nothing and returns
	// ErrWouldBlock. A networked store can do nothing at once.
	AtOnce bool

	// TTL is how long a store with leases keeps the slot, or the place in the queue,
	// without a sign of life. Other stores ignore it.
	TTL time.Duration

	// Reach bounds how long Join tries a store with leases that cannot be reached. One that takes a
	// connection has longer for its first answer. A store that answers, but refuses for a reason that
	// passes, is asked for Refusals from the first refusal on. 0 is until ctx ends.
	Reach, Refusals time.Duration

	// JoinLimit bounds how long Join asks a store with leases, whether it answers or not. 0 is
	// until ctx ends.
	JoinLimit time.Duration

	// Connected and Answered, if not nil, are called by an entry of a store with leases: when its
	// server has taken a connection, and when it has answered. After the answer the store counts as
	// reachable, however slow it is.
	Connected, Answered func() `json:"-"`

	// Note says why the run is there, in the user's words (CheckNote); "": the user says nothing. A plain
	// store has no room for it.
	Note string

	// User is the name of the user who asks, as a networked store publishes it; "" if it is not known.
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

	// StopsSoon, if not nil, is asked when Join or Wait gives up: it reports whether this process is
	// about to be stopped (SIGSTOP). Then they return when the store has been told, which may take some
	// seconds: a step left half done would hold up the others. Otherwise they return without delay.
	StopsSoon func() bool `json:"-"`

	// Later, if not nil, takes what Wait has left to do when the slot is granted, and what can be
	// done when the command has started. Nothing depends on when it is done, or whether; Release does
	// it too.
	Later func(work func()) `json:"-"`

	// Quarantined, if not nil, is told, in the same way, that the store gives no slots
	// to anybody for now.
	Quarantined func(*QuarantineError) `json:"-"`
}

// GrantHold is the hold that counts from the grant.
func (r *Request) GrantHold() time.Duration {
	if r.HoldsLater {
		return 0
	}
	return max(r.Hold, 0)
}

// LaterHold is the hold that counts from Lease.Hold; 0 if there is none.
func (r *Request) LaterHold() time.Duration {
	if r.HoldsLater {
		return max(r.Hold, 0)
	}
	return 0
}

// TellMade calls Made.
func (r *Request) TellMade(path string) {
	if r.Made != nil {
		r.Made(path)
	}
}

// MustLeaveFirst reports whether who gives up must wait until the store knows (StopsSoon).
func (r *Request) MustLeaveFirst() bool { return r.StopsSoon != nil && r.StopsSoon() }

// DoLater calls Later.
func (r *Request) DoLater(work func()) {
	if r.Later != nil {
		r.Later(work)
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
	Fence int64 // grows with every grant of the name; 0 if the store has no fences
}
