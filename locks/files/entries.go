package files

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// Entries implements locks.Store. An entry of another machine, or a holder, of
// which nothing is known but that it has not changed yet, is shown as live.
func (s *Store) Entries(ctx context.Context, name string) iter.Seq2[locks.Entry, error] {
	return lease.Entries(ctx, func(ctx context.Context) (all []locks.Entry, failed error) {
		directories := []*directory{s.directoryOf(locks.KeyOf(name))}
		if name == "" {
			directories, failed = await(ctx, s.directories)
		}
		for _, d := range directories {
			entries, err := await(ctx, d.entries)
			if err != nil {
				return all, err
			}
			if name == "" || d.name == name {
				all = append(all, entries...)
			}
		}
		return all, failed
	})
}

// Find implements locks.QueueStore.
func (s *Store) Find(ctx context.Context, ref locks.Ref) (locks.Entry, error) {
	entries, err := await(ctx, s.directoryOf(ref.Key).entries)
	if err != nil {
		return locks.Entry{}, err
	}
	return locks.FindEntry(entries, ref)
}

// entries gives one name's: holders by slot, then waiters in their order. They are those
// of one moment: nobody has made a version while their signs of life were read.
func (d *directory) entries() ([]locks.Entry, error) {
	if err := d.known(); errors.Is(err, locks.ErrLost) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	// Who only lists remembers, for as long as the store is open.
	w := d.watch()
	w.looks = true
	known, _ := d.store.listingWatches.LoadOrStore(d.key, w)
	w = known.(*watch)
	var observed []*observedEntry
	_, _, err := d.read(func(s *state) error {
		observed = nil
		for i := range s.entries {
			if s.entries[i].state == queue.Gone {
				continue
			}
			seen, err := w.judge(&s.entries[i])
			if err != nil {
				return err
			}
			if !seen.dead {
				observed = append(observed, seen)
			}
		}
		return nil
	})
	if errors.Is(err, errRemoved) {
		return nil, nil
	}
	slices.SortFunc(observed, func(a, b *observedEntry) int { return inOrder(a.member, b.member) })
	entries := make([]locks.Entry, len(observed))
	for i := range observed {
		entries[i] = observed[i].entry(d)
	}
	lease.Arrange(entries)
	return entries, err
}

// entry is what the contract shows of one.
func (s *observedEntry) entry(d *directory) locks.Entry {
	m, r := s.member, &s.record
	e := locks.Entry{
		Name: d.name, State: locks.Waiting, Claim: m.entry().Claim,
		Expires: max(s.left, s.rest), TTL: m.ttl, Evicted: m.evicted,
	}
	e.Ref, _ = locks.ParseRef(d.key.String() + "-" + m.id)
	if r.Since != 0 {
		e.Since = time.UnixMicro(r.Since)
	}
	r.Describe(&e)
	if m.state == queue.Waiting {
		return e
	}
	e.State, e.Slots, e.Fence = locks.Holding, m.entry().Slots, m.fence
	e.Ended = m.state == queue.Ended || (s.left == 0 && s.rest > 0)
	e.Orphaned = !e.Ended && !r.NoGolock && r.Process.gone(d.store.self())
	if s.rest > 0 {
		e.HeldTill = time.Now().Add(s.rest)
	}
	return e
}

// Evict implements locks.QueueStore. Its owner sees the mark within a second, or
// with its next renewal.
func (s *Store) Evict(ctx context.Context, ref locks.Ref, by string) error {
	if by == "" {
		by = "somebody"
	}
	r, err := await(ctx, func() (r result, err error) {
		d := s.directoryOf(ref.Key)
		if err := d.known(); err != nil {
			return r, err
		}
		e := s.entryOf(locks.Request{Ref: ref})
		p := &step{watch: d.watch(), own: e.own, foreign: true, question: queue.Question{
			Step: lease.Evict, Entry: queue.Entry{ID: e.own.id}, By: locks.Printable(by, 200),
		}}
		return p.decide(ctx)
	})
	if err == nil && r.Verdict == lease.Lost && !r.unsure {
		err = locks.ErrLost
	}
	return err
}
