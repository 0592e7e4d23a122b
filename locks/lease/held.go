package lease

import (
	"context"
	"sync"
	"time"

	"golock/locks"
	"golock/locks/queue"
)

// Lease implements locks.Lease, for a slot that this process or another one (Attach) has taken.
type Lease struct {
	entry   Entry
	store   string
	hasHold bool // there is a hold that Hold begins

	mu       sync.Mutex // guards the fields below; it is not locked during a question to the store
	grant    locks.Grant
	term     locks.Term
	epoch    string // the epoch of the last answer; empty if there was none
	released bool   // the store has confirmed the release
	doubtful bool   // an attempt to release the slot failed, but may have released it
}

// releaseLimit limits a release whose caller has no limit. Without an answer the lease expires.
const releaseLimit = 2 * time.Second

func newLease(adm *Admission, a Answer, sent locks.Instant) *Lease {
	return &Lease{
		store: adm.store, entry: adm.entry, hasHold: adm.request.LaterHold() > 0,
		grant: a.Grant, epoch: a.Epoch, term: a.term(sent),
	}
}

// Attach implements locks.Leases. The TTL, slots and fence are known after the first renewal.
func (s *Engine) Attach(ref locks.Ref) locks.Lease {
	return &Lease{
		store: s.url, entry: s.entryOf(ref, noEvictor), grant: locks.Grant{Ref: ref},
		term: locks.Term{TTL: DefaultTTL}, // Asked is 0, the boot of this machine: the term is over until a renewal
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
		err = l.handleRenewal(a, sent)
	}
	if err != nil {
		return locks.Term{}, err
	}
	return l.Term(), nil
}

// Confirm implements locks.Lease.
func (l *Lease) Confirm(ctx context.Context) error {
	a, sent, err := request(ctx, l.store, l.entry, queue.Renew)
	if err != nil {
		return Located(l.store, err)
	}
	return l.handleRenewal(a, sent)
}

// Hold implements locks.Lease. The hold is part of the request, so an attached lease has none.
func (l *Lease) Hold(ctx context.Context) error {
	if !l.hasHold {
		return nil
	}
	a, sent, err := request(ctx, l.store, l.entry, queue.Hold)
	if err != nil {
		return Located(l.store, err)
	}
	return l.handleRenewal(a, sent)
}

// handleRenewal handles the answer to a renewal.
func (l *Lease) handleRenewal(a Answer, sent locks.Instant) error {
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

// Files implements locks.Lease. No file keeps the slot of a lease.
func (l *Lease) Files() []int { return nil }

// Evicted implements locks.Lease. It is always nil, because a renewal returns the error.
func (l *Lease) Evicted() error { return nil }

// Events implements locks.Lease.
func (l *Lease) Events() <-chan struct{} { return l.entry.Events() }

// Release implements locks.Lease. It tries until ctx ends, or for two seconds if ctx has no deadline.
// ErrLost means that the slot was lost before, although the store has not lost its data.
func (l *Lease) Release(ctx context.Context) error {
	l.mu.Lock()
	released := l.released
	l.mu.Unlock()
	if released {
		return nil
	}
	defer l.entry.Close()
	if _, hasLimit := ctx.Deadline(); !hasLimit {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, releaseLimit)
		defer cancel()
	}
	a, _, err := request(ctx, l.store, l.entry, queue.Release)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doubtful = l.doubtful || a.Doubtful
	if err != nil {
		return err
	}
	l.released = true
	mayBeForgotten := l.epoch != "" && a.Epoch != l.epoch
	if !a.Existed && !l.doubtful && !mayBeForgotten {
		return locks.ErrLost
	}
	return nil
}

// Evict implements locks.Queue. The owner hears of the eviction with its next renewal, or sooner if the
// store can notify it.
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
	a, _, err := request(ctx, s.url, e, queue.Evict)
	switch {
	case err != nil:
		return Located(s.url, err)
	case a.Verdict == queue.Lost && !a.Doubtful:
		return locks.ErrLost
	}
	return nil
}
