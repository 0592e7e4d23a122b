package files

import (
	"context"
	"errors"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// Entries implements locks.Store. It lists an entry of another host, and every holder, as live until
// its heartbeat has been unchanged for a TTL.
func (s *Store) Entries(ctx context.Context, name string) (all []locks.Entry, _ error) {
	ctx, cancel := context.WithTimeout(ctx, lease.ListLimit)
	defer cancel()
	directories, unread := lease.Await(ctx, func() ([]*directory, error) { return s.directories(name) })
	var failed []error
	var invalid []locks.InvalidEntry
	for _, d := range directories {
		entries, err := lease.Await(ctx, func() ([]locks.Entry, error) { return d.entries(ctx) })
		all, invalid = append(all, entries...), append(invalid, locks.AsInvalid(err)...)
		switch {
		case ctx.Err() != nil:
			return all, err
		case len(all) > locks.MaxListed:
			return all[:locks.MaxListed], errors.Join(unread, locks.ListingCut(s.URL()))
		case err != nil && len(locks.AsInvalid(err)) == 0:
			failed = append(failed, err)
		}
	}
	return all, errors.Join(unread, locks.JoinSome(failed), lease.Located(s.URL(), lease.Invalid(invalid)))
}

// Find implements locks.Queue.
func (s *Store) Find(ctx context.Context, ref locks.Ref) (locks.Entry, error) {
	entries, err := lease.Await(ctx, func() (_ []locks.Entry, err error) {
		d := s.directoryOf(ref.Key)
		d.name, err = d.load()
		if err != nil {
			return nil, err
		}
		return d.entries(ctx)
	})
	return ref.In(entries, lease.Located(s.URL(), err))
}

// entries returns the entries of one name as they were at one moment: nobody has made a version while
// their heartbeats were read.
func (d *directory) entries(ctx context.Context) ([]locks.Entry, error) {
	p := &step{directory: d, question: queue.Question{Step: queue.Look}, isList: true}
	r, err := p.decide(ctx)
	if errors.Is(err, errRemoved) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var entries []locks.Entry
	for i := range r.state.entries {
		m := &r.state.entries[i]
		if m.flaw != nil {
			continue
		}
		o := r.observed[m.ID]
		if o.State != queue.Tombstone && !o.isDead {
			entries = append(entries, o.describe(d))
		}
	}
	locks.Arrange(entries)
	return entries, lease.Invalid(d.invalid(r.state, r.dead))
}

// describe makes the public entry of an observed entry.
func (o *observedEntry) describe(d *directory) locks.Entry {
	m, r := o.member, &o.record
	e := locks.Entry{
		Name: d.name, State: locks.Waiting, Claim: m.Claim,
		Expires: max(o.ttlLeft, o.holdLeft), TTL: m.ttl, Evicted: m.Evicted,
	}
	e.Ref, _ = locks.ParseRef(d.key.String() + "-" + m.ID)
	if age, known := d.ageOf(o); known {
		e.SetAge(age)
	}
	r.Describe(&e)
	if m.State == queue.Waiting {
		return e
	}
	e.State, e.Slots, e.Fence = locks.Holding, m.Slots, m.Fence
	e.Ended = m.State == queue.Ended || (o.ttlLeft == 0 && o.holdLeft > 0)
	e.Orphaned = !e.Ended && !r.NoGolock && d.store.hasEnded(r)
	if o.holdLeft > 0 {
		e.HeldTill = time.Now().Add(o.holdLeft)
	}
	return e
}
