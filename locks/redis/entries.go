package redis

import (
	"cmp"
	"context"
	_ "embed"
	"iter"
	"slices"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"golock/locks"
	"golock/locks/lease"
)

// Entries implements locks.Store.
func (s *Store) Entries(ctx context.Context, name string) iter.Seq2[locks.Entry, error] {
	return lease.Entries(ctx, func(ctx context.Context) (all []locks.Entry, err error) {
		names := []string{name}
		if name == "" {
			if names, err = s.names(ctx); err != nil {
				return nil, err
			}
		}
		for _, name := range names {
			entries, err := s.list(ctx, locks.KeyOf(name), name)
			if err != nil {
				return all, err
			}
			all = append(all, entries...)
		}
		return all, nil
	})
}

// Find implements locks.QueueStore.
func (s *Store) Find(ctx context.Context, ref locks.Ref) (locks.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, lease.ListLimit)
	defer cancel()
	entries, err := s.list(ctx, ref.Key, "")
	if err != nil {
		return locks.Entry{}, err
	}
	return locks.FindEntry(entries, ref)
}

// names reads the index.
func (s *Store) names(ctx context.Context) (names []string, err error) {
	err = s.try(ctx, func(ctx context.Context, client goredis.UniversalClient) (err error) {
		names, err = client.ZRange(ctx, s.index(), 0, -1).Result()
		return err
	})
	slices.Sort(names)
	return names, err
}

// list gives the live entries of one lock. Its name may not be known.
func (s *Store) list(ctx context.Context, key locks.Key, name string) ([]locks.Entry, error) {
	k := s.call(list, key)
	k.name = name
	var a reply
	err := lease.Retry(ctx, s.URL(), func() (err error) {
		a, err = s.once(ctx, lease.DefaultTTL, k)
		return err
	})
	if err != nil {
		return nil, lease.Located(s.URL(), err)
	}
	entries := entriesOf(a.Entries, cmp.Or(name, a.Name), key)
	lease.Arrange(entries)
	return entries, nil
}

// sweepScript removes what is left of one lock.
//
//go:embed sweep.lua
var sweepScript string

// Sweep implements locks.QueueStore: it removes the entries whose lease ended olderThan
// ago, and lines of the index whose names nothing is stored of. Keys end by
// themselves.
func (s *Store) Sweep(ctx context.Context, name string, olderThan time.Duration) (removed int, err error) {
	names := []string{name}
	if name == "" {
		if names, err = s.names(ctx); err != nil {
			return 0, err
		}
	}
	for _, one := range names {
		keys := s.call(list, locks.KeyOf(one)).keys
		err := s.try(ctx, func(ctx context.Context, client goredis.UniversalClient) error {
			answer, err := client.Eval(ctx, sweepScript, keys, olderThan.Milliseconds(), one, format).Result()
			if found, ok := answer.(string); ok {
				return &lease.Refusal{Err: &FormatError{Found: found}}
			}
			n, _ := answer.(int64)
			removed += int(n)
			return err
		})
		if err != nil {
			return removed, err
		}
	}
	if name != "" {
		return removed, nil
	}
	// In a Cluster the index is not within the script's reach: its lines end with
	// their time.
	err = s.try(ctx, func(ctx context.Context, client goredis.UniversalClient) error {
		until := time.Now().Add(-olderThan).UnixMilli()
		n, err := client.ZRemRangeByScore(ctx, s.index(), "-inf", strconv.FormatInt(until, 10)).Result()
		removed += int(n)
		return err
	})
	return removed, err
}
