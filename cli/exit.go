package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"golock/cli/term"
	"golock/config"
	"golock/locks"
	"golock/runner"
	"golock/signals"
)

// The exit codes of golock come from sysexits.h, timeout(1) and the shell. golock passes the exit codes of
// the command on unchanged.
const (
	exitFailed        = 1   // golock check or doctor has found a problem, or ls -q has found no entry
	exitUsage         = 64  // wrong flags or arguments; nothing was locked or started
	exitUnavailable   = 69  // the store refused or could not be reached; nothing was started
	exitFault         = 70  // a fault in golock
	exitBusy          = 75  // no slot in time; nothing was started
	exitConfig        = 78  // the configuration or the environment is wrong
	exitLost          = 79  // the slot was lost while the command ran, which was stopped
	exitTimeLimit     = 124 // --time-limit ended the command
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128 // added to the number of a signal that ended golock or its command
)

// Exit is how golock ends: with a code, or by a signal, if it can send that to itself.
type Exit struct {
	Code   int            // the exit code; 128 + the number of Signal if a signal ends golock
	Signal syscall.Signal // 0 if no signal ends golock
}

// usageError is a mistake on the command line.
type usageError struct{ error }

// outputError is a failed write to standard output.
type outputError struct{ error }

// exitError ends golock with a certain code, or by a signal.
type exitError struct {
	code   int
	err    error          // the error to print; nil if nothing is printed
	signal syscall.Signal // 0 if no signal ends golock
}

// endedBy ends golock by the signal that ended its command, or its waiting.
func endedBy(sig syscall.Signal) exitError {
	return exitError{code: exitSignal + int(sig), signal: sig}
}

func (e exitError) Error() string { return fmt.Sprintf("exit code %d: %v", e.code, e.err) }

// printError prints an error, if there is one, and returns how golock ends.
func printError(out *term.Printer, err error) Exit {
	e, isExit := err.(exitError)
	if !isExit && err != nil {
		e = exitError{code: codeOf(err), err: err}
	}
	if e.err != nil {
		out.Fail(e.err)
	}
	return Exit{Code: e.code, Signal: e.signal}
}

// needs returns the error of a golock command that cannot work without a path. It says why the command
// cannot use the path, and the remedy.
func needs(command, path, remedy string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s needs %s, which is not there: %s", command, path, remedy)
	}
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		err = failed.Err
	}
	return fmt.Errorf("%s cannot use %s: %w: %s", command, path, err, remedy)
}

// codeOf returns the exit code for an error. A run that got no slot in time has the outcome runner.Busy
// instead (exitOfRun).
func codeOf(err error) int {
	busy, isBusy := errors.AsType[*locks.BusyError](err)
	waitsForItself := isBusy && busy.Inside != nil
	setting, isSetting := errors.AsType[*config.Error](err)
	switch {
	case isSetting && setting.HostFailed():
		return exitUnavailable
	case errors.As(err, new(*locks.PanicError)), errors.As(err, new(outputError)):
		return exitFault
	case errors.As(err, new(usageError)), waitsForItself, isSetting && setting.Source.FromFlag():
		return exitUsage
	case isSetting:
		return exitConfig
	case errors.Is(err, locks.ErrLost):
		return exitLost
	}
	return exitUnavailable
}

// exitOfRun returns how golock ends after a run, without regard to --ok-exit and -E.
func exitOfRun(o runner.Outcome) Exit {
	switch o.Kind {
	case runner.Ended:
		if !o.Status.Signaled() {
			return Exit{Code: o.Status.ExitStatus()}
		}
		return Exit{Code: exitSignal + int(o.Status.Signal()), Signal: o.Status.Signal()}
	case runner.Interrupted:
		return Exit{Code: exitSignal + int(o.Signal), Signal: o.Signal}
	case runner.Refused:
		return Exit{Code: codeOf(o.Err)}
	case runner.TimedOut:
		return Exit{Code: exitTimeLimit}
	case runner.NotFound:
		return Exit{Code: exitNotFound}
	case runner.NotExecutable:
		return Exit{Code: exitNotExecutable}
	case runner.Busy:
		return Exit{Code: exitBusy}
	case runner.Lost:
		return Exit{Code: exitLost}
	default: // runner.Fault
		return Exit{Code: exitFault}
	}
}

// errorOfOutcome returns the error with which golock ends after a run. It logs an interrupted wait and, with
// -E 0, a skipped run, which is then no error.
func errorOfOutcome(out *term.Printer, o runner.Outcome, end Exit, conflictCode int) error {
	switch {
	case o.Kind == runner.Interrupted:
		out.Step("told to stop while waiting", "signal", signals.Name(o.Signal))
		return exitError{code: end.Code, signal: end.Signal}
	case o.Kind != runner.Busy:
		return exitError{code: end.Code, err: o.Err, signal: end.Signal}
	case conflictCode == 0:
		out.Skip(o.Err)
		return nil
	}
	return exitError{code: conflictCode, err: o.Err}
}
