package local

import (
	"context"

	"golang.org/x/sys/unix"

	"golock/locks"
)

var _ locks.Forgetter = (*Store)(nil)

// Forget implements locks.Forgetter.
func (s *Store) Forget(_ context.Context, name string) error {
	d, err := openDirectory(s.path, s.roots, false)
	if err != nil || d.readOnly {
		return err
	}
	defer unix.Close(d.fd)
	base := fileName(name)
	if err := unix.Unlinkat(d.fd, base, 0); err != nil && err != unix.ENOENT {
		return &Error{Op: "remove", Path: d.path + "/" + base, Err: err}
	}
	return nil
}
