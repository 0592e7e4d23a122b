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
	Command textFlag `arg:"" optional:"" name:"command" help:"Explain this command. Without it, list all commands."`
}

func (*helpCommand) Help() string { return "Prints what golock COMMAND --help prints." }

func (c *helpCommand) run(out *term.Printer) error {
	return parse(append(c.Command.texts, "--help"), out)
}

const helpRoot = `golock runs a command under a named lock: one at a time, or at most N, on one
machine or, with a store that hosts share, on many.

Examples:
  golock run --name backup -- rsync -a /srv /mnt/backup
        one at a time; other runs of the name wait in order
  golock run --name backup -n -E 0 --time-limit 6h -- rsync -a /srv /mnt/backup
        for crontabs: skip this start if the previous run is still running
  golock run --name gpu --max 4 -- train
        at most four at a time
  golock run --name sync --store redis://locks.example.net -n -- sync-accounts
        on one of many hosts
  golock ls
        who holds and who waits

Stores:
  local (default), local:///DIR, flock:///FILE, fcntl:///FILE, bind://ADDRESS: one machine
  redis://, mysql://, mariadb://, postgres://, etcd://: all hosts that reach the server
  mkdir:///DIR, symlink:///DIR, excl:///DIR: all hosts that share the directory

Exit codes:
  the command's own, or 64 usage, 69 store not usable, 70 fault in golock, 75 no slot in
  time, 78 configuration, 79 slot lost, 124 time limit, 126 not executable, 127 not found

Settings: /etc/golock.toml, ~/.config/golock/config.toml, variables such as GOLOCK_STORE.
All pages: man golock, and share/doc/golock below the prefix of the installation.`

// briefRoot is what golock -h prints behind the usage line, before the commands.
const briefRoot = `golock runs a command under a named lock: one at a time, or at most N.

  golock run --name backup -- rsync -a /srv /mnt/backup     one at a time; others wait
  golock run --name backup -n -E 0 -- rsync ...             skip if one is running
  golock ls                                                 who holds and who waits
Commands:
`

// printHelp prints the help of a command, or of golock: for -h what fits on a
// screen, for --help everything. The usage line has flags and command in the
// order in which they must stand.
func printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	node := ctx.Selected()
	usage := "golock COMMAND"
	if node != nil {
		usage = usageOf(node)
		sortGroups(node.Flags)
	}
	if _, err := fmt.Fprintf(ctx.Stdout, "Usage: %s\n", usage); err != nil {
		return err
	}
	flagIndex := slices.IndexFunc(ctx.Args, func(arg string) bool { return arg == "-h" || arg == "--help" })
	isBriefHelp := flagIndex >= 0 && ctx.Args[flagIndex] == "-h"
	switch {
	case isBriefHelp && node == nil:
		return printBriefRoot(ctx)
	case isBriefHelp && slices.ContainsFunc(node.Flags, isBrief):
		return printBrief(ctx, node)
	}
	options.Compact = node == nil
	return kong.DefaultHelpPrinter(options, ctx)
}

// sortGroups puts flags into the order of helpGroups. Flags without a group come first.
func sortGroups(flags []*kong.Flag) {
	slices.SortStableFunc(flags, func(a, b *kong.Flag) int { return groupIndex(a) - groupIndex(b) })
}

// groupIndex returns the place of a flag's group in helpGroups, or -1 for a flag without a group.
func groupIndex(f *kong.Flag) int {
	return slices.IndexFunc(helpGroups(), func(g kong.Group) bool { return f.Group != nil && f.Group.Key == g.Key })
}

// helpGroups are the groups of flags in the order of --help.
func helpGroups() []kong.Group {
	return []kong.Group{
		{Key: "slot", Title: "Lock and store:"}, {Key: "waiting", Title: "Waiting for it:"},
		{Key: "ending", Title: "How it ends:"}, {Key: "network", Title: "Stores of several hosts:"},
		{Key: "output", Title: "Output and settings:"},
	}
}

// printBriefRoot prints what golock is, and its commands.
func printBriefRoot(ctx *kong.Context) error {
	w := tabwriter.NewWriter(ctx.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, briefRoot)
	for _, c := range ctx.Model.Leaves(true) {
		fmt.Fprintf(w, "  %s\t%s\n", c.Name, firstSentence(c.Help))
	}
	fmt.Fprint(w, "\ngolock COMMAND -h: the usual flags. golock help COMMAND: all flags, examples, exit codes.\n")
	return w.Flush()
}

// isBrief reports whether -h shows a flag.
func isBrief(f *kong.Flag) bool { return f.Tag.Has("brief") }

// printBrief prints the usual flags, those with the tag brief, a line for each.
func printBrief(ctx *kong.Context, node *kong.Node) error {
	w := tabwriter.NewWriter(ctx.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s\n\n", node.Help)
	if example := firstExample(node); example != "" {
		fmt.Fprintf(w, "  %s\n\n", example)
	}
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
	fmt.Fprintf(w, "All flags, examples and exit codes: golock help %s\n", node.Name)
	return w.Flush()
}

// firstExample returns the first line of a command's examples, or "".
func firstExample(node *kong.Node) string {
	_, examples, _ := strings.Cut(node.Detail, "Examples:\n")
	line, _, _ := strings.Cut(examples, "\n")
	return strings.TrimSpace(line)
}

// usageOf returns the usage line of a command.
func usageOf(node *kong.Node) string {
	return strings.TrimSpace("golock " + node.Name + " " + node.Tag.Get("usage"))
}
