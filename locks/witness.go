package locks

import "context"

// Witness is a Store that sees by itself, in any process, who holds: the one
// that took the slot need not be asked.
type Witness interface {
	Store

	// Holds says whether the entry that ref names holds a slot: nil if so,
	// ErrLost (or an *EvictedError) if not, or not any more. After any other
	// error nothing is known. It changes nothing.
	Holds(ctx context.Context, ref Ref) error
}
