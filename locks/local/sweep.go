package local

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// Sweep implements locks.Sweeper: it frees the records of those who are gone,
// and removes the lock files of names that nobody holds or waits for. What
// belongs to other users and may not be changed is left to them.
//
// A file is judged and removed inside its gate. Who has opened it before that
// comes into the gate after it, sees that the path no longer leads to it, and
// joins anew, as after every other removal.
func (s *Store) Sweep(ctx context.Context, olderThan time.Duration) (removed int, err error) {
	d, err := openDirectory(s.path, s.roots, false)
	if err != nil || d.readOnly {
		return 0, err
	}
	defer unix.Close(d.fd)
	files, err := os.ReadDir(d.path)
	if err != nil {
		return 0, &Error{Op: "read directory", Path: d.path, Err: err.(*os.PathError).Err}
	}
	var failed []error
	visit := newVisit(ctx)
	defer visit.end()
	for _, f := range files {
		if !isLockFile(f.Name()) || !f.Type().IsRegular() {
			continue
		}
		n := 0
		err := visit.to(d.path+"/"+f.Name(), func(ctx context.Context) (err error) {
			n, err = d.sweep(ctx, f.Name(), olderThan)
			return err
		})
		removed += n
		if err != nil && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) {
			failed = append(failed, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return removed, errors.Join(failed...)
}

// sweep cleans up one lock file.
func (d *directory) sweep(ctx context.Context, base string, olderThan time.Duration) (removed int, err error) {
	f, err := d.open(base, unix.O_RDWR)
	if f == nil || err != nil {
		return 0, err
	}
	defer f.close()
	if err := f.gate(ctx, unix.F_WRLCK, gateLimit); err != nil {
		return 0, err
	}
	defer f.openGate()
	var st unix.Stat_t
	if err := unix.Fstatat(d.fd, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || !f.same(&st) {
		return 0, nil // somebody else has removed it
	}
	tab, err := f.read()
	if err == errCorrupt {
		if ours, err := f.isGolocks(); err != nil || !ours {
			return 0, err
		}
		tab, err = &table{}, nil // whose locks tell whether it is in use
	}
	if err != nil {
		return 0, err
	}
	used, err := writeLocked(f.fd, waitBase, pathBase-waitBase)
	if err != nil {
		return 0, f.lockError(err)
	}
	var dead []*record
	for i := range tab.records {
		r := &tab.records[i]
		live, err := f.live(r)
		if err != nil {
			return 0, err
		}
		if used = used || live; !live && time.Since(r.sinceTime()) >= olderThan {
			dead = append(dead, r)
		}
	}
	changed := time.Unix(st.Mtim.Unix())
	if !used && len(dead) == len(tab.records) && time.Since(changed) >= olderThan {
		if err := unix.Unlinkat(d.fd, base, 0); err != nil {
			return 0, &Error{Op: "remove", Path: f.path, Err: err}
		}
		return 1, nil
	}
	for i, r := range dead {
		if err := f.vacate(tab, r); err != nil {
			return i, err
		}
	}
	return len(dead), nil
}

// live reports whether a record's entry still waits or holds, if only by its
// time. The caller is
// inside the gate.
func (f *lockFile) live(r *record) (bool, error) {
	locked, err := writeLocked(f.fd, r.lockByte(), 1)
	if err != nil {
		return false, f.lockError(err)
	}
	return locked || r.stays(), nil
}

// isGolocks reports whether a file that cannot be read as a table was one.
func (f *lockFile) isGolocks() (bool, error) {
	var start [len(magic)]byte
	n, err := f.readAt(start[:], 0)
	return n == len(magic) && string(start[:]) == magic, err
}

var _ locks.Sweeper = (*Store)(nil)
