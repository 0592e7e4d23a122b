package leasefile

import (
	"context"
	"errors"
	"os"

	"golock/locks"
)

var _ locks.Forgetter = (*Store)(nil)

// Forget implements locks.Forgetter.
func (s *Store) Forget(ctx context.Context, name string) error {
	_, err := await(ctx, func() (struct{}, error) {
		path := s.keyPath(locks.KeyOf(name))
		return struct{}{}, errors.Join(os.RemoveAll(path), os.RemoveAll(path+usedSuffix))
	}, func(struct{}, error) {})
	return err
}
