package lease

import (
	"context"
	"sync"
	"time"

	"golock/locks"
	"golock/locks/queue"
)

// Lease implements locks.Lease, for a slot of this process or of another one
// (Attach).
type Lease struct {
	entry Entry
	store string

	mu       sync.Mutex // guards what follows; not held while the store is asked
	grant    locks.Grant
	term     locks.Term
	epoch    string // "": not known
	released bool   // and the store knows
	doubtful bool   // an attempt to release it failed, which may have done so
}

// releaseLimit bounds a release whose caller has no limit. Without an answer the lease expires.
const releaseLimit = 2 * time.Second

func newLease(store string, e Entry, a Answer, sent locks.Instant) *Lease {
	return &Lease{store: store, entry: e, grant: a.Grant, epoch: a.Epoch, term: a.term(sent)}
}

// Attach implements locks.Leases. The first renewal tells what is not known yet, as the
// TTL, slots and fence.
func (s *Engine) Attach(ref locks.Ref) locks.Lease {
	return &Lease{
		store: s.url, entry: s.entryOf(ref, ""), grant: locks.Grant{Ref: ref},
		term: locks.Term{TTL: DefaultTTL}, // it ended long ago: only a renewal tells when it ends
	}
}

// Grant implements locks.Lease.
func (l *Lease) Grant() locks.Grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.grant
}

// Term implements locks.Lease.
func (l *Lease) Term() locks.Term {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term
}

// Renew implements locks.Lease.
func (l *Lease) Renew(ctx context.Context) (locks.Term, error) {
	a, sent, err := l.entry.Ask(ctx, queue.Renew)
	if err == nil {
		err = l.renewed(a, sent)
	}
	if err != nil {
		return locks.Term{}, err
	}
	return l.Term(), nil
}

// Confirm implements locks.Lease.
func (l *Lease) Confirm(ctx context.Context) error {
	a, sent, err := request(ctx, l.store, l.entry, queue.Renew, nil)
	if err != nil {
		return Located(l.store, err)
	}
	return l.renewed(a, sent)
}

// renewed takes the answer to a renewal.
func (l *Lease) renewed(a Answer, sent locks.Instant) error {
	switch a.Verdict {
	case queue.Held:
	case queue.Evicted:
		return &locks.EvictedError{By: a.By}
	default:
		return locks.ErrLost
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.grant, l.epoch = a.Grant, a.Epoch
	if sent > l.term.Asked {
		l.term = a.term(sent)
	}
	return nil
}

// Files implements locks.Lease. There are none.
func (l *Lease) Files() []int { return nil }

// Evicted implements locks.Lease. A renewal tells.
func (l *Lease) Evicted() error { return nil }

// Events implements locks.Lease.
func (l *Lease) Events() <-chan struct{} { return l.entry.Events() }

// Release implements locks.Lease. It tries until ctx ends, or for two seconds. ErrLost means that
// the slot was not ours any more, although the store has not lost its data.
func (l *Lease) Release(ctx context.Context) error {
	l.mu.Lock()
	released := l.released
	l.mu.Unlock()
	if released {
		return nil
	}
	defer l.entry.Close()
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, releaseLimit)
		defer cancel()
	}
	a, _, err := request(ctx, l.store, l.entry, queue.Release, nil)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doubtful = l.doubtful || a.Doubtful
	if err != nil {
		return err
	}
	l.released = true
	if !a.Existed && !l.doubtful && (l.epoch == "" || a.Epoch == l.epoch) {
		return locks.ErrLost
	}
	return nil
}

// Evict implements locks.Queue. The owner hears of it with its next renewal, or sooner
// where the store can tell it.
func (s *Engine) Evict(ctx context.Context, refs []locks.Ref, by string) []error {
	results := make([]error, len(refs))
	for i, ref := range refs {
		results[i] = s.evict(ctx, ref, by)
	}
	return results
}

func (s *Engine) evict(ctx context.Context, ref locks.Ref, by string) error {
	e := s.entryOf(ref, by)
	defer e.Close()
	a, _, err := request(ctx, s.url, e, queue.Evict, nil)
	switch {
	case err != nil:
		return Located(s.url, err)
	case a.Verdict == queue.Lost && !a.Doubtful:
		return locks.ErrLost
	}
	return nil
}
