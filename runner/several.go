package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golock/locks"
)

// A run may hold slots of several locks (Run.Earlier). It takes them one after the other in the order of
// their names, so that two such runs never wait for each other, and gives them back in reverse. From the
// last grant on they are one lease, which is lost when one of them is.

// leases are the leases of a run with several names, as one. Its Grant is that of the last name.
type leases struct {
	names []string
	all   []locks.Lease // one for each of names; at least one

	forwarding sync.Once
	events     chan struct{}
	open       context.Context // ends the forwarding of events
	close      context.CancelFunc
}

func newLeases(names []string, all []locks.Lease) *leases {
	l := &leases{names: names, all: all, events: make(chan struct{}, 1)}
	l.open, l.close = context.WithCancel(context.Background())
	return l
}

// eachOf returns the leases of which a lease consists.
func eachOf(lease locks.Lease) []locks.Lease {
	if several, ok := lease.(*leases); ok {
		return several.all
	}
	return []locks.Lease{lease}
}

// grantsOf returns the grants of a lease, that of the last name last.
func grantsOf(lease locks.Lease) (grants []locks.Grant) {
	for _, one := range eachOf(lease) {
		grants = append(grants, one.Grant())
	}
	return grants
}

// endHolds ends the holds of slots that were given back unused.
func (r *Run) endHolds(grants []locks.Grant) error {
	ctx, cancel := context.WithTimeout(context.Background(), releaseLimit)
	defer cancel()
	var all []error
	for _, g := range grants {
		err := r.Store.Can.Queue.Evict(ctx, []locks.Ref{g.Ref}, "nothing was begun with it")[0]
		if err != nil && !errors.Is(err, locks.ErrLost) {
			all = append(all, err)
		}
	}
	return onOneLine(all)
}

// onOneLine joins errors, for a line of a log.
func onOneLine(errs []error) (all error) {
	for _, err := range errs {
		if all == nil {
			all = err
		} else {
			all = fmt.Errorf("%w; %w", all, err)
		}
	}
	return all
}

// Grant implements locks.Lease.
func (l *leases) Grant() locks.Grant { return l.all[len(l.all)-1].Grant() }

// Files implements locks.Lease.
func (l *leases) Files() (fds []int) {
	for _, one := range l.all {
		fds = append(fds, one.Files()...)
	}
	return fds
}

// Evicted implements locks.Lease.
func (l *leases) Evicted() error {
	for i, one := range l.all {
		if err := one.Evicted(); err != nil {
			return l.named(i, err)
		}
	}
	return nil
}

// named says which lock an error is about.
func (l *leases) named(i int, err error) error { return fmt.Errorf("lock %q: %w", l.names[i], err) }

// releaseStagger is how long a release without an answer holds up the next one.
const releaseStagger = 100 * time.Millisecond

// Release implements locks.Lease. The slot that was taken last is given back first. ErrLost means that no
// slot failed to be given back, and that one was lost before.
func (l *leases) Release(ctx context.Context) error {
	l.close()
	if _, isLimited := ctx.Deadline(); !isLimited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, releaseLimit)
		defer cancel()
	}
	results := make([]error, len(l.all))
	var releases sync.WaitGroup
	for i, one := range slices.Backward(l.all) {
		released := make(chan struct{})
		releases.Go(func() {
			defer close(released)
			defer locks.Recover(&results[i])
			results[i] = one.Release(ctx)
		})
		select {
		case <-released:
		case <-time.After(releaseStagger):
		}
	}
	releases.Wait()
	var lost error
	var failed []error
	for i, err := range results {
		switch {
		case errors.Is(err, locks.ErrLost):
			lost = l.named(i, err)
		case err != nil:
			failed = append(failed, l.named(i, err))
		}
	}
	if len(failed) == 0 {
		return lost
	}
	return onOneLine(failed)
}

// Term implements locks.Lease. It ends with the first of the terms, and has the shortest TTL, so that every
// lease is renewed often enough.
func (l *leases) Term() locks.Term {
	var ttl time.Duration
	var end locks.Instant
	for _, one := range l.all {
		term := one.Term()
		if !term.Ends() {
			continue
		}
		if ttl == 0 {
			ttl, end = term.TTL, term.End()
		}
		ttl, end = min(ttl, term.TTL), min(end, term.End())
	}
	if ttl == 0 {
		return locks.Term{}
	}
	whole := locks.Term{TTL: ttl}.End().Sub(0)
	return locks.Term{Asked: end.Add(-whole), TTL: ttl}
}

// Renew implements locks.Lease.
func (l *leases) Renew(ctx context.Context) (locks.Term, error) {
	err := l.each(func(one locks.Lease) error {
		_, err := one.Renew(ctx)
		return err
	})
	if err != nil {
		return locks.Term{}, err
	}
	return l.Term(), nil
}

// Confirm implements locks.Lease.
func (l *leases) Confirm(ctx context.Context) error {
	return l.each(func(one locks.Lease) error { return one.Confirm(ctx) })
}

// Hold implements locks.Lease.
func (l *leases) Hold(ctx context.Context) error {
	return l.each(func(one locks.Lease) error { return one.Hold(ctx) })
}

// each asks the store about all leases at once. Of several errors it returns the gravest one.
func (l *leases) each(ask func(locks.Lease) error) error {
	results := make([]error, len(l.all))
	var asks sync.WaitGroup
	for i, one := range l.all {
		asks.Go(func() {
			defer locks.Recover(&results[i])
			results[i] = ask(one)
		})
	}
	asks.Wait()
	gravest := -1
	for i, err := range results {
		if err != nil && (gravest < 0 || gravity(err) > gravity(results[gravest])) {
			gravest = i
		}
	}
	if gravest < 0 {
		return nil
	}
	return l.named(gravest, results[gravest])
}

// gravity orders the errors of a question about a lease. After a panic nothing can go on; an eviction and a
// loss are final; everything else may pass.
func gravity(err error) int {
	switch {
	case errors.As(err, new(*locks.PanicError)):
		return 3
	case errors.As(err, new(*locks.EvictedError)):
		return 2
	case errors.Is(err, locks.ErrLost):
		return 1
	}
	return 0
}

// Events implements locks.Lease.
func (l *leases) Events() <-chan struct{} {
	l.forwarding.Do(func() {
		for _, one := range l.all {
			if events := one.Events(); events != nil {
				go l.forward(events)
			}
		}
	})
	return l.events
}

// forward passes hints on until the leases are released.
func (l *leases) forward(events <-chan struct{}) {
	for {
		select {
		case <-events:
		case <-l.open.Done():
			return
		}
		select {
		case l.events <- struct{}{}:
		default: // a hint is pending already
		}
	}
}
