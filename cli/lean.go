//go:build lean

package cli

import "golock/cli/term"

// fullCommands are in the full program (grammar.go).
type fullCommands struct{}

// parse leaves the command line to the full program.
func parse([]string, *term.Printer) error {
	return becomeFull("help, completion, report and what is wrong with a command line need")
}
