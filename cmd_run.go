package main

import (
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"golock/config"
	"golock/locks"
	"golock/locks/open"
	"golock/runner"
	"golock/signals"
)

// runCommand is the grammar of golock run; what the flags mean for users is in
// help.go. Values are text here: they are understood together with the
// environment and the files.
type runCommand struct {
	slotFlags

	Timeout *word `hidden:""`

	TimeLimit *word
	KillAfter *word
	Signal    *word
	Rewrite   words
	OkExit    words
	Tree      toggle
	Close     toggle `short:"o"`
	Exec      toggle `short:"F" aliases:"no-fork"`

	OnLost *word
	Report *word

	logFlags

	Command rest `arg:"" optional:"" passthrough:"partial"`
}

func (c *runCommand) flags() flags {
	f := flags{}
	c.slotFlags.addTo(f)
	f.text("time-limit", c.TimeLimit)
	f.text("kill-after", c.KillAfter)
	f.text("signal", c.Signal)
	f.list("rewrite", c.Rewrite)
	f.list("ok-exit", c.OkExit)
	f.toggle("tree", c.Tree)
	f.toggle("close", c.Close)
	f.toggle("exec", c.Exec)
	f.text("on-lost", c.OnLost)
	f.text("report", c.Report)
	c.logFlags.addTo(f)
	return f
}

// runSettings are those of a run that are not the runner's business.
type runSettings struct {
	conflictCode int
	okExit       []int
	report       *report // nil: none
}

func (c *runCommand) run(out *printer) int {
	terminal := runner.HasTerminal()
	relay, err := signals.NewRelay(terminal)
	if err != nil {
		return out.exit(err)
	}
	relay.Catch()
	run := &runner.Run{Relay: relay, Terminal: terminal, Env: os.Environ()}
	own, err := c.settle(run, out)
	if err != nil {
		return out.exit(err)
	}
	run.Log, run.Say, run.Waits = out.log, out.say, out.waits()
	run.Sockets = func() (string, error) { return open.Directory(true) }
	o := run.Do()
	code := own.tell(run, o, out)
	if own.report != nil {
		if err := own.report.append(run, o, code); err != nil {
			out.warn(err.Error())
		}
	}
	return code
}

// tell tells how the run went and gives its exit code.
func (own *runSettings) tell(run *runner.Run, o runner.Outcome, out *printer) int {
	code := codeOfRun(o)
	switch o.Kind {
	case runner.Ended:
		if slices.Contains(own.okExit, code) {
			return 0
		}
	case runner.Busy:
		code = own.conflictCode
		if code != 0 && !out.quiet {
			out.fail(o.Err)
		} else {
			out.step(o.Err.Error())
		}
	case runner.Interrupted:
		out.step("told to stop while waiting", "signal", signals.Name(o.Signal))
	case runner.TimedOut:
		if !out.quiet {
			out.fail(fmt.Errorf("%q was stopped at its time limit of %v", run.Request.Name, run.TimeLimit))
		}
	default:
		out.fail(o.Err)
	}
	return code
}

// settle finds out what is asked for and checks it. It fills run.
func (c *runCommand) settle(run *runner.Run, out *printer) (*runSettings, error) {
	given := c.flags()
	if c.Timeout != nil {
		return nil, &config.Error{Source: config.Source{Key: "timeout"}, Problem: "flock's --timeout is --wait here, timeout(1)'s is --time-limit"}
	}
	v, err := given.resolve()
	if err != nil {
		return nil, err
	}
	if err := out.logging(v); err != nil {
		return nil, err
	}
	if run.Argv, err = c.argv(); err != nil {
		return nil, err
	}
	own := &runSettings{}
	if own.conflictCode, err = slot(v, run, out); err != nil {
		return nil, err
	}
	run.Request.Runs = true
	for _, text := range v.List("ok-exit") {
		code, err := config.ParseInt(text, 0, 255)
		if err != nil {
			return nil, v.Errorf("ok-exit", "%v", err)
		}
		own.okExit = append(own.okExit, code)
	}
	if err := ending(v, run); err != nil {
		return nil, err
	}
	if err := handing(v, run, out); err != nil {
		return nil, err
	}
	if err := leasing(v, run, out); err != nil {
		return nil, err
	}
	if err := finding(v, run); err != nil {
		return nil, err
	}
	if !run.Exec { // nobody would be there to write
		own.report, err = openReport(v) // last: what is wrong otherwise makes no file
	}
	return own, err
}

// argv is the command, without the one -- that may stand before it.
func (c *runCommand) argv() ([]string, error) {
	argv := c.Command
	if len(argv) > 0 && argv[0] == "--" {
		argv = argv[1:]
	}
	if len(argv) == 0 {
		return nil, usageError{errMissingCommand}
	}
	return argv, nil
}

// request reads what the store decides with.
func request(v *config.Values, run *runner.Run, out *printer) error {
	name, key, err := naming(v, run.Store)
	if err != nil {
		return err
	}
	lacks := lacksOf(run.Store)
	var shared, exclusive, noWait bool
	if err := bools(v, map[string]*bool{"shared": &shared, "exclusive": &exclusive, "no-wait": &noWait}); err != nil {
		return err
	}
	if shared && lacks.Shared != "" {
		if _, err := usable(v, "shared", false, notHere(lacks.Shared), out); err != nil {
			return err
		}
		shared = false
	}
	units := run.Store.Traits().MaxUnits
	if units == 0 {
		units = math.MaxInt32
	}
	limit, err := countable(v, "max", units, lacks.Max, out)
	if err != nil {
		return err
	}
	_, hasMax := v.Given("max")
	switch {
	case shared && exclusive:
		return v.Errorf("shared", "cannot be combined with --exclusive")
	case shared && hasMax:
		return v.Errorf("shared", "cannot be combined with --max: a shared lock with a limit is --max N alone")
	case exclusive && hasMax:
		return v.Errorf("exclusive", "cannot be combined with --max")
	case shared:
		limit = 0
	}
	weight, err := countable(v, "weight", units, lacks.Weight, out)
	if err != nil {
		return err
	}
	if limit != 0 && weight > limit {
		if from, _ := v.Given("weight"); !from.FromFlag() && hasMax { // the flag is what the user has just written
			return v.Errorf("max", "%d has no room for the weight of %d (%v)", limit, weight, from)
		}
		return v.Errorf("weight", "%d can never fit into a max of %d", weight, limit)
	}
	if run.Wait, err = v.Duration("wait", -1); err != nil {
		return err
	}
	if noWait {
		if run.Wait > 0 {
			return v.Errorf("no-wait", "cannot be combined with --wait")
		}
		run.Wait = 0
	}
	ref, err := locks.NewRef(name)
	if err != nil {
		return err
	}
	ref.Key = key
	run.Request = locks.Request{
		Ref: ref, Name: name, Claim: locks.Claim{Weight: weight, Max: limit},
		Within: runner.Enclosing(os.Getenv(runner.EnvHeld)), Command: run.Argv,
	}
	return nil
}

// ending reads how a command is stopped.
func ending(v *config.Values, run *runner.Run) (err error) {
	if run.TimeLimit, err = v.Duration("time-limit", 0); err != nil {
		return err
	}
	if run.KillAfter, err = v.Duration("kill-after", 10*time.Second); err != nil {
		return err
	}
	if run.StopSignal, err = signals.Parse(v.Text("signal", "TERM")); err != nil {
		return v.Errorf("signal", "%v", err)
	}
	run.Rewrites = signals.Rewrites{}
	for _, rule := range v.List("rewrite") {
		if err := run.Rewrites.Add(rule); err != nil {
			return v.Errorf("rewrite", "%v", err)
		}
	}
	return nil
}

// finding makes sure that what descends from a command can be found, where that
// is needed.
func finding(v *config.Values, run *runner.Run) error {
	guarded := run.Store.Traits().Leased && !run.OnlyWarn
	if !run.Tree && !guarded {
		return nil
	}
	if _, err := os.Stat("/proc/self/stat"); err == nil {
		return nil
	}
	if run.Tree {
		return v.Errorf("tree", "needs /proc, which is not mounted here")
	}
	return fmt.Errorf("the store %s needs /proc, which is not mounted here, to stop a command in time (--on-lost warn does without)", run.Store.URL())
}

// handing reads what the command gets and what stays with it. With --exec no
// golock is there to do anything for the command.
func handing(v *config.Values, run *runner.Run, out *printer) error {
	if err := bools(v, map[string]*bool{"tree": &run.Tree, "close": &run.Close, "exec": &run.Exec}); err != nil {
		return err
	}
	for _, key := range []string{"exec", "close"} {
		if source, ok := v.Given(key); ok && source.FromFlag() && !run.Store.Traits().Inherits {
			return v.Errorf(key, "the store %s has nothing that a command could inherit", run.Store.URL())
		}
	}
	if !run.Store.Traits().Inherits {
		for key, given := range map[string]*bool{"exec": &run.Exec, "close": &run.Close} {
			if *given {
				source, _ := v.Given(key)
				out.step("ignored: the store has nothing that a command could inherit", "setting", source.String())
			}
			*given = false
		}
	}
	if !run.Exec {
		return nil
	}
	exec, _ := v.Given("exec")
	for _, key := range []string{"close", "time-limit", "kill-after", "signal", "rewrite", "ok-exit", "tree", "report"} {
		source, ok := v.Given(key)
		switch {
		case !ok:
		case source.FromFlag() && exec.FromFlag():
			return v.Errorf(key, "cannot be combined with --exec: no golock stays to see to it")
		case source.FromFlag():
			out.step("ignored: a flag asks for a golock that stays", "setting", exec.String())
			run.Exec = false
			return nil
		default:
			out.step("ignored: it has no meaning with --exec", "setting", source.String())
		}
	}
	run.Close = false
	run.Request.NoGolock = true
	return nil
}
