package local

import (
	"context"
	"os"
	"strings"

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
	files, err := os.ReadDir(d.path)
	if err != nil {
		return &Error{Op: "read directory", Path: d.path, Err: err.(*os.PathError).Err}
	}
	suffix := "." + ref.Key.String() + ".lock"
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), suffix) {
			continue
		}
		tables, err := d.snapshot(ctx, f.Name(), nil)
		if err != nil {
			return err
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
	return locks.ErrLost
}
