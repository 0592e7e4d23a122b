package locks

import "time"

// Keeper says who stays with a slot while it is held.
type Keeper int

// The keepers.
const (
	KeptByHolder  Keeper = iota // a process that only holds the slot, such as that of golock acquire
	KeptByRun                   // a golock that runs a command
	KeptByCommand               // the command, which golock has become (--exec)
	KeptByNobody                // the lease alone (acquire --for none)
)

// HasCommand reports whether the slot is for a command: nobody else may give it back while the command
// may run.
func (k Keeper) HasCommand() bool { return k == KeptByRun || k == KeptByCommand }

// HasGolock reports whether a golock process stays with the slot. It gives the slot up when it is evicted.
func (k Keeper) HasGolock() bool { return k == KeptByHolder || k == KeptByRun }

// Request is what a run asks of a store. Its fields are, in this order: the request itself, who asks,
// the limits of Join, and functions that Join and Wait call.
type Request struct {
	Ref     Ref
	Name    string
	Claim   Claim
	NoWait  bool          // the request does not queue: without a free slot Join returns a *BusyError
	Within  []Ref         // the enclosing runs of the same lock, outermost first
	Replace Replacement   // whom the request evicts to get ahead
	Hold    time.Duration // keep the slot for this time after the grant, whatever becomes of its holder
	Keeper  Keeper        // who stays with the slot

	// MaxQueue is the number of waiters behind which the request does not queue: Join returns a
	// *BusyError. It is nil if there is no limit.
	MaxQueue *int

	// TTL is how long a store with leases keeps the slot, or the place in the queue, without a
	// renewal or a question. Other stores ignore it.
	TTL time.Duration

	// Note says why the run is there, in the user's words (CheckNote). It is empty if the user says
	// nothing. A plain store has no room for it.
	Note string

	// User is the name of the user who asks, as a networked store publishes it. It is empty if it is
	// not known.
	User string

	// Command is what ls shows. A networked store publishes it as it is.
	Command []string

	// HoldsLater says that Hold counts from Lease.Hold, not from the grant. Without that call nothing is
	// held.
	HoldsLater bool

	// Next is the name that the run takes after this one, as ls tells it; "" if this is the last one.
	Next string

	// AtOnce has Join do only what takes no waiting of any kind, neither for the network nor
	// for others who change the store. If that is not enough, Join changes nothing and returns
	// ErrWouldBlock. A networked store can do nothing at once.
	AtOnce bool

	// Reach limits how long Join tries a store with leases that cannot be reached. If a server on another
	// host takes a connection, it has longer for its first answer. If the store answers, but refuses for a
	// reason that passes, Join repeats the request for Refusals after the first refusal. Without a limit,
	// which is 0, Join tries until ctx ends.
	Reach, Refusals time.Duration

	// Slowdown, if not nil, tells how many times slower than alone a process of this machine runs, at least
	// 1. Reach, Refusals and LeastAnswer count the time more slowly by that factor.
	Slowdown func() float64 `json:"-"`

	// JoinLimit limits how long Join asks a store with leases, whether it answers or not. If it is 0,
	// Join asks until ctx ends.
	JoinLimit time.Duration

	// LeastAnswer is the time for which Join waits in any case for the answer to a question that is under
	// way: also if Reach or JoinLimit is over.
	LeastAnswer time.Duration

	// Connected and Answered, if not nil, are called by an entry of a store with leases: when a server
	// on another host has taken a connection, and when a server has answered. After the answer the store
	// counts as reachable, however slow it is.
	Connected, Answered func() `json:"-"`

	// Progress, if not nil, is called by Join and Wait, from any goroutine, with the place in the
	// queue whenever it becomes known; 1 is the next. At 1 or 2 it is time to prepare for the
	// grant. A plain store knows no places.
	Progress func(place int) `json:"-"`

	// Quarantined, if not nil, is called by Join and Wait with the quarantine during which the store
	// grants nothing, or with nil when there is none.
	Quarantined func(*QuarantineError) `json:"-"`

	// Reason, if not nil, is called by Join and Wait with what is in the way if that is neither holders nor
	// waiters (BusyError.Reason), and with "" when there is nothing of the kind.
	Reason func(reason string) `json:"-"`

	// Made, if not nil, is called by Join with the path of a directory that the URL names and that
	// Join had to make: a misspelt path is another store.
	Made func(path string) `json:"-"`

	// StopsSoon, if not nil, is called when Join or Wait gives up: it reports whether this process is
	// about to be stopped (SIGSTOP). Then they return when the store has been told, which may take some
	// seconds: a step left half done would hold up the others. Otherwise they return without delay.
	StopsSoon func() bool `json:"-"`

	// Later, if not nil, is called by Wait, when the slot is granted, with work that can be done after
	// the start of the command. The work need not be done at all: Release does it too.
	Later func(work func()) `json:"-"`
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

// MustLeaveFirst reports whether a caller that gives up must wait until the store knows (StopsSoon).
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

// TellReason calls Reason.
func (r *Request) TellReason(reason string) {
	if r.Reason != nil {
		r.Reason(reason)
	}
}

// Grant is what a holder was given.
type Grant struct {
	Ref   Ref
	Slots []int // the lowest numbers that were free, ascending, one per unit of weight
	Fence int64 // grows with every grant of the name; 0 if the store has no fences
}
