//go:build !lean

package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"golock/cli/term"
)

// The lean program has no grammar of the command line: for help, the manual, completion
// and mistakes on the command line it becomes the full program.

// fullCommands are the commands of the full program only: those that need the grammar, and report,
// whose templates would make the lean program larger.
type fullCommands struct {
	Report     reportCommand     `cmd:"" usage:"[flags] [FILE...]" help:"Sum up the runs of a report as a table, a page or metrics."`
	Help       helpCommand       `cmd:"" usage:"[COMMAND]" help:"Show the full help of a command."`
	Completion completionCommand `cmd:"" usage:"bash|zsh|fish" help:"Print a completion script for a shell."`
	Complete   completeCommand   `cmd:"" hidden:""`
	Manual     manualCommand     `cmd:"" hidden:""`
}

// Decode implements kong.MapperValue.
func (a *argument) Decode(ctx *kong.DecodeContext) error {
	text := rawText(ctx.Scan.Peek())
	if isNegative(text) { // kong would take it for a flag
		ctx.Scan.Pop()
		a.texts = append(a.texts, text)
		return nil
	}
	token, err := ctx.Scan.PopValue("a")
	if err != nil {
		return errors.New("needs a value")
	}
	a.texts = append(a.texts, rawText(token))
	return nil
}

// isNegative reports whether a text begins like a number below zero.
func isNegative(text string) bool {
	return len(text) > 1 && text[0] == '-' && text[1] >= '0' && text[1] <= '9'
}

// IsBool implements kong.BoolMapperValue.
func (f *boolFlag) IsBool() bool { return true }

// Decode implements kong.MapperValue. --flag=false overrides a file.
func (f *boolFlag) Decode(ctx *kong.DecodeContext) error {
	text := "true"
	if ctx.Scan.Peek().Type == kong.FlagValueToken {
		text = rawText(ctx.Scan.Pop())
	}
	if text != "true" && text != "false" {
		return fmt.Errorf("%q is neither true nor false", text)
	}
	f.texts = append(f.texts, text)
	return nil
}

// Decode implements kong.MapperValue.
func (r *rest) Decode(ctx *kong.DecodeContext) error {
	for !ctx.Scan.Peek().IsEOL() {
		*r = append(*r, rawText(ctx.Scan.Pop()))
	}
	return nil
}

// rawText returns a token as it was typed. Token.String would add dashes.
func rawText(token kong.Token) string { return fmt.Sprint(token.Value) }

// newParser returns kong's parser of the whole command line.
func newParser(onExit func(code int)) *kong.Kong {
	parser := kong.Must(&commands{},
		kong.Name("golock"),
		kong.Writers(standardOutput{}, os.Stderr),
		kong.Description(helpRoot),
		kong.ConfigureHelp(kong.HelpOptions{WrapUpperBound: 100, NoAppSummary: true}),
		kong.ValueFormatter(helpText),
		kong.Help(printHelp),
		kong.ExplicitGroups(helpGroups()),
		kong.Exit(onExit),
	)
	parser.Model.HelpFlag.Help = "Show this help; -h shows the usual flags only."
	return parser
}

// parse lets kong understand the command line, and runs the command.
func parse(args []string, out *term.Printer) error {
	isHelpShown := false
	parser := newParser(func(int) { isHelpShown = true }) // only --help exits
	parsed, err := parser.Parse(args)
	switch {
	case errors.As(err, new(outputError)): // the help could not be written
		return err
	case isHelpShown:
		return nil
	case len(args) == 0:
		return usageError{errors.New("a command is missing, such as golock run --name backup -- rsync; see golock -h")}
	case err != nil:
		help := "golock --help"
		err = withHint(err, args)
		if (&commands{}).find(args[0]) != nil {
			help = "golock " + args[0] + " --help"
		}
		return usageError{fmt.Errorf("%w; see %s", err, help)}
	}
	return parsed.Selected().Target.Addr().Interface().(command).run(out)
}

// describe returns the help of a flag or an argument, with its default and variable.
func describe(v *kong.Value) string {
	var notes []string
	if value := v.Tag.Get("builtin"); value != "" {
		notes = append(notes, "default "+value)
	}
	if variable := v.Tag.Get("variable"); variable != "" {
		notes = append(notes, "$"+variable)
	}
	if len(notes) == 0 {
		return v.Help
	}
	return v.Help + " (" + strings.Join(notes, ", ") + ")"
}

// helpText returns what describe does, and the aliases, which kong's help leaves out.
func helpText(v *kong.Value) string {
	if v.Flag == nil || len(v.Flag.Aliases) == 0 {
		return describe(v)
	}
	names := namesOf(v.Flag)
	return describe(v) + " (also " + strings.Join(names[len(names)-len(v.Flag.Aliases):], ", ") + ")"
}
