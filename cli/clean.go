package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golock/cli/term"
	"golock/runner/held"
	"golock/signals"
)

type cleanCommand struct {
	lockArgument
	storeFlags
	OlderThan durationFlag `name:"older-than" brief:"" file:"no" placeholder:"D" help:"Remove only entries that began, or whose lease ended, at least D ago, and files unused for D."`
	Quiet     boolFlag     `name:"quiet" short:"q" brief:"" help:"Do not print how many entries were removed."`
}

func (*cleanCommand) Help() string {
	return `Removes entries of dead processes, lock files that nobody uses, and other remains of
killed golocks, but nothing that is in use. golock works without it.

Examples:
  golock clean
  golock clean nightly
  golock clean --older-than 30d -q
        for a monthly crontab line`
}

// run removes what crashed golocks have left in the store, and their sockets.
func (c *cleanCommand) run(out *term.Printer) error {
	signals.EndByDefault()
	v, store, err := resolveStore(c)
	if err != nil {
		return err
	}
	defer store.Close()
	olderThan := v.Duration("older-than")
	if v.Err() != nil {
		return v.Err()
	}
	out.Quiet = c.Quiet.on()
	warn(out, v)
	if store.IsPlain {
		return usageError{fmt.Errorf("nothing is ever left in the store %s", store.URL())}
	}
	text := ""
	removed, err := store.Can.Queue.Sweep(context.Background(), c.Name.text(), olderThan)
	if err == nil || removed > 0 {
		text = fmt.Sprintf("%d removed from %s\n", removed, store.URL())
	}
	if !c.Name.given() { // a socket does not tell the name of its lock
		socketText, socketErr := sweepSockets(olderThan)
		text += socketText
		err = errors.Join(err, socketErr)
	}
	if c.Quiet.on() {
		return err
	}
	return errors.Join(err, printOut(text))
}

// sweepSockets removes the sockets of killed golocks, and returns a line that counts them.
func sweepSockets(olderThan time.Duration) (text string, err error) {
	dir, err := existingSocketDir()
	if err != nil {
		return "", nil // without the directory there are no sockets, whatever store was named
	}
	removed, err := held.Sweep(dir, olderThan)
	if removed > 0 {
		text = fmt.Sprintf("%s removed from %s\n", several(removed, "socket"), dir)
	}
	return text, err
}
