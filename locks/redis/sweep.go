package redis

import (
	"context"
	_ "embed"
	"strconv"
	"time"

	"golock/locks"
)

// sweepScript removes what is left of a name; see there.
//
//go:embed sweep.lua
var sweepScript string

var _ locks.Sweeper = (*Store)(nil)

// Sweep implements locks.Sweeper: it removes the entries whose lease ended
// olderThan ago, and lines of the index whose names nothing is stored of. Keys
// end by themselves.
func (s *Store) Sweep(ctx context.Context, olderThan time.Duration) (removed int, err error) {
	bound, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	names, err := s.names(bound)
	if err != nil {
		return 0, err
	}
	client, err := s.connection.use(defaultTTL)
	if err != nil {
		return 0, err
	}
	defer s.connection.done()
	count := func(ask func(context.Context) (int64, error)) error {
		ctx, cancel := context.WithTimeout(ctx, listLimit)
		defer cancel()
		return s.insist(ctx, func() error {
			bound, cancel := context.WithTimeout(ctx, longestAttempt)
			defer cancel()
			n, err := ask(bound)
			if err != nil {
				return s.judge(err)
			}
			removed += int(n)
			return nil
		})
	}
	for _, name := range names {
		keys := s.call(list, locks.KeyOf(name)).keys
		err := count(func(bound context.Context) (int64, error) {
			reply, err := client.Eval(bound, sweepScript, keys, olderThan.Milliseconds(), name, format).Result()
			if found, ok := reply.(string); ok {
				return 0, &refusal{err: &FormatError{Found: found}}
			}
			n, _ := reply.(int64)
			return n, err
		})
		if err != nil {
			return removed, err
		}
	}
	// In a Cluster the index is not within the script's reach: its lines end
	// with their time.
	return removed, count(func(bound context.Context) (int64, error) {
		until := time.Now().Add(-olderThan).UnixMilli()
		return client.ZRemRangeByScore(bound, s.index(), "-inf", strconv.FormatInt(until, 10)).Result()
	})
}
