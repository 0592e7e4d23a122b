package redis

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"iter"
	"os"
	"slices"
	"time"

	"golock/locks"
)

// listLimit bounds a list whose caller sets no bound.
const listLimit = 10 * time.Second

// Entries implements locks.Store.
func (s *Store) Entries(ctx context.Context, name string) iter.Seq2[locks.Entry, error] {
	return func(yield func(locks.Entry, error) bool) {
		ctx, cancel := context.WithTimeout(ctx, listLimit)
		defer cancel()
		names := []string{name}
		if name == "" {
			var err error
			if names, err = s.names(ctx); err != nil {
				yield(locks.Entry{}, err)
				return
			}
		}
		for _, name := range names {
			entries, err := s.list(ctx, name)
			if err != nil {
				yield(locks.Entry{}, err)
				return
			}
			for _, e := range entries {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// names reads the index.
func (s *Store) names(ctx context.Context) (names []string, err error) {
	client, err := s.connection.use(defaultTTL)
	if err != nil {
		return nil, err
	}
	defer s.connection.done()
	err = s.insist(ctx, func() error {
		bound, cancel := context.WithTimeout(ctx, longestAttempt)
		defer cancel()
		if names, err = client.ZRange(bound, s.index(), 0, -1).Result(); err != nil {
			return s.judge(err)
		}
		return nil
	})
	slices.Sort(names)
	return names, err
}

// list gives the live entries of one name: holders by slot, then waiters in
// their order.
func (s *Store) list(ctx context.Context, name string) ([]locks.Entry, error) {
	return s.listKey(ctx, locks.KeyOf(name), name)
}

// listKey is list for a name of which only the key may be known.
func (s *Store) listKey(ctx context.Context, key locks.Key, name string) ([]locks.Entry, error) {
	k := s.call(list, key)
	k.name = name
	var a answer
	err := s.insist(ctx, func() (err error) {
		a, err = s.once(ctx, defaultTTL, k)
		return err
	})
	if err != nil {
		return nil, err
	}
	entries := make([]locks.Entry, 0, len(a.entries))
	position := 0
	for _, l := range a.entries {
		e := l.entry(cmp.Or(name, a.name), key)
		if e.State == locks.Waiting {
			position++
			e.Position = position
		}
		entries = append(entries, e)
	}
	slices.SortStableFunc(entries, func(a, b locks.Entry) int {
		if len(a.Slots) == 0 || len(b.Slots) == 0 {
			return len(b.Slots) - len(a.Slots)
		}
		return a.Slots[0] - b.Slots[0]
	})
	return entries, nil
}

// Find implements locks.Attacher.
func (s *Store) Find(ctx context.Context, ref locks.Ref) (locks.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	entries, err := s.listKey(ctx, ref.Key, "")
	if err != nil {
		return locks.Entry{}, err
	}
	return locks.Pick(entries, ref)
}

// entry is what the contract shows of a listed one.
func (l *listed) entry(name string, key locks.Key) locks.Entry {
	var d detail
	_ = json.Unmarshal([]byte(l.record.detail), &d)
	if host, err := os.Hostname(); err != nil || host != d.Host {
		d.UID = -1
	}
	e := locks.Entry{
		Name: name, Ref: locks.Ref{Key: key}, State: l.state, Claim: l.record.claim, Host: d.Host, PID: d.PID,
		UID: d.UID, User: d.User, Command: d.Command, Since: time.UnixMicro(l.record.since), Expires: l.left,
		TTL: l.record.ttl, Ended: l.ended, Evicted: l.by, Runs: d.Runs,
	}
	if l.stays > 0 {
		e.HeldTill = time.Now().Add(l.stays)
	}
	if id, err := hex.DecodeString(l.id); err == nil {
		copy(e.Ref.ID[:], id)
	}
	if l.state == locks.Holding {
		e.Slots, e.Fence = l.record.slots, l.record.fence
	}
	return e
}
