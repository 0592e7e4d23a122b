package local

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// Sweep implements locks.Queue: it frees the records of those who are gone, and
// removes the lock files of names that nobody holds or waits for. What belongs to other
// users and may not be changed is left to them.
//
// A file is judged and removed inside its gate. Who has opened it before comes into the
// gate after that, sees that the path no longer leads to it, and joins anew.
func (s *Store) Sweep(ctx context.Context, name string, olderThan time.Duration) (removed int, err error) {
	failed := s.eachTable(ctx, ofName(name), unix.O_RDWR, func(f *lockFile, tab *table) error {
		if f.checkPath() != nil {
			return nil // somebody else has removed it
		}
		used := f.isUsed()
		var dead []*record
		for i := range tab.records {
			r := &tab.records[i]
			live := f.isLive(r)
			if used = used || live; !live && time.Since(time.UnixMicro(r.since)) >= olderThan {
				dead = append(dead, r)
			}
		}
		if !used && len(dead) == len(tab.records) && time.Since(time.Unix(f.stat.Mtim.Unix())) >= olderThan {
			if err := f.failed("remove", unix.Unlinkat(f.dir.fd, f.base, 0)); err != nil {
				return err
			}
			removed++
			return nil
		}
		for _, r := range dead {
			if err := f.clear(r); err != nil {
				return err
			}
			removed++
		}
		return nil
	})
	return removed, locks.JoinSome(slices.DeleteFunc(failed, func(err error) bool {
		return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, errDamaged)
	}))
}
