package main

import (
	"fmt"

	"golock/locks"
	"golock/locks/open"
	"golock/runner"
)

// guard is golock as the guard of a command (see runner.Guard), which no user
// ever calls.
func guard(args []string, out *printer) int {
	err := runner.Guard(args, func(url string) (locks.Attacher, error) {
		store, err := open.Store(url)
		if err != nil {
			return nil, err
		}
		leased, ok := store.(locks.Attacher)
		if !ok {
			return nil, fmt.Errorf("%s has no leases", store.URL())
		}
		return leased, nil
	})
	if err == runner.ErrByHand {
		return out.exit(usageError{err})
	}
	return 0 // nobody is left who would want to know
}
