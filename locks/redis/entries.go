package redis

import (
	"context"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"golock/locks"
	"golock/locks/lease"
)

// Entries implements locks.Store.
func (s *Store) Entries(ctx context.Context, name string) (all []locks.Entry, err error) {
	names, err := s.names(ctx, name)
	var invalid []locks.InvalidEntry
	for _, name := range names {
		entries, err := s.list(ctx, locks.KeyOf(name), name)
		all, invalid = append(all, entries...), append(invalid, locks.AsInvalid(err)...)
		if err != nil && len(locks.AsInvalid(err)) == 0 {
			return all, err
		}
		if len(all) > locks.MaxListed {
			return all[:locks.MaxListed], locks.ListingCut(s.URL())
		}
	}
	if err == nil {
		err = lease.Located(s.URL(), lease.Invalid(invalid))
	}
	return all, err
}

// Find implements locks.Queue.
func (s *Store) Find(ctx context.Context, ref locks.Ref) (locks.Entry, error) {
	return ref.In(s.list(ctx, ref.Key, unknownName))
}

const (
	allNames    = "" // stands for all names of the index
	unknownName = "" // stands for a name of which only the key is known
)

// names returns the given name, or the names of the index for allNames.
func (s *Store) names(ctx context.Context, name string) ([]string, error) {
	if name != allNames {
		return []string{name}, nil
	}
	names, err := ask(ctx, s, func(ctx context.Context, client goredis.UniversalClient) ([]string, error) {
		return client.ZRange(ctx, s.index(), 0, -1).Result()
	})
	slices.Sort(names)
	return names, err
}

// list returns the live entries of a lock. The name may be unknownName.
func (s *Store) list(ctx context.Context, key locks.Key, name string) ([]locks.Entry, error) {
	r, err := ask(ctx, s, s.runScript(call{key: key, Mode: "list", Name: name}))
	if err != nil {
		return nil, err
	}
	entries, flawed := entriesOf(r.Entries, r.Name, key)
	locks.Arrange(entries)
	return entries, lease.Located(s.URL(), lease.Invalid(append(invalid(r.Flaws, r.Name, key), flawed...)))
}

// Sweep implements locks.Queue. It removes the entries whose lease ended more than olderThan
// ago. It also removes from the index the names of which nothing is stored, but not in a Cluster,
// where the script cannot reach the index. Keys expire by themselves.
func (s *Store) Sweep(ctx context.Context, name string, olderThan time.Duration) (removed int, err error) {
	names, err := s.names(ctx, name)
	var left []locks.InvalidEntry
	for _, one := range names {
		c := call{key: locks.KeyOf(one), Mode: "sweep", Name: one, Age: millis(olderThan.Milliseconds())}
		r, err := ask(ctx, s, s.runScript(c))
		if err != nil {
			return removed, err
		}
		removed += r.Removed
		left = append(left, invalid(r.Flaws, one, c.key)...)
	}
	if err == nil {
		err = lease.Located(s.URL(), lease.Invalid(left))
	}
	return removed, err
}

// entriesOf converts listed entries of the lock with that name and key. It returns those that are invalid
// separately.
func entriesOf(all []listed, name string, key locks.Key) (entries []locks.Entry, flawed []locks.InvalidEntry) {
	for _, l := range all {
		r, err := readRecord(l.Record, l.State == locks.Holding)
		if err != nil {
			flawed = append(flawed, invalid([]flaw{{l.ID, err.Error()}}, name, key)...)
			continue
		}
		e := locks.Entry{
			Name: name, State: l.State,
			Claim:   locks.Claim{Weight: r.Weight, Max: r.Max, Priority: r.Priority, Ticket: r.Ticket},
			Expires: l.Left.duration(), TTL: r.TTL.duration(),
			Ended: l.Ended, Evicted: l.By,
		}
		e.SetAge(l.Age.duration())
		r.Owner.Describe(&e)
		if l.Hold > 0 {
			e.HeldTill = time.Now().Add(l.Hold.duration())
		}
		e.Ref, _ = locks.ParseRef(key.String() + "-" + l.ID)
		if l.State == locks.Holding {
			g := r.grant(e.Ref)
			e.Slots, e.Fence = g.Slots, g.Fence
		}
		entries = append(entries, e)
	}
	return entries, flawed
}
