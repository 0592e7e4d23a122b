package redis

import (
	"context"

	"golock/locks"
)

var _ locks.Forgetter = (*Store)(nil)

// Forget implements locks.Forgetter.
func (s *Store) Forget(ctx context.Context, name string) error {
	client, err := s.connection.use(defaultTTL)
	if err != nil {
		return err
	}
	defer s.connection.done()
	keys := s.call(list, locks.KeyOf(name)).keys
	if s.target.kind != cluster {
		keys = keys[:len(keys)-1] // the index is for all names
	}
	ctx, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	return s.insist(ctx, func() error {
		bound, cancel := context.WithTimeout(ctx, longestAttempt)
		defer cancel()
		err := client.Del(bound, keys...).Err()
		if err == nil {
			err = client.ZRem(bound, s.index(), name).Err()
		}
		if err != nil {
			return s.judge(err)
		}
		return nil
	})
}
