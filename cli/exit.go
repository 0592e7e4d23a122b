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

// golock's own exit codes, from sysexits.h, timeout(1) and the shell. The
// command's own codes pass unchanged.
const (
	exitFailed        = 1   // golock check or doctor has found a problem, or nobody uses the lock of ls -q
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

// Exit is how golock ends: by dying of a signal if there is one and it can, else with a code.
type Exit struct {
	Code   int            // 128 + the number of the signal, if there is one
	Signal syscall.Signal // 0 if no signal ends golock
}

// usageError is a mistake on the command line.
type usageError struct{ error }

// outputError is a failed write to standard output.
type outputError struct{ error }

// exitError ends golock with a code of its own, or by a signal. Nothing is printed if there is no
// error.
type exitError struct {
	code   int
	err    error
	signal syscall.Signal // 0 if no signal ends golock
}

// endedBy ends golock by the signal that ended its command, or its waiting.
func endedBy(sig syscall.Signal) exitError {
	return exitError{code: exitSignal + int(sig), signal: sig}
}

func (e exitError) Error() string { return fmt.Sprintf("exit code %d: %v", e.code, e.err) }

// exit prints an error and returns how golock ends. Without an error the code is 0.
func exit(out *term.Printer, err error) Exit {
	e, ok := err.(exitError)
	if !ok && err != nil {
		e = exitError{code: codeOf(err), err: err}
	}
	if e.err != nil {
		out.Fail(e.err)
	}
	return Exit{Code: e.code, Signal: e.signal}
}

// needs is the error of a command that cannot do without a part of the machine. It says why the
// command cannot have that part, and the remedy.
func needs(command, path, remedy string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s needs %s, which is not there: %s", command, path, remedy)
	}
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		err = failed.Err
	}
	return fmt.Errorf("%s cannot use %s: %w: %s", command, path, err, remedy)
}

// codeOf returns the exit code for an error.
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

// exitOfRun returns how golock ends after a run, before --ok-exit and -E count.
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
	}
	return Exit{Code: map[runner.Kind]int{
		runner.TimedOut: exitTimeLimit, runner.NotFound: exitNotFound, runner.NotExecutable: exitNotExecutable,
		runner.Fault: exitFault, runner.Busy: exitBusy, runner.Lost: exitLost,
	}[o.Kind]}
}

// ending is how golock ends after an outcome with that exit. That there was no slot in
// time is no failure with -E 0.
func ending(out *term.Printer, o runner.Outcome, end Exit, conflictCode int) error {
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
