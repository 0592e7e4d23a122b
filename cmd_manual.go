package main

import (
	_ "embed"
	"fmt"
	"os"
	"strings"
)

// manualPage is golock(1) as far as it is written by hand.
//
//go:embed manual/golock.1.in
var manualPage string

// manualCommand is the grammar of golock manual, which prints golock(1) in the
// form that man(1) reads: golock manual | man -l -
type manualCommand struct{}

func (manualCommand) run(out *printer) int {
	commands, err := describe()
	if err != nil {
		panic(err)
	}
	if _, err := os.Stdout.WriteString(manual(manualPage, commands)); err != nil {
		return out.exit(outputError{err})
	}
	return 0
}

// manual puts into the page what the program knows about itself.
func manual(page string, commands []commandModel) string {
	var synopsis, sections, variables strings.Builder
	described := map[string]bool{}
	for _, c := range commands {
		fmt.Fprintf(&synopsis, "\\fBgolock %s\\fR%s\n", c.name, roff(strings.TrimPrefix(c.usage, "golock "+c.name)))
		fmt.Fprintf(&sections, ".SS golock %s\n%s\n", c.name, roff(c.summary))
		prose, examples, found := strings.Cut(c.detail, "Examples:\n")
		paragraphs(&sections, prose)
		var again []string
		for _, f := range c.flags {
			switch names := strings.Join(f.names, ", "); {
			case f.names[0] == "--help": // every command has it
			case described[names]:
				again = append(again, "\\fB"+roff(names)+"\\fR")
			default:
				described[names] = true
				section(&sections, names, f.value, f.help)
			}
		}
		if len(again) > 0 {
			fmt.Fprintf(&sections, ".PP\nAs above: %s\n", strings.Join(again, ", "))
		}
		if found {
			paragraphs(&sections, "Examples:\n"+examples)
		}
	}
	for _, s := range settings() {
		if s.Env != "" {
			fmt.Fprintf(&variables, ".TP\n\\fB%s\\fR\n\\fB%s\\fR\n", s.Env, roff("--"+s.Key))
		}
	}
	return strings.NewReplacer("@VERSION@", roff(versionText()), "@SYNOPSIS@\n", synopsis.String(), "@COMMANDS@\n", sections.String(),
		"@SETTINGS@\n", variables.String()).Replace(page)
}

// section is one flag.
func section(b *strings.Builder, names, value, help string) {
	fmt.Fprintf(b, ".TP\n\\fB%s\\fR", roff(names))
	if value != "" {
		fmt.Fprintf(b, " \\fI%s\\fR", roff(value))
	}
	fmt.Fprintf(b, "\n%s\n", roff(help))
}

// paragraphs sets the text behind the flags of a --help: what begins a line with
// a blank, and what stands between such lines, is kept as it is.
func paragraphs(b *strings.Builder, text string) {
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

// roff writes text so that groff shows it as it is.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(text)
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(strings.TrimLeft(line, " "), ".") {
			line = `\&` + line
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
