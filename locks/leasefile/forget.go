package leasefile

import (
	"context"
	"os"

	"golock/locks"
)

var _ locks.Forgetter = (*Store)(nil)

// Forget implements locks.Forgetter.
func (s *Store) Forget(ctx context.Context, name string) error {
	_, err := await(ctx, func() (struct{}, error) {
		return struct{}{}, os.RemoveAll(s.keyPath(locks.KeyOf(name)))
	}, func(struct{}, error) {})
	return err
}
