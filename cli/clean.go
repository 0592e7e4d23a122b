package cli

import (
	"context"
	"errors"
	"fmt"

	"golock/cli/term"
	"golock/internal/held"
	"golock/locks"
	"golock/locks/open"
)

// cleanCommand is golock clean.
type cleanCommand struct {
	lockArgument
	storeFlags
	olderThanFlag
	Quiet boolFlag `name:"quiet" short:"q" help:"Print no number."`
}

// olderThanFlag selects by age.
type olderThanFlag struct {
	OlderThan durationFlag `name:"older-than" file:"no" placeholder:"D" help:"Only what is at least so old: has held or waited for so long, or has not been in use."`
}

// Help implements kong.HelpProvider.
func (*cleanCommand) Help() string {
	return `Removes entries of dead processes, lock files that nobody uses, and what else killed
golocks have left; never what is in use. golock works without it: it is for tidiness.

Examples:
  golock clean
  golock clean nightly
  golock clean --older-than 30d -q
        for a monthly crontab line`
}

func (c *cleanCommand) run(out *term.Printer) int {
	removed, err := c.clean()
	if !c.Quiet.on() && (err == nil || removed > 0) {
		if code := printOut(out, fmt.Sprintf("%d removed\n", removed)); code != 0 {
			return code
		}
	}
	if err != nil {
		return exit(out, err)
	}
	return 0
}

// clean removes what crashed golocks have left in the store, and their sockets.
func (c *cleanCommand) clean() (removed int, err error) {
	name, given, err := c.lock()
	if err != nil {
		return 0, err
	}
	v, err := resolveWithoutName(c, nil)
	if err != nil {
		return 0, err
	}
	olderThan, err := v.Duration("older-than")
	if err != nil {
		return 0, err
	}
	store, err := openStore(v)
	if err != nil {
		return 0, err
	}
	defer store.Close()
	sweeper, ok := store.(locks.QueueStore)
	if !ok {
		return 0, usageError{fmt.Errorf("nothing is ever left in the store %s", store.URL())}
	}
	removed, err = sweeper.Sweep(context.Background(), name, olderThan)
	if given { // sockets have no name
		return removed, err
	}
	dir, dirErr := open.Directory(false)
	if dirErr == nil {
		var n int
		n, dirErr = held.Sweep(dir, olderThan)
		removed += n
	}
	return removed, errors.Join(err, dirErr)
}
