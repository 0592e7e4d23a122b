package main

import (
	"slices"

	"github.com/alecthomas/kong"
)

// The command line as data, for those who describe it: the manual and the
// completion. It comes from the grammar that parses it and the texts of --help,
// so that it cannot tell of what there is not.

type commandModel struct {
	name    string
	summary string
	detail  string // examples, exit codes
	usage   string
	flags   []flagModel
	runs    bool   // what follows the flags is a command
	arg     string // the name of the argument in valueTexts; "" if there is none
}

type flagModel struct {
	names   []string // as they are typed, the usual long one first
	value   string   // placeholder; "" if it takes none
	several bool
	help    string
}

// describe gives all commands that a user may call.
func describe() ([]commandModel, error) {
	parser, err := kong.New(&root{}, kong.Name("golock"))
	if err != nil {
		return nil, err
	}
	texts, values := commandTexts(), valueTexts()
	var all []commandModel
	for _, node := range parser.Model.Children {
		if node.Hidden {
			continue
		}
		c := commandModel{name: node.Name, summary: texts[node.Name].help, detail: texts[node.Name].placeholder, usage: usageOf(node.Name)}
		for _, f := range slices.Concat(parser.Model.Flags, node.Flags) {
			if !f.Hidden {
				c.flags = append(c.flags, describeFlag(f, values[f.Name]))
			}
		}
		for _, arg := range node.Positional {
			if arg.Name == "command" {
				c.runs = true
			} else {
				c.arg = arg.Name
			}
		}
		all = append(all, c)
	}
	return all, nil
}

func describeFlag(f *kong.Flag, t text) flagModel {
	m := flagModel{names: []string{"--" + f.Name}, help: t.help, several: f.Name == "rewrite" || f.Name == "ok-exit"}
	if !f.IsBool() {
		m.value = t.placeholder
	}
	if f.Short != 0 {
		m.names = append(m.names, "-"+string(f.Short))
	}
	for _, alias := range f.Aliases {
		m.names = append(m.names, "--"+alias)
	}
	return m
}

// flag finds a flag by one of its names.
func (c *commandModel) flag(name string) (flagModel, bool) {
	for _, f := range c.flags {
		if slices.Contains(f.names, name) {
			return f, true
		}
	}
	return flagModel{}, false
}
