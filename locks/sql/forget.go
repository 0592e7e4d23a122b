package sql

import (
	"context"
	"errors"

	"golock/locks"
)

var _ locks.Forgetter = (*Store)(nil)

// Forget implements locks.Forgetter.
func (s *Store) Forget(ctx context.Context, name string) error {
	l := &line{store: s}
	defer l.close()
	err := s.once(ctx, l, func(ctx context.Context) error {
		_, err := l.conn.Run(ctx, "START TRANSACTION;DELETE FROM "+s.table+" WHERE lock_key='"+locks.KeyOf(name).String()+"';COMMIT")
		return err
	})
	if errors.Is(err, errNoTable) {
		return nil
	}
	return err
}
