package locks

import "time"

// Keeper says who stays with a slot while it is held.
type Keeper int

// The keepers.
const (
	KeptByHolder  Keeper = iota // a process that only holds the slot, such as golock acquire leaves behind
	KeptByRun                   // a golock that runs a command
	KeptByCommand               // the command, which golock has become (--exec)
	KeptByNobody                // the lease alone (acquire --for none)
)

// HasCommand reports whether the slot is for a command: nobody else may give it back while the command
// may run.
func (k Keeper) HasCommand() bool { return k == KeptByRun || k == KeptByCommand }

// HasGolock reports whether a golock process stays with the slot. It gives the slot up when it is evicted.
func (k Keeper) HasGolock() bool { return k == KeptByHolder || k == KeptByRun }

// Request is what a run asks of a store.
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

	// Command is the command that ls shows. A networked store publishes it.
	Command []string

	// HoldsLater says that Hold counts from the call of Lease.Hold, not from the grant. Without that call
	// there is no hold.
	HoldsLater bool

	// Next is the name that the run takes after this one, as ls tells it; "" if this is the last one.
	Next string

	// AtOnce says that Join may not wait at all, neither for the network nor for another process
	// that changes the store. If it would have to, Join changes nothing and returns ErrWouldBlock.
	// The Join of a networked store always would.
	AtOnce bool

	// Limits bound the time of Join on a store with leases. Other stores ignore them.
	Limits JoinLimits

	// Hooks are what Join and Wait call. A request that is sent to another process loses them.
	Hooks Hooks `json:"-"`
}

// JoinLimits limit how long Join tries a store with leases. Without them Join tries until its context ends.
type JoinLimits struct {
	// Reach limits how long Join tries a store that cannot be reached. If a server on another host takes a
	// connection, it has longer for its first answer. There is no limit if Reach is 0.
	Reach time.Duration

	// Refusals limits how long Join repeats a request that the store refuses for a temporary reason. It
	// counts from the first refusal. There is no limit if Refusals is 0.
	Refusals time.Duration

	// Total limits how long Join asks the store, whether it answers or not. There is no limit if Total is 0.
	Total time.Duration

	// LeastAnswer is the time for which Join waits in any case for the answer to a question that is under
	// way: also if Reach or Total is over.
	LeastAnswer time.Duration

	// Slowdown tells how many times slower than alone a process of this machine runs now, at least 1. Reach,
	// Refusals and LeastAnswer count the time more slowly by that factor. If Slowdown is nil, the factor
	// is 1.
	Slowdown func() float64 `json:"-"`
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

// Grant is what a holder was given.
type Grant struct {
	Ref   Ref
	Slots []int // the lowest numbers that were free, ascending, one per unit of weight
	Fence int64 // grows with every grant of the name; 0 if the store has no fences
}
