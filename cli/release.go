package cli

import "golock/cli/term"

// releaseCommand is golock release.
type releaseCommand struct {
	storeFlags
	ID textFlag `arg:"" name:"id" help:"The ID that acquire printed."`
}

// renewCommand is golock renew.
type renewCommand struct {
	storeFlags
	ID textFlag `arg:"" name:"id" help:"The ID that acquire printed."`
}

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

func (c *releaseCommand) run(out *term.Printer) int {
	return statusCode(out, withEntry(c, c.ID.text(), releaseEntry), false)
}

func (c *renewCommand) run(out *term.Printer) int {
	return statusCode(out, withEntry(c, c.ID.text(), renewEntry), false)
}
