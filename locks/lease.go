package locks

import "context"

// Lease is a held slot. Its methods may be called from several goroutines.
type Lease interface {
	// Grant says what was given.
	Grant() Grant

	// Files returns descriptors for the command, under the same numbers, or nil if the store has
	// none: a process that inherits them keeps the slot when the holder dies without releasing
	// it. They are close-on-exec, and the lease owns them.
	Files() []int

	// Evicted returns an *EvictedError if the slot was taken back. It does not wait. Only a store that
	// signals an eviction with SIGTERM knows it here; in other stores Renew returns the error.
	Evicted() error

	// Release gives the slot back. It tries until ctx ends, or for two seconds if ctx has no
	// deadline. It may be called more than once.
	Release(ctx context.Context) error

	// Term returns what the last good answer of the store promises, which was the grant or the answer
	// to a renewal. A lease whose Term does not end (Term.Ends) lasts until its release.
	Term() Term

	// Renew prolongs a lease that ends by its TTL, in one attempt that ctx bounds. If the store
	// has lost its data, Renew restores the lease, unless that would break the rule of admission.
	// ErrLost is final. After any other error the caller may try again until the term ends; the
	// next attempt uses a new connection. With an error the term is zero, except that a Lease which
	// combines the leases of several names returns their present term if some of them were renewed.
	Renew(ctx context.Context) (Term, error)

	// Confirm returns nil if the slot is still held. It repeats Renew until it gets an answer or
	// ctx ends.
	Confirm(ctx context.Context) error

	// Hold begins the hold of a request with HoldsLater. It tries until ctx ends. The hold counts on the
	// store's clock. Hold may be called more than once: the hold then counts from a call that the store has
	// heard. It does nothing for a request without HoldsLater.
	Hold(ctx context.Context) error

	// Events gives hints that a renewal should be tried at once. The channel is never closed and
	// drops hints that nobody takes. It is nil if the store gives no hints.
	Events() <-chan struct{}
}

// Lasting implements the renewals of a lease that lasts until its release. Such a lease embeds it.
type Lasting struct{}

// Term implements Lease: the lease does not end by itself.
func (Lasting) Term() Term { return Term{} }

// Renew implements Lease.
func (Lasting) Renew(context.Context) (Term, error) { return Term{}, nil }

// Confirm implements Lease: the slot is held as long as this process has it open.
func (Lasting) Confirm(context.Context) error { return nil }

// Hold implements Lease: a plain store has no holds.
func (Lasting) Hold(context.Context) error { return nil }

// Events implements Lease: the lease gives no hints.
func (Lasting) Events() <-chan struct{} { return nil }
