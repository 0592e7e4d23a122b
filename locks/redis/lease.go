package redis

import (
	"context"
	"sync"
	"time"

	"golock/locks"
)

// lease is a held slot, or one that another process took (Attach).
type lease struct {
	store    *Store
	attached bool
	events   chan locks.Event
	listener sync.Once
	quit     chan struct{} // closed by the first Release

	mu       sync.Mutex // guards what follows; not held while the store is asked
	entry    entry
	term     locks.Term
	fault    error // the listener's: the next renewal tells it
	given    bool  // Release was called
	released bool  // and the store knows
	doubtful bool  // a release was sent, its answer lost
}

const (
	// eventRoom is how many events wait to be taken; more would say nothing new.
	eventRoom = 4

	// listenDelay passes before the listener connects: most short commands have
	// ended by then.
	listenDelay = 100 * time.Millisecond

	// releaseLimit bounds a release. Without an answer the lease ends by itself.
	releaseLimit = 2 * time.Second
)

// newLease is for an entry that was granted when asked. It keeps the store's
// connection until it is released.
func newLease(e *entry, asked locks.Instant) *lease {
	_, _ = e.store.connection.use(e.ttl)
	return &lease{
		store: e.store, entry: *e, term: locks.Term{Asked: asked, TTL: e.ttl},
		events: make(chan locks.Event, eventRoom), quit: make(chan struct{}),
	}
}

// Attach implements locks.Attacher. The store tells the lease what it does not
// know, its TTL among it, with the first renewal.
func (s *Store) Attach(ref locks.Ref) locks.Leased {
	return &lease{
		store: s, attached: true, entry: entry{store: s, ref: ref, ttl: defaultTTL},
		events: make(chan locks.Event, eventRoom), quit: make(chan struct{}),
	}
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
	return locks.Grant{Ref: e.ref, Slots: e.record.slots, Fence: e.record.fence}
}

// Term implements locks.Leased.
func (l *lease) Term() locks.Term {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term
}

// Renew implements locks.Leased.
func (l *lease) Renew(ctx context.Context) (locks.Term, error) {
	l.mu.Lock()
	e, fault := l.entry, l.fault
	l.fault = nil
	l.mu.Unlock()
	if fault != nil {
		return locks.Term{}, fault
	}
	a, asked, err := e.ask(ctx, renew)
	if err != nil {
		return locks.Term{}, err
	}
	switch a.word {
	case "held":
	case "evicted":
		return locks.Term{}, &locks.EvictedError{By: a.by}
	default:
		return locks.Term{}, locks.ErrLost
	}
	l.store.noteAgain(&e)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entry = e
	if term := (locks.Term{Asked: asked, TTL: e.ttl}); term.Asked > l.term.Asked {
		l.term = term
	}
	return l.term, nil
}

// Events implements locks.Leased. The first call starts the listener.
func (l *lease) Events() <-chan locks.Event {
	l.listener.Do(func() { go l.listen() })
	return l.events
}

// listen passes on what the lease's channel says until the lease is released.
// A connection that has gone may mean that the server has; one that has come
// (again) may have missed something. Both are reasons to renew.
func (l *lease) listen() {
	e := l.known()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	delay := time.NewTimer(listenDelay)
	defer delay.Stop()
	select {
	case <-delay.C:
	case <-l.quit:
		return
	}
	notices := l.store.listen(ctx, e.ref, e.ttl, e.ttl/10)
	was := up
	for {
		select {
		case n, ok := <-notices:
			switch {
			case !ok:
				return
			case n.kind == evicted:
				l.tell(locks.Evicted)
			case n.kind == broken:
				l.mu.Lock()
				l.fault = n.err
				l.mu.Unlock()
				l.tell(locks.Unsure)
			case n.kind == up, n.kind == down && was != down:
				l.tell(locks.Unsure)
			}
			was = n.kind
		case <-l.quit:
			return
		}
	}
}

func (l *lease) tell(e locks.Event) {
	select {
	case l.events <- e:
	default:
	}
}

// Release implements locks.Lease. It tries for two seconds at most. ErrLost
// says that the slot was not ours any more, in a store that has not lost its
// data.
func (l *lease) Release(ctx context.Context) error {
	l.mu.Lock()
	e, again := l.entry, l.given
	released, doubtful := l.released, l.doubtful
	l.given = true
	l.mu.Unlock()
	if released {
		return nil
	}
	if !again {
		close(l.quit)
		if !l.attached {
			defer l.store.connection.done()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, releaseLimit)
	defer cancel()
	var a answer
	err := l.store.insist(ctx, func() (err error) {
		a, _, err = e.ask(ctx, release)
		doubtful = doubtful || err != nil
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
