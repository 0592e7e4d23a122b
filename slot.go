package main

import (
	"golock/config"
	"golock/runner"
)

// slotFlags are those that say which slot is asked for, and how: of golock run
// and golock acquire alike. What they mean for users is in help.go.
type slotFlags struct {
	Name   *word
	Store  *word
	Config *word

	Max       *word
	Shared    toggle `short:"s"`
	Exclusive toggle `short:"x"`
	FlockE    toggle `name:"exclusive-lock" short:"e" hidden:""`
	Weight    *word

	Wait             *word  `short:"w"`
	NoWait           toggle `short:"n" aliases:"nonblock,nb"`
	ConflictExitCode *word  `short:"E"`

	Priority *word
	MaxQueue *word
	Replace  *word
	Hold     *word

	TTL      *word `name:"ttl"`
	ShowArgs toggle
}

func (f *slotFlags) addTo(given flags) {
	given.text("name", f.Name)
	given.text("store", f.Store)
	given.text("config", f.Config)
	given.text("max", f.Max)
	given.toggle("shared", f.Shared)
	given.toggle("exclusive", f.Exclusive, f.FlockE)
	given.text("weight", f.Weight)
	given.text("wait", f.Wait)
	given.toggle("no-wait", f.NoWait)
	given.text("conflict-exit-code", f.ConflictExitCode)
	given.text("priority", f.Priority)
	given.text("max-queue", f.MaxQueue)
	given.text("replace", f.Replace)
	given.text("hold", f.Hold)
	given.text("ttl", f.TTL)
	given.toggle("show-args", f.ShowArgs)
}

// logFlags say how much a command tells.
type logFlags struct {
	Verbose   toggle `short:"v"`
	Quiet     toggle `short:"q"`
	LogFormat *word
}

func (f *logFlags) addTo(given flags) {
	given.toggle("verbose", f.Verbose)
	given.toggle("quiet", f.Quiet)
	given.text("log-format", f.LogFormat)
}

// slot reads what is asked of the store, for run.Argv. It fills run and gives
// the exit code for a slot that is not to be had.
func slot(v *config.Values, run *runner.Run, out *printer) (conflictCode int, err error) {
	if run.Store, err = storeOf(v); err != nil {
		return 0, err
	}
	run.Address = addressOf(v)
	if err := request(v, run, out); err != nil {
		return 0, err
	}
	if err := queueing(v, run, out); err != nil {
		return 0, err
	}
	return v.Int("conflict-exit-code", exitBusy, 0, 255)
}
