//go:build !lean

package cli

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/alecthomas/kong"

	"golock/cli/term"
)

type helpCommand struct {
	Command textFlag `arg:"" optional:"" name:"command" help:"The command; without one all of them."`
}

func (*helpCommand) Help() string { return "The same as golock COMMAND --help." }

func (c *helpCommand) run(out *term.Printer) error {
	return parse(append(c.Command.texts, "--help"), out)
}

const helpRoot = `golock limits how many of a kind run at a time.

Examples:
  golock run --name backup -- rsync -a /srv /mnt/backup
        one at a time, the others wait in order
  golock run --name backup -n -E 0 -- rsync -a /srv /mnt/backup
        skip this time if one is running; for crontabs
  golock run --name cc --max 4 -- cc -c x.c
        at most four at a time
  golock ls
        who holds and who waits`

// printHelp prints the help of a command, or of golock: for -h what fits on a
// screen, for --help everything. The usage line has flags and command in the
// order in which they must stand.
func printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	node := ctx.Selected()
	usage := "golock COMMAND"
	if node != nil {
		usage = usageOf(node)
	}
	if _, err := fmt.Fprintf(ctx.Stdout, "Usage: %s\n", usage); err != nil {
		return err
	}
	at := slices.IndexFunc(ctx.Args, func(arg string) bool { return arg == "-h" || arg == "--help" })
	if at >= 0 && ctx.Args[at] == "-h" && node != nil && slices.ContainsFunc(node.Flags, isBrief) {
		return printBrief(ctx, node)
	}
	options.Compact = node == nil
	return kong.DefaultHelpPrinter(options, ctx)
}

func isBrief(f *kong.Flag) bool { return f.Tag.Has("brief") }

// printBrief prints the flags that people use, a line for each.
func printBrief(ctx *kong.Context, node *kong.Node) error {
	w := tabwriter.NewWriter(ctx.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\n%s\n\n", node.Help)
	for _, f := range node.Flags {
		if !isBrief(f) {
			continue
		}
		short := "   "
		if f.Short != 0 {
			short = "-" + string(f.Short) + ","
		}
		name := strings.TrimSpace("--" + f.Name + " " + f.PlaceHolder)
		text, _, _ := strings.Cut(firstSentence(f.Help), ", ")
		if value := f.Tag.Get("builtin"); value != "" {
			text += " (default " + value + ")"
		}
		fmt.Fprintf(w, "  %s %s\t%s\n", short, name, text)
	}
	fmt.Fprintf(w, "\nAll flags, examples and exit codes: golock help %s\n", node.Name)
	return w.Flush()
}

// usageOf is how a command is called.
func usageOf(node *kong.Node) string {
	return strings.TrimSpace("golock " + node.Name + " " + node.Tag.Get("usage"))
}
