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
// the names, so that two such runs never wait for each other, and gives them back in reverse. After the
// last grant their leases count as one lease, which is lost when one of them is lost.

// leases implements locks.Lease for a run with several names. Its Grant belongs to the last name.
type leases struct {
	names []string
	all   []locks.Lease // one for each of names; at least one

	forwarding sync.Once
	events     chan struct{}
	ctx        context.Context // ends the forwarding of events
	cancel     context.CancelFunc
}

func newLeases(names []string, all []locks.Lease) *leases {
	l := &leases{names: names, all: all, events: make(chan struct{}, 1)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// eachOf returns the leases that a lease consists of, one for each name, in the order of the names.
func eachOf(lease locks.Lease) []locks.Lease {
	if several, ok := lease.(*leases); ok {
		return several.all
	}
	return []locks.Lease{lease}
}

// grantsOf returns the grants of a lease, in the order of the names.
func grantsOf(lease locks.Lease) (grants []locks.Grant) {
	for _, one := range eachOf(lease) {
		grants = append(grants, one.Grant())
	}
	return grants
}

// onOneLine joins errors, so that they fit on one line of the log (errors.Join writes a line for each).
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

// named adds to an error the name of the lock that it is about.
func (l *leases) named(i int, err error) error { return fmt.Errorf("lock %q: %w", l.names[i], err) }

// releaseStagger is how long Release waits for one slot before it begins with the next one.
const releaseStagger = 100 * time.Millisecond

// Release implements locks.Lease. The slot that was taken last is given back first. ErrLost means that one
// slot was lost before and all others were given back.
func (l *leases) Release(ctx context.Context) error {
	l.cancel()
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

// Term implements locks.Lease. The term ends when the first of the leases does, and has the shortest TTL, so
// that every lease is renewed often enough. Its distance is the one with the slowest renewal.
func (l *leases) Term() locks.Term {
	var ttl time.Duration
	var end locks.Instant
	var farthest locks.Distance
	for _, one := range l.all {
		term := one.Term()
		if !term.Ends() {
			continue
		}
		if term.Distance.Renewal() > farthest.Renewal() {
			farthest = term.Distance
		}
		if ttl == 0 {
			ttl, end = term.TTL, term.End()
		}
		ttl, end = min(ttl, term.TTL), min(end, term.End())
	}
	if ttl == 0 {
		return locks.Term{}
	}
	length := locks.Term{TTL: ttl}.End().Sub(0) // the TTL less the drift of clocks
	return locks.Term{Asked: end.Add(-length), TTL: ttl, Distance: farthest}
}

// Renew implements locks.Lease. The term counts after an error too, because some leases may have been renewed.
func (l *leases) Renew(ctx context.Context) (locks.Term, error) {
	err := l.askAll(func(one locks.Lease) error {
		_, err := one.Renew(ctx)
		return err
	})
	return l.Term(), err
}

// Confirm implements locks.Lease.
func (l *leases) Confirm(ctx context.Context) error {
	return l.askAll(func(one locks.Lease) error { return one.Confirm(ctx) })
}

// Hold implements locks.Lease.
func (l *leases) Hold(ctx context.Context) error {
	return l.askAll(func(one locks.Lease) error { return one.Hold(ctx) })
}

// askAll calls ask for all leases at the same time. Of several errors it returns the gravest one.
func (l *leases) askAll(ask func(locks.Lease) error) error {
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

// gravity orders errors by what they mean for a lease. After a panic the run cannot go on; an eviction and
// a loss are final; after any other error the next attempt may succeed.
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

// forward passes the events of one lease on until Release.
func (l *leases) forward(events <-chan struct{}) {
	for {
		select {
		case <-events:
		case <-l.ctx.Done():
			return
		}
		select {
		case l.events <- struct{}{}:
		default: // an event is pending already
		}
	}
}
