package locks

import "context"

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

	// Term is that of the last good answer: the grant's, or a renewal's. A lease whose Term
	// does not end (Term.Ends) lasts until its release.
	Term() Term

	// Renew prolongs a lease that ends by its TTL, in one attempt that ctx bounds. If the store
	// has lost its data, Renew puts the lease back where that breaks nobody's rule.
	// ErrLost is final. After any other error nothing is known; until the term ends
	// another attempt is in order, which uses a new connection.
	Renew(ctx context.Context) (Term, error)

	// Confirm is nil if the slot is still held. It is Renew with as many attempts as ctx has time
	// for.
	Confirm(ctx context.Context) error

	// Hold begins the hold of a request with HoldsLater, on the store's clock and until ctx ends. It may be
	// called more than once: the hold then counts from a call that the store has heard. A lease without
	// such a request is left as it is.
	Hold(ctx context.Context) error

	// Events gives hints that a renewal should be tried at once. The channel is never closed and
	// drops what nobody takes. It is nil if the store gives no hints.
	Events() <-chan struct{}
}

// Lasting is embedded by a lease that lasts until its release: there is nothing to renew.
type Lasting struct{}

// Term implements Lease: the lease does not end by itself.
func (Lasting) Term() Term { return Term{} }

// Renew implements Lease.
func (Lasting) Renew(context.Context) (Term, error) { return Term{}, nil }

// Confirm implements Lease: the slot is held as long as this process has it open.
func (Lasting) Confirm(context.Context) error { return nil }

// Hold implements Lease: a plain store has no holds.
func (Lasting) Hold(context.Context) error { return nil }

// Events implements Lease: there are none.
func (Lasting) Events() <-chan struct{} { return nil }
