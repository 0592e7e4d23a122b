package lease

import (
	"context"
	"sync"
	"time"

	"golock/locks"
)

// Lease implements locks.RenewableLease, for a slot of this process or of another one
// (Attach).
type Lease struct {
	entry    Entry
	store    string
	attached bool

	mu       sync.Mutex // guards what follows; not held while the store is asked
	grant    locks.Grant
	term     locks.Term
	epoch    string
	released bool // and the store knows
	doubtful bool // a release was sent and its answer lost
}

// releaseLimit bounds a release. Without an answer the lease expires.
const releaseLimit = 2 * time.Second

func newLease(store string, e Entry, a Answer, sent locks.Instant) *Lease {
	return &Lease{store: store, entry: e, grant: a.Grant, epoch: a.Epoch, term: locks.Term{Asked: sent, TTL: a.TTL}}
}

// Attach gives the lease of an entry that another process made. The first renewal tells
// what is not known yet, as its TTL, slots and fence.
func Attach(store string, ref locks.Ref, e Entry) *Lease {
	return &Lease{store: store, entry: e, attached: true, grant: locks.Grant{Ref: ref}}
}

// Grant implements locks.Lease.
func (l *Lease) Grant() locks.Grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.grant
}

// Term implements locks.RenewableLease.
func (l *Lease) Term() locks.Term {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term
}

// Renew implements locks.RenewableLease.
func (l *Lease) Renew(ctx context.Context) (locks.Term, error) {
	a, sent, err := l.entry.Ask(ctx, Renew)
	switch {
	case err != nil:
		return locks.Term{}, err
	case a.Verdict == Evicted:
		return locks.Term{}, &locks.EvictedError{By: a.By}
	case a.Verdict != Held:
		return locks.Term{}, locks.ErrLost
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.grant, l.epoch = a.Grant, a.Epoch
	if sent > l.term.Asked {
		l.term = locks.Term{Asked: sent, TTL: a.TTL}
	}
	return l.term, nil
}

// Files implements locks.Lease. There are none.
func (l *Lease) Files() []int { return nil }

// Evicted implements locks.Lease. A renewal tells.
func (l *Lease) Evicted() error { return nil }

// Events implements locks.RenewableLease.
func (l *Lease) Events() <-chan struct{} { return l.entry.Events() }

// Release implements locks.Lease. It tries for two seconds at most. ErrLost means that
// the slot was not ours any more, although the store has not lost its data.
func (l *Lease) Release(ctx context.Context) error {
	l.mu.Lock()
	epoch, released := l.epoch, l.released
	l.mu.Unlock()
	if released {
		return nil
	}
	defer l.entry.Close()
	ctx, cancel := context.WithTimeout(ctx, releaseLimit)
	defer cancel()
	a, _, err := request(ctx, l.store, l.entry, Release)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doubtful = l.doubtful || a.Doubtful
	if err != nil {
		return err
	}
	l.released = true
	if !a.Existed && !l.doubtful && (l.attached || a.Epoch == epoch) {
		return locks.ErrLost
	}
	return nil
}

// EvictEntry takes an entry back from its owner.
func EvictEntry(ctx context.Context, store string, e Entry) error {
	defer e.Close()
	a, _, err := request(ctx, store, e, Evict)
	switch {
	case err != nil:
		return Located(store, err)
	case a.Verdict == Lost && !a.Doubtful:
		return locks.ErrLost
	}
	return nil
}
