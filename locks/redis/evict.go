package redis

import (
	"context"

	"golock/locks"
)

var _ locks.Evicter = (*Store)(nil)

// Evict implements locks.Evicter. The entry is told by what it listens to, and
// by the answer to its next question if that is lost.
func (s *Store) Evict(ctx context.Context, ref locks.Ref, by string) error {
	e := &entry{store: s, ref: ref, ttl: defaultTTL, by: by}
	var a answer
	err := s.insist(ctx, func() (err error) {
		a, _, err = e.ask(ctx, evict)
		return err
	})
	if err == nil && a.word != "marked" {
		err = locks.ErrLost
	}
	return err
}
