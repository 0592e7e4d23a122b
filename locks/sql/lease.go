package sql

import (
	"context"
	"sync"
	"time"

	"golock/locks"
)

// lease is a held slot, or one that another process took (Attach).
//
// Its connection is open for a moment after the grant and during each renewal:
// databases have few, and most short commands have ended by then. While somebody
// waits it stays open, so that the slot is handed on without connecting first;
// but of many holders of one name none keeps it.
type lease struct {
	store    *Store
	line     *line
	attached bool

	mu       sync.Mutex // guards what follows; not held while the store is asked
	entry    entry
	term     locks.Term
	hangUp   *time.Timer // closes the connection
	released bool        // and the store knows
	doubtful bool        // a release was sent, its answer lost
}

const (
	// idleLimit is how long the connection of a grant is kept.
	idleLimit = time.Second

	// releaseLimit bounds a release. Without an answer the lease ends by itself.
	releaseLimit = 2 * time.Second
)

// newLease is for an entry that was granted when asked. The line is the lease's
// from now on.
func newLease(e *entry, line *line, asked locks.Instant, crowd bool) *lease {
	l := &lease{store: e.store, line: line, entry: *e, term: locks.Term{Asked: asked, TTL: e.ttl}}
	l.hangUp = time.AfterFunc(l.patience(crowd), line.idle)
	return l
}

// patience is how long the connection is kept: if somebody waits until the next
// renewal, which there is in a TTL or never.
func (l *lease) patience(crowd bool) time.Duration {
	if crowd {
		return l.entry.ttl
	}
	return idleLimit
}

// Attach implements locks.Attacher. The store tells the lease what it does not
// know, its TTL among it, with the first renewal.
func (s *Store) Attach(ref locks.Ref) locks.Leased {
	return &lease{store: s, line: &line{store: s}, attached: true, entry: entry{store: s, ref: ref, ttl: defaultTTL}}
}

func (l *lease) known() entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entry
}

// Grant implements locks.Lease. Of an attached lease slots and fence are known
// after the first renewal.
func (l *lease) Grant() locks.Grant {
	e := l.known()
	return locks.Grant{Ref: e.ref, Slots: e.mine.slots, Fence: e.mine.fence}
}

// Term implements locks.Leased.
func (l *lease) Term() locks.Term {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term
}

// Renew implements locks.Leased.
func (l *lease) Renew(ctx context.Context) (locks.Term, error) {
	e := l.known()
	a, asked, err := e.ask(ctx, l.line, renew)
	switch {
	case err != nil || a.word != held || !a.crowd:
		l.line.idle()
	case l.hangUp != nil:
		l.hangUp.Reset(l.patience(true))
	}
	switch {
	case err != nil:
		return locks.Term{}, err
	case a.word == evicted:
		return locks.Term{}, &locks.EvictedError{By: a.by}
	case a.word != held:
		return locks.Term{}, locks.ErrLost
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entry = e
	if term := (locks.Term{Asked: asked, TTL: e.ttl}); term.Asked > l.term.Asked {
		l.term = term
	}
	return l.term, nil
}

// Events implements locks.Leased. There are none: no connection is kept that
// could bring them.
func (l *lease) Events() <-chan locks.Event { return nil }

// Release implements locks.Lease. It tries for two seconds at most. ErrLost
// says that the slot was not ours any more, in a store that has not lost its
// data.
func (l *lease) Release(ctx context.Context) error {
	l.mu.Lock()
	e := l.entry
	released, doubtful := l.released, l.doubtful
	if l.hangUp != nil {
		l.hangUp.Stop()
	}
	l.mu.Unlock()
	if released {
		return nil
	}
	defer l.line.idle()
	ctx, cancel := context.WithTimeout(ctx, releaseLimit)
	defer cancel()
	var a answer
	err := l.store.insist(ctx, func() (err error) {
		a, _, err = e.ask(ctx, l.line, release)
		doubtful = doubtful || err != nil || a.doubtful
		return err
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doubtful = doubtful
	switch {
	case err != nil:
		return err
	case !a.was && !doubtful && (l.attached || a.epoch == e.epoch):
		l.released = true
		return locks.ErrLost
	}
	l.released = true
	return nil
}
