package main

// renewCommand is the grammar of golock renew.
type renewCommand struct {
	idFlags
	ID word `arg:"" name:"id"`
}

func (c *renewCommand) run(out *printer) int {
	return out.exitAsk(c.ask(string(c.ID), stillHeld), false)
}
