// Package cli is the command line. It turns flags, variables and files into settings, runs a command,
// and turns the outcome into an exit code.
package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"reflect"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"golock/cli/term"
	"golock/internal/entry"
	"golock/locks"
	"golock/locks/open"
	"golock/runner"
	"golock/signals"
)

// commands is the whole command line.
type commands struct {
	Run     runCommand     `cmd:"" usage:"--name NAME [flags] [--] COMMAND [ARG...]" help:"Run a command while holding a slot of a named lock."`
	Acquire acquireCommand `cmd:"" usage:"--name NAME --for PID|none [flags]" help:"Take a slot for a script and print its ID."`
	Renew   renewCommand   `cmd:"" usage:"ID [flags]" help:"Extend the lease of a slot that acquire took."`
	Release releaseCommand `cmd:"" usage:"ID [flags]" help:"Release a slot that acquire took."`
	Held    heldCommand    `cmd:"" usage:"[ID] [flags]" help:"Ask whether a slot is still held."`
	Ls      lsCommand      `cmd:"" usage:"[NAME] [flags]" help:"Show who holds and who waits."`
	Break   breakCommand   `cmd:"" usage:"NAME | --id ID [flags]" help:"Evict the holders of a lock: their golocks stop their commands."`
	Check   checkCommand   `cmd:"" usage:"[flags]" help:"Stress-test a store, or another lock tool, for two runs at once."`
	Clean   cleanCommand   `cmd:"" usage:"[NAME] [flags]" help:"Remove what crashed golocks have left in a store."`
	Doctor  doctorCommand  `cmd:"" usage:"[flags]" help:"Examine this host and the store: what they guarantee, and what to fix."`
	fullCommands
	Version versionCommand `cmd:"" help:"Print the version; the same as golock --version."`
}

// command is a command of the command line. If it has a method Help, that returns what --help and the
// manual say in addition to the flags (kong.HelpProvider).
type command interface {
	run(out *term.Printer) error
}

// find returns the command with the given name, or nil if there is none.
func (c *commands) find(name string) command {
	v := reflect.ValueOf(c).Elem().FieldByNameFunc(func(field string) bool {
		return field[0] <= 'Z' && strings.ToLower(field) == name
	})
	if !v.IsValid() {
		return nil
	}
	return v.Addr().Interface().(command)
}

// Main is golock as users call it.
func Main(args []string) Exit {
	return runProgram(func(out *term.Printer) error {
		out.JSON = asksForJSON(args)
		if err := checkDescriptors(); err != nil {
			// out.Line would use a timer, for which the Go runtime needs descriptors.
			_, _ = syscall.Write(syscall.Stderr, []byte(out.Text("error", err.Error(), nil)))
			return exitError{code: exitUnavailable}
		}
		if len(args) == 0 {
			return parse(args, out)
		}
		if args[0] == "--version" || args[0] == "-V" {
			args[0] = "version"
		}
		c := (&commands{}).find(args[0])
		isParsed := false
		if c != nil {
			isParsed = parseFast(c, args[1:])
		}
		if !isParsed {
			return parse(args, out)
		}
		return c.run(out)
	})
}

// asksForJSON reports whether the command line, or else the environment, asks for JSON in log lines.
// That is for the errors that are found before the settings are known (configureLog).
func asksForJSON(args []string) bool {
	format := os.Getenv("GOLOCK_LOG_FORMAT")
	for i, arg := range args {
		value, isAttached := strings.CutPrefix(arg, "--log-format=")
		switch {
		case arg == "--":
			return format == "json"
		case isAttached:
			format = value
		case arg == "--log-format" && i+1 < len(args):
			format = args[i+1]
		}
	}
	return format == "json"
}

// Watchdog is golock as the watchdog of a command (see runner.Watchdog).
func Watchdog(argv []string) Exit {
	return runProgram(func(*term.Printer) error {
		err := runner.Watchdog(argv, open.Store)
		if err == runner.ErrNotSpawned {
			return usageError{err}
		}
		return nil // nobody is left to be told
	})
}

// Releaser is golock as the process that releases the slot of a dead golock (see runner.Releaser).
func Releaser(argv []string) Exit {
	return runProgram(func(*term.Printer) error {
		err := runner.Releaser(argv, open.Store)
		if err == runner.ErrNoReleaser {
			return usageError{err}
		}
		return nil // nobody is left to be told
	})
}

// runProgram runs a program, prints its error or its panic, and returns how golock ends.
func runProgram(program func(*term.Printer) error) Exit {
	out := &term.Printer{}
	run := func() (err error) {
		defer locks.Recover(&err)
		return program(out)
	}
	err := run()
	return printError(out, err)
}

// printOut prints a text on standard output. Its errors are outputErrors.
func printOut(text string) error {
	if text == "" {
		return nil
	}
	_, err := standardOutput{}.Write([]byte(text))
	return err
}

// standardOutput is os.Stdout, but a write fails if the caller had closed standard output. The /dev/null
// that package entry opens instead would take the text, and a script would go on without the answer.
type standardOutput struct{}

// Write implements io.Writer. Its errors are outputErrors.
func (standardOutput) Write(text []byte) (n int, err error) {
	if err := checkOutput(); err != nil {
		return 0, err
	}
	n, err = os.Stdout.Write(text)
	if err != nil {
		return n, outputError{err}
	}
	return n, nil
}

// checkOutput makes sure that the caller had not closed standard output.
func checkOutput() error {
	if entry.IsClosed(syscall.Stdout) {
		return outputError{&os.PathError{Op: "write", Path: os.Stdout.Name(), Err: syscall.EBADF}}
	}
	return nil
}

// untilStopped returns a context that a signal ends, so that the command can undo what it has begun.
// The cause is an exitError with that signal. After a call of stop, the signals have their default
// action again.
func untilStopped() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	caught := make(chan os.Signal, 1)
	for _, sig := range signals.Ending() { // Ending leaves out what nohup, or a script for a background job, ignores
		signal.Notify(caught, sig)
	}
	go func() {
		sig := <-caught
		cancel(endedBy(sig.(syscall.Signal)))
	}()
	return ctx, func() { signal.Stop(caught) }
}

// version is set by the linker (see the Makefile).
var version string

type versionCommand struct{}

func (*versionCommand) run(*term.Printer) error {
	return printOut("golock " + buildText() + "\n")
}

// buildText names version, Go version and platform.
func buildText() string {
	return fmt.Sprintf("%s (%s %s/%s)", versionText(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func versionText() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// checkDescriptors makes sure that this process can open as many descriptors as the Go runtime and the
// beginning of every command need. The runtime ends a process if it cannot open its own descriptors.
func checkDescriptors() error {
	const needed = 8
	const plenty = 64 // a process that may open more descriptors is not examined
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	if err != nil || limit.Cur > plenty {
		return nil
	}
	for range needed {
		fd, err := syscall.Open("/", syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_DIRECTORY, 0)
		if err != nil {
			return fmt.Errorf("%w: golock needs at least %d more: raise the limit of open files, ulimit -n (now %d)", err, needed, limit.Cur)
		}
		defer syscall.Close(fd)
	}
	return nil
}
