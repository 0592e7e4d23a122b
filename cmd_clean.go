package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golock/config"
	"golock/held"
	"golock/locks"
	"golock/locks/open"
)

// cleanCommand is the grammar of golock clean.
type cleanCommand struct {
	idFlags
	OlderThan *word
	Quiet     toggle `short:"q"`
}

func (c *cleanCommand) run(out *printer) int {
	removed, err := c.clean()
	if c.Quiet != "true" && (err == nil || removed > 0) {
		if _, err := fmt.Printf("%d removed\n", removed); err != nil {
			return out.exit(outputError{err})
		}
	}
	if err != nil {
		return out.exit(err)
	}
	return 0
}

// clean removes what crashed golocks have left: in the store, and where they
// had listened.
func (c *cleanCommand) clean() (removed int, err error) {
	olderThan := time.Duration(0)
	if c.OlderThan != nil {
		if olderThan, err = config.ParseDuration(string(*c.OlderThan)); err != nil {
			return 0, usageError{fmt.Errorf("--older-than: %w", err)}
		}
	}
	store, err := c.store()
	if err != nil {
		return 0, err
	}
	defer store.Close()
	sweeper, ok := store.(locks.Sweeper)
	if !ok {
		return 0, usageError{fmt.Errorf("nothing is ever left in the store %s", store.URL())}
	}
	removed, err = sweeper.Sweep(context.Background(), olderThan)
	dir, dirErr := open.Directory(false)
	if dirErr == nil {
		var n int
		n, dirErr = held.Sweep(dir, olderThan)
		removed += n
	}
	return removed, errors.Join(err, dirErr)
}
