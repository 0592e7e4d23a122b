package leasefile

import (
	"context"
	"errors"
	"os"
	"strings"

	"golock/locks"
)

var _ locks.Forgetter = (*Store)(nil)

// Forget implements locks.Forgetter.
func (s *Store) Forget(ctx context.Context, name string) error {
	_, err := await(ctx, func() (struct{}, error) {
		path := s.keyPath(locks.KeyOf(name))
		err := errors.Join(os.RemoveAll(path), os.RemoveAll(path+usedSuffix))
		names, _ := readNames(s.dir + "/.")
		for _, begun := range names { // by who was killed then
			if strings.HasPrefix(begun, newPrefix+locks.KeyOf(name).String()+".") {
				err = errors.Join(err, os.RemoveAll(s.dir+"/"+begun))
			}
		}
		return struct{}{}, err
	}, func(struct{}, error) {})
	return err
}
