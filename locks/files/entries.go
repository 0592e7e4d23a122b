package files

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/lease"
)

// Entries implements locks.Store. An entry of another machine, or a holder, of
// which nothing is known but that it has not changed yet, is shown as live.
func (s *Store) Entries(ctx context.Context, name string) iter.Seq2[locks.Entry, error] {
	return lease.Entries(ctx, func(ctx context.Context) (all []locks.Entry, _ error) {
		queues, failed := await(ctx, func() ([]*queue, error) {
			if name != "" {
				return s.known(name)
			}
			return s.queues()
		})
		for _, q := range queues {
			entries, err := await(ctx, q.entries)
			if err != nil {
				return all, err
			}
			all = append(all, entries...)
		}
		return all, failed
	})
}

// Find implements locks.QueueStore.
func (s *Store) Find(ctx context.Context, ref locks.Ref) (locks.Entry, error) {
	entries, err := await(ctx, func() ([]locks.Entry, error) {
		q := &queue{store: s, key: ref.Key, path: s.keyPath(ref.Key)}
		h, err := q.readHead()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, s.checkDir()
		case err != nil:
			return nil, err
		}
		q.name = h.Name
		return q.entries()
	})
	if err != nil {
		return locks.Entry{}, err
	}
	return locks.Pick(entries, ref)
}

// known gives the queue of a name if there is one. It changes nothing.
func (s *Store) known(name string) ([]*queue, error) {
	key := locks.KeyOf(name)
	q := &queue{store: s, key: key, path: s.keyPath(key), name: name}
	h, err := q.readHead()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, s.checkDir()
	case err != nil:
		return nil, err
	case h.Name != name:
		return nil, nil
	}
	return []*queue{q}, nil
}

// queues gives all there are, by name. One that cannot be read hides none of the
// others.
func (s *Store) queues() ([]*queue, error) {
	if err := s.checkDir(); err != nil {
		return nil, err
	}
	names, err := readNames(s.dir + "/.") // the directory may be reached by a symbolic link
	if err != nil {
		return nil, err
	}
	var all []*queue
	var failed []error
	for _, base := range names {
		key, ok := keyFromName(base)
		if !ok {
			continue
		}
		q := &queue{store: s, key: key, path: s.keyPath(key)}
		h, err := q.readHead()
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR), err == nil && locks.KeyOf(h.Name) != key:
			continue
		case err != nil:
			failed = append(failed, err)
			continue
		}
		q.name = h.Name
		all = append(all, q)
	}
	slices.SortFunc(all, func(a, b *queue) int { return strings.Compare(a.name, b.name) })
	return all, errors.Join(failed...)
}

// entries gives one name's: holders by slot, then waiters in their order.
func (q *queue) entries() ([]locks.Entry, error) {
	line, err := q.list()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	w := q.store.listingWatch(q)
	var seats []seat
	for _, t := range line {
		if t.kind != holds && t.kind != waits {
			continue
		}
		s, err := w.look(t)
		if err != nil {
			return nil, err
		}
		if !s.dead && !s.absent {
			seats = append(seats, s)
		}
	}
	slices.SortFunc(seats, func(a, b seat) int {
		switch ca, cb := a.claim(), b.claim(); {
		case ca.Before(cb):
			return -1
		case cb.Before(ca):
			return 1
		}
		return strings.Compare(a.id, b.id)
	})
	entries := make([]locks.Entry, len(seats))
	for i := range seats {
		entries[i] = seats[i].entry(q.name)
	}
	lease.Arrange(entries)
	return entries, nil
}

// listingWatch is the watch of those who only list. It remembers, for as long as the
// store is open.
func (s *Store) listingWatch(q *queue) *watch {
	w, _ := s.listingWatches.LoadOrStore(q.key, q.watch(lease.DefaultTTL))
	return w.(*watch)
}

// entry is what the contract shows of one.
func (s *seat) entry(name string) locks.Entry {
	r := &s.record
	e := locks.Entry{
		Name: name, Ref: s.queue.refOf(s.token), State: locks.Waiting, Claim: s.claim(), Since: time.UnixMicro(r.Since),
		Expires: max(s.left, s.rest), TTL: r.TTL, Evicted: s.evicted,
	}
	lease.Owner{Host: r.Owner.Host, PID: r.Owner.PID, UID: r.UID, User: r.User, Runs: r.Runs, Command: r.Command}.Describe(&e)
	if s.kind != holds {
		return e
	}
	e.State, e.Slots, e.Fence = locks.Holding, r.Slots, r.Fence
	e.Ended = r.Left || (s.left == 0 && s.rest > 0)
	e.Orphaned = !e.Ended && !r.Alone && r.Owner.gone()
	if s.rest > 0 {
		e.HeldTill = time.Now().Add(s.rest)
	}
	return e
}
