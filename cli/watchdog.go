package cli

import (
	"fmt"

	"golock/cli/term"
	"golock/locks"
	"golock/locks/open"
	"golock/runner"
)

// Watchdog is golock as the watchdog of a command (see runner.Watchdog).
func Watchdog(argv []string) int {
	return recovered(func(*term.Printer) error {
		if err := runner.Watchdog(argv, openLeaseStore); err == runner.ErrNotSpawned {
			return usageError{err}
		}
		return nil // nobody is left to be told
	})
}

func openLeaseStore(url string) (locks.LeaseStore, error) {
	store, err := open.Store(url)
	if err != nil {
		return nil, err
	}
	leased, ok := store.(locks.LeaseStore)
	if !ok {
		return nil, fmt.Errorf("%s has no leases", store.URL())
	}
	return leased, nil
}
