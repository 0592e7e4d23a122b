package local

import (
	"context"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// Holds implements locks.Witness. A slot whose golock is gone counts as held as
// long as somebody keeps it.
func (s *Store) Holds(ctx context.Context, ref locks.Ref) error {
	d, err := openDirectory(s.path, s.roots, false)
	if err != nil {
		return err
	}
	if d.readOnly {
		return locks.ErrLost
	}
	defer unix.Close(d.fd)
	files, err := d.ofKey(ref.Key)
	if err != nil {
		return err
	}
	var failed error // with a file that may be the lock's or not
	for _, base := range files {
		tables, err := d.snapshot(ctx, base, nil)
		if err != nil {
			failed = err
		}
		for _, tab := range tables {
			for _, e := range s.list(tab) {
				switch {
				case e.Ref != ref || e.State != locks.Holding || e.Ended:
				case e.Evicted != "":
					return &locks.EvictedError{By: e.Evicted}
				default:
					return nil
				}
			}
		}
	}
	return orLost(failed)
}
