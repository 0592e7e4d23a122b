// A golock that waits or holds must sleep. Without this setting the Go runtime would wake it to check the
// number of CPUs.
//
//go:debug updatemaxprocs=0

// Command golock limits how many commands run at a time: it takes a slot of a lock, runs a command,
// and gives the slot back.
package main

import (
	"os"

	"golock/cli"
	"golock/cli/check"
	"golock/runner"
	"golock/signals"

	_ "golock/internal/fatal" // a failure of the Go runtime prints one line and exits with 70
)

func main() {
	signals.Stay()
	end := run(os.Args)
	if end.Signal != 0 {
		signals.DieOf(end.Signal) // returns if the kernel spares process 1 of a container
	}
	os.Exit(end.Code)
}

// run does the work of the process and returns how it ends. golock starts itself under other names: as
// the watchdog of a command, as the releaser of a dead golock's slot, as the holder process of golock
// acquire, and as a child of golock check.
func run(argv []string) cli.Exit {
	switch {
	case len(argv) == 0:
		return cli.Main(nil)
	case argv[0] == runner.WatchdogName:
		return cli.Watchdog(argv)
	case argv[0] == runner.ReleaserName:
		return cli.Releaser(argv)
	case argv[0] == cli.HolderName:
		return cli.Holder()
	case len(argv) > 1 && argv[1] == check.ChildName:
		return cli.CheckChild(argv[2:])
	}
	return cli.Main(argv[1:])
}
