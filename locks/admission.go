package locks

import "context"

// Admission is what Join gives: a place in a queue, or a grant to be fetched. The caller of Join calls Wait
// exactly once.
type Admission interface {
	// Queued reports whether the request had to queue.
	Queued() bool

	// Replaced returns the entries that Join has evicted.
	Replaced() []Entry

	// Evicted returns an *EvictedError if the place was taken back. It does not wait. Only a store that
	// signals an eviction with SIGTERM knows it here; in other stores Wait returns the error.
	Evicted() error

	// Wait sleeps until the slot is granted; the caller must release the lease. If ctx
	// ends first, it leaves the queue and returns ctx's error without delay, or an
	// *OutageError if the store was out of reach or in quarantine then. (It tells a networked
	// store, but does not await the answer.) If the place was taken back, it returns an
	// *EvictedError. An outage does not end the waiting.
	Wait(ctx context.Context) (Lease, error)
}
