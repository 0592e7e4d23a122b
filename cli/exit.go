package cli

import (
	"errors"
	"fmt"

	"golock/cli/term"
	"golock/config"
	"golock/locks"
	"golock/runner"
	"golock/signals"
)

// golock's own exit codes, from sysexits.h, timeout(1) and the shell. The
// command's own codes pass unchanged.
const (
	exitFailed        = 1   // golock check or doctor has found a problem
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

// outputError is a failed write to standard output.
type outputError struct{ error }

// exitError ends golock with a code of its own. Nothing is printed if there is no error.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string { return fmt.Sprintf("exit code %d: %v", e.code, e.err) }

// exit prints an error and gives its exit code; 0: there is none.
func exit(out *term.Printer, err error) int {
	e, ok := err.(exitError)
	if !ok && err != nil {
		e = exitError{codeOf(err), err}
	}
	if e.err != nil {
		out.Fail(e.err)
	}
	return e.code
}

// codeOf is the exit code of an error.
func codeOf(err error) int {
	busy, isBusy := errors.AsType[*locks.BusyError](err) // other runs without a slot are runner.Busy
	setting, isSetting := errors.AsType[*config.Error](err)
	switch {
	case isSetting && setting.HostFailed():
		return exitUnavailable
	case errors.As(err, new(*locks.PanicError)), errors.As(err, new(outputError)):
		return exitFault
	case errors.As(err, new(usageError)), isBusy && busy.Inside != nil, isSetting && setting.Source.FromFlag():
		return exitUsage
	case isSetting:
		return exitConfig
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
	case runner.Interrupted:
		return exitSignal + int(o.Signal)
	case runner.Refused:
		return codeOf(o.Err)
	}
	return map[runner.Kind]int{
		runner.TimedOut: exitTimeLimit, runner.NotFound: exitNotFound, runner.NotExecutable: exitNotExecutable,
		runner.Fault: exitFault, runner.Busy: exitBusy, runner.Lost: exitLost,
	}[o.Kind]
}

// ending is how golock ends after an outcome with that exit code. That there was no slot in
// time is no failure with -E 0.
func ending(out *term.Printer, o runner.Outcome, code, conflictCode int) error {
	switch {
	case o.Kind == runner.Interrupted:
		out.Step("told to stop while waiting", "signal", signals.Name(o.Signal))
		return exitError{code: code}
	case o.Kind != runner.Busy:
		return exitError{code, o.Err}
	case conflictCode == 0:
		out.Step(o.Err.Error())
		return nil
	}
	return exitError{conflictCode, o.Err}
}
