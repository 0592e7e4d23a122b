package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golock/cli/term"
	"golock/internal/held"
	"golock/locks"
	"golock/locks/open"
)

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

func (*cleanCommand) Help() string {
	return `Removes entries of dead processes, lock files that nobody uses, and what else killed
golocks have left; never what is in use. golock works without it: it is for tidiness.

Examples:
  golock clean
  golock clean nightly
  golock clean --older-than 30d -q
        for a monthly crontab line`
}

func (c *cleanCommand) run(out *term.Printer) error {
	lines, err := c.clean()
	if !c.Quiet.on() && len(lines) > 0 {
		if err := printOut(strings.Join(lines, "\n") + "\n"); err != nil {
			return err
		}
	}
	return err
}

// clean removes what crashed golocks have left in the store, and their sockets. It
// says how much that was, a line each.
func (c *cleanCommand) clean() (lines []string, err error) {
	name, given, err := c.lock()
	if err != nil {
		return nil, err
	}
	v, err := resolve(c, nil)
	if err != nil {
		return nil, err
	}
	olderThan := v.Duration("older-than")
	store, _, err := openStore(v)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	sweeper, ok := store.(locks.QueueStore)
	if !ok {
		return nil, usageError{fmt.Errorf("nothing is ever left in the store %s", store.URL())}
	}
	removed, err := sweeper.Sweep(context.Background(), name, olderThan)
	if err == nil || removed > 0 {
		lines = append(lines, fmt.Sprintf("%d removed from %s", removed, store.URL()))
	}
	if given { // sockets have no name
		return lines, err
	}
	dir, dirErr := open.Directory(false)
	if dirErr == nil {
		removed, dirErr = held.Sweep(dir, olderThan)
		if removed > 0 {
			lines = append(lines, fmt.Sprintf("%s removed from %s", several(removed, "socket"), dir))
		}
	}
	return lines, errors.Join(err, dirErr)
}
