//go:build !lean

package cli

import (
	_ "embed"
	"fmt"
	"go/doc/comment"
	"regexp"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"golock/cli/term"
	"golock/config"
)

// manualPage is the part of golock(1) that is written by hand.
//
//go:embed manual/golock.1.in
var manualPage string

// manualCommand is golock manual, which prints golock(1), or with --toml a sample of
// the configuration file.
type manualCommand struct {
	TOML boolFlag `name:"toml" help:"Print a sample of the configuration file instead."`
}

func (c *manualCommand) run(*term.Printer) error {
	app := newParser(nil).Model
	if c.TOML.on() {
		return printOut(sample(app))
	}
	return printOut(manual(manualPage, app))
}

// manual puts commands, flags and variables into the page.
func manual(page string, app *kong.Application) string {
	var synopsis, sections, variables strings.Builder
	described := map[string]bool{}
	for _, c := range app.Leaves(true) {
		usage := strings.TrimPrefix(usageOf(c), "golock "+c.Name)
		fmt.Fprintf(&synopsis, "\\fBgolock %s\\fR%s\n", c.Name, roff(usage))
		fmt.Fprintf(&sections, ".SS golock %s\n%s\n", c.Name, roff(c.Help))
		examples := strings.Index(c.Detail, "Examples:\n")
		if examples < 0 {
			examples = 0 // without examples the whole text follows the flags
		}
		writeParagraphs(&sections, c.Detail[:examples])
		writeFlags(&sections, c, described)
		writeParagraphs(&sections, c.Detail[examples:])
	}
	for _, f := range flagsOf(commandNamed(app, "run")) {
		if variable := f.Tag.Get("variable"); variable != "" {
			fmt.Fprintf(&variables, ".TP\n\\fB%s\\fR\n\\fB%s\\fR\n", variable, roff("--"+f.Name))
		}
	}
	return strings.NewReplacer("@VERSION@", roff(versionText()), "@SYNOPSIS@\n", synopsis.String(), "@COMMANDS@\n", sections.String(),
		"@SETTINGS@\n", variables.String()).Replace(page)
}

// writeFlags describes the flags of a command. It only names those that are described already, and adds the
// others to described.
func writeFlags(b *strings.Builder, c *kong.Node, described map[string]bool) {
	var repeated []string
	for _, f := range flagsOf(c) {
		names := strings.Join(namesOf(f), ", ")
		if described[names+f.Help] {
			repeated = append(repeated, "\\fB"+roff(names)+"\\fR")
			continue
		}
		described[names+f.Help] = true
		fmt.Fprintf(b, ".TP\n\\fB%s\\fR", roff(names))
		if f.PlaceHolder != "" {
			fmt.Fprintf(b, " \\fI%s\\fR", roff(f.PlaceHolder))
		}
		fmt.Fprintf(b, "\n%s\n", roff(describe(f.Value)))
	}
	if len(repeated) > 0 {
		fmt.Fprintf(b, ".PP\nAs above: %s\n", strings.Join(repeated, ", "))
	}
}

const sampleHead = `# Settings of golock for all users; see golock(1). Everything is commented out: a
# line "#key = value" shows the default, or an example where there is none.
# Remove the # of [defaults] and of a setting to change it. Who runs golock must be
# able to read this file: a store with a password belongs in the user's own file,
# ~/.config/golock/config.toml.

#[defaults]
`

const sampleTail = `
# A table of one lock counts more than [defaults].
#[lock."nightly"]
#max = 3
`

// sample returns a configuration file with every setting commented out. A line of
// help begins with "# ", a setting with "#" alone.
func sample(app *kong.Application) string {
	var b strings.Builder
	b.WriteString(sampleHead)
	for _, f := range flagsOf(commandNamed(app, "run")) {
		if f.Tag.Has("file") {
			continue
		}
		help, mark, value := f.Help, "#", f.Tag.Get("builtin")
		example := f.Tag.Get("example")
		switch {
		case example != "":
			help, value = help+" No default.", example
		case value == "" && !f.IsBool(): // store-file, which cannot stand beside store
			help, mark, value = help+" Not beside "+f.Tag.Get("alternative")+".", "# ", f.PlaceHolder
		}
		switch f.Target.Addr().Interface().(flagValue).kind() {
		case config.Bool:
			value = "false"
		case config.List:
			value = "[" + strconv.Quote(value) + "]"
		case config.String, config.Word, config.Duration:
			value = strconv.Quote(value)
		}
		fmt.Fprintf(&b, "\n%s%s%s = %s\n", fold(help, "# "), mark, f.Name, value)
	}
	return b.String() + sampleTail
}

// fold breaks a text into lines of at most 100 columns. Each line begins with the indent.
func fold(text, indent string) string {
	paragraph := &comment.Paragraph{Text: []comment.Text{comment.Plain(text)}}
	printer := comment.Printer{TextPrefix: indent, TextWidth: 100 - len(indent)}
	return string(printer.Text(&comment.Doc{Content: []comment.Block{paragraph}}))
}

// writeParagraphs writes a text of --help in roff. A paragraph with indented lines
// keeps its lines.
func writeParagraphs(b *strings.Builder, text string) {
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		if strings.TrimSpace(paragraph) == "" {
			continue
		}
		b.WriteString(".PP\n")
		if !strings.Contains(paragraph, "\n  ") || strings.HasPrefix(paragraph, "Exit codes:") {
			fmt.Fprintln(b, roff(strings.Join(strings.Fields(paragraph), " ")))
			continue
		}
		head, rest, found := strings.Cut(paragraph, ":\n")
		if found && !strings.HasPrefix(head, " ") {
			fmt.Fprintf(b, "%s:\n.PP\n", roff(head))
			paragraph = rest
		}
		fmt.Fprintf(b, ".EX\n%s\n.EE\n", roff(paragraph))
	}
}

// roff escapes a text, so that groff shows it unchanged.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(text)
	return regexp.MustCompile(`(?m)^ *\.`).ReplaceAllString(text, `\&$0`)
}
