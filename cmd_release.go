package main

// releaseCommand is the grammar of golock release.
type releaseCommand struct {
	idFlags
	ID word `arg:"" name:"id"`
}

func (c *releaseCommand) run(out *printer) int {
	return out.exitAsk(c.ask(string(c.ID), giveBack), false)
}
