package local

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks/kernel"
)

// Sweep implements locks.QueueStore: it frees the records of those who are gone, and
// removes the lock files of names that nobody holds or waits for. What belongs to other
// users and may not be changed is left to them.
//
// A file is judged and removed inside its gate. Who has opened it before comes into the
// gate after that, sees that the path no longer leads to it, and joins anew.
func (s *Store) Sweep(ctx context.Context, name string, olderThan time.Duration) (removed int, err error) {
	d, err := s.existingDirectory()
	if d == nil {
		return 0, err
	}
	defer d.close()
	files, err := d.filesOf(name)
	if err != nil {
		return 0, err
	}
	err = d.eachFile(ctx, files, func(ctx context.Context, base string) error {
		var st unix.Stat_t
		if unix.Fstatat(d.fd, base, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
			return nil
		}
		n, err := d.sweep(ctx, base, olderThan)
		removed += n
		if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, errDamaged) {
			return nil
		}
		return err
	})
	return removed, err
}

// sweep cleans up one lock file.
func (d *directory) sweep(ctx context.Context, base string, olderThan time.Duration) (removed int, err error) {
	err = d.withTable(ctx, base, unix.O_RDWR, func(f *lockFile, tab *table) error {
		var st unix.Stat_t
		if err := unix.Fstatat(d.fd, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || !kernel.SameFile(&st, &f.stat) {
			return nil // somebody else has removed it
		}
		if tab == nil {
			var start [len(magic)]byte
			if n, err := f.readAt(start[:], 0); err != nil || string(start[:n]) != magic {
				return err // it was no lock file
			}
			tab = &table{}
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
		if !used && len(dead) == len(tab.records) && time.Since(time.Unix(st.Mtim.Unix())) >= olderThan {
			err := f.failed("remove", unix.Unlinkat(d.fd, base, 0))
			if err == nil {
				removed = 1
			}
			return err
		}
		for _, r := range dead {
			if err := f.clear(tab, r); err != nil {
				return err
			}
			removed++
		}
		return nil
	})
	return removed, err
}
