package local

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// Sweep implements locks.Queue. It frees the records of dead entries, and removes the lock files of
// names that no entry holds or waits for. It leaves out files of other users that it may not change.
//
// Sweep has the gate of a file locked while it judges and removes that file. A process that opened
// the file before locks the gate after that, sees that the path no longer leads to the file, and
// joins again.
func (s *Store) Sweep(ctx context.Context, name string, olderThan time.Duration) (removed int, err error) {
	failed := s.eachTable(ctx, ofName(name), unix.O_RDWR, func(f *lockFile, tab *table) error {
		if f.checkPath() != nil {
			return nil // another process has removed the file
		}
		isUsed := f.isUsed()
		var dead []*record
		for i := range tab.records {
			r := &tab.records[i]
			if f.isLive(r) {
				isUsed = true
				continue
			}
			if time.Since(time.UnixMicro(r.since)) >= olderThan {
				dead = append(dead, r)
			}
		}
		isOld := time.Since(time.Unix(f.stat.Mtim.Unix())) >= olderThan
		if isOld && !isUsed && len(dead) == len(tab.records) {
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
