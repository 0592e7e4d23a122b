// A golock that waits or holds must sleep: the runtime would wake it to ask
// whether the number of its CPUs has changed.
//
//go:debug updatemaxprocs=0

// Command golock limits how many of a kind run at a time: it takes a slot of a
// lock, runs a command, and gives the slot back.
//
// This package holds the command line (one file for each command), the printing
// and the exit codes; what locks are is in locks, how a command is run in
// runner.
package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/alecthomas/kong"

	"golock/check"
	"golock/config"
	"golock/locks"
	"golock/runner"
	"golock/signals"
)

// The exit codes of golock's own, from sysexits.h where that has one, else as
// timeout(1) and the shell use them. The command's own codes pass unchanged.
const (
	exitUsage         = 64  // wrong flags or arguments; nothing was locked or started
	exitUnavailable   = 69  // the store refused or could not be reached; nothing was started
	exitFault         = 70  // a fault of golock's own
	exitBusy          = 75  // no slot in time; nothing was started
	exitConfig        = 78  // the configuration or the environment is wrong
	exitLost          = 79  // the slot was lost while the command ran, which was stopped
	exitTimeLimit     = 124 // --time-limit ended the command
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128 // + the signal's number
)

// usageError is a mistake on the command line.
type usageError struct{ error }

// outputError says that standard output takes no more.
type outputError struct{ error }

var (
	errMissingName    = errors.New("missing --name: every lock has a name; see golock run --help")
	errMissingCommand = errors.New("missing command: golock run --name NAME -- COMMAND; see golock run --help")
)

// root is the whole command line.
type root struct {
	Run     runCommand     `cmd:""`
	Acquire acquireCommand `cmd:""`
	Renew   renewCommand   `cmd:""`
	Release releaseCommand `cmd:""`
	Held    heldCommand    `cmd:""`
	Ls      lsCommand      `cmd:""`
	Break   breakCommand   `cmd:""`
	Check   checkCommand   `cmd:""`
	Clean   cleanCommand   `cmd:""`
	Doctor  doctorCommand  `cmd:""`
	Report  reportCommand  `cmd:""`
	Version versionCommand `cmd:""`

	Completion completionCommand `cmd:""`
	Complete   completeCommand   `cmd:"" hidden:""`
	Manual     manualCommand     `cmd:"" hidden:""`
}

// Each command alone, for the usual start: building and checking the grammar
// of all commands costs every run.
type (
	runOnly struct {
		Run runCommand `cmd:""`
	}
	lsOnly struct {
		Ls lsCommand `cmd:""`
	}
	acquireOnly struct {
		Acquire acquireCommand `cmd:""`
	}
	heldOnly struct {
		Held heldCommand `cmd:""`
	}
	breakOnly struct {
		Break breakCommand `cmd:""`
	}
)

// command is what the command line comes to.
type command interface{ run(out *printer) int }

func main() {
	signals.Stay()
	out := newPrinter(2)
	defer func() {
		if v := recover(); v != nil {
			out.fail(locks.NewPanicError(v))
			os.Exit(exitFault)
		}
	}()
	if len(os.Args) > 0 && os.Args[0] == runner.GuardName {
		os.Exit(guard(os.Args, out))
	}
	if len(os.Args) > 0 && os.Args[0] == keeperName {
		os.Exit(keep(out))
	}
	if len(os.Args) > 1 && os.Args[1] == check.ChildName {
		os.Exit(checkChild(os.Args[2:], out))
	}
	os.Exit(start(os.Args[1:], out))
}

// start parses the command line and runs the command that it names.
func start(args []string, out *printer) int {
	if len(args) > 0 && args[0] == "run" {
		if c := (&runCommand{}); c.quick(args[1:]) {
			return c.run(out)
		}
	}
	grammar, chosen := grammarOf(args)
	parser, err := kong.New(grammar,
		kong.Name("golock"),
		kong.ConfigureHelp(kong.HelpOptions{WrapUpperBound: 100, NoAppSummary: true}),
		kong.Help(printHelp),
		kong.Exit(func(code int) { os.Exit(code) }),
	)
	if err != nil {
		panic(err)
	}
	if err := explain(parser.Model, args); err != nil {
		panic(err)
	}
	parsed, err := parser.Parse(args)
	if failed := (outputError{}); errors.As(err, &failed) {
		return out.exit(failed)
	}
	if err != nil {
		return out.exit(usageError{parseProblem(args, err)})
	}
	return chosen(parsed.Command()).run(out)
}

// grammarOf gives the grammar for the command named first, and the function
// that finds the parsed command in it.
func grammarOf(args []string) (any, func(name string) command) {
	first := ""
	if len(args) > 0 {
		first = args[0]
	}
	switch first {
	case "run":
		g := &runOnly{}
		return g, func(string) command { return &g.Run }
	case "ls":
		g := &lsOnly{}
		return g, func(string) command { return &g.Ls }
	case "break":
		g := &breakOnly{}
		return g, func(string) command { return &g.Break }
	case "acquire":
		g := &acquireOnly{}
		return g, func(string) command { return &g.Acquire }
	case "held":
		g := &heldOnly{}
		return g, func(string) command { return &g.Held }
	}
	g := &root{}
	return g, func(name string) command {
		switch name {
		case "run", "run <command>":
			return &g.Run
		case "ls", "ls <lock>":
			return &g.Ls
		case "break":
			return &g.Break
		case "acquire":
			return &g.Acquire
		case "renew", "renew <id>":
			return &g.Renew
		case "release", "release <id>":
			return &g.Release
		case "held":
			return &g.Held
		case "check":
			return &g.Check
		case "clean":
			return &g.Clean
		case "completion", "completion <shell>":
			return &g.Completion
		case "complete", "complete <words>":
			return &g.Complete
		case "manual":
			return &g.Manual
		case "doctor":
			return &g.Doctor
		case "report", "report <reports>":
			return &g.Report
		}
		return &g.Version
	}
}

// parseProblem makes kong's error one that says where to read on.
func parseProblem(args []string, err error) error {
	help := "golock --help"
	if len(args) > 0 && slices.Contains([]string{"run", "acquire", "renew", "release", "held", "ls", "break", "clean", "check", "doctor", "report", "version", "completion"}, args[0]) {
		help = "golock " + args[0] + " --help"
	}
	return fmt.Errorf("%w; see %s", err, help)
}

// codeOf is the exit code of an error.
func codeOf(err error) int {
	var usage usageError
	var setting *config.Error
	var nested *locks.NestedError
	var busy *locks.BusyError
	var fault *locks.PanicError
	var output outputError
	switch {
	case errors.As(err, &fault), errors.As(err, &output), errors.Is(err, errKeeperGone):
		return exitFault
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &setting) && setting.FromFlag():
		return exitUsage
	case errors.As(err, &setting):
		return exitConfig
	case errors.As(err, &nested):
		return exitUsage
	case errors.As(err, &busy):
		return exitBusy
	case errors.Is(err, locks.ErrLost):
		return exitLost
	}
	return exitUnavailable
}

// codeOfRun is the exit code of a run, before --ok-exit.
func codeOfRun(o runner.Outcome) int {
	switch o.Kind {
	case runner.Ended:
		if o.Status.Signaled() {
			return exitSignal + int(o.Status.Signal())
		}
		return o.Status.ExitStatus()
	case runner.TimedOut:
		return exitTimeLimit
	case runner.NotFound:
		return exitNotFound
	case runner.NotExecutable:
		return exitNotExecutable
	case runner.Interrupted:
		return exitSignal + int(o.Signal)
	case runner.Fault:
		return exitFault
	case runner.Busy:
		return exitBusy
	case runner.Lost:
		return exitLost
	}
	return codeOf(o.Err)
}
