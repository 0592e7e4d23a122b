package cli

import (
	"context"
	"errors"

	"golock/cli/term"
	"golock/locks"
)

// releaseCommand is golock release.
type releaseCommand struct{ entryFlags }

// renewCommand is golock renew.
type renewCommand struct{ entryFlags }

// Help implements kong.HelpProvider.
func (*releaseCommand) Help() string {
	return `Only what golock acquire took can be released; a run does that itself.

Examples:
  golock release "$id"

Exit codes: 0 released, 79 not held any more, 69 the store cannot be reached`
}

// Help implements kong.HelpProvider.
func (*renewCommand) Help() string {
	return `Examples:
  golock renew "$id"

Exit codes: 0 renewed, 79 not held any more, 69 the store cannot be reached`
}

func (c *releaseCommand) run(*term.Printer) error { return c.do(c, releaseEntry) }

func (c *renewCommand) run(*term.Printer) error { return c.do(c, renewEntry) }

// do does something with the entry.
func (a *idArgument) do(command any, action func(context.Context, locks.Ref, locks.Store) error) error {
	ref, given, err := a.id()
	switch {
	case err != nil:
		return err
	case !given:
		return usageError{errors.New("missing ID: what golock acquire printed")}
	}
	return withEntry(command, ref, action)
}
