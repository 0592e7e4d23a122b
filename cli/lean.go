//go:build lean

package cli

import "golock/cli/term"

// grammarCommands are in the full program (grammar.go).
type grammarCommands struct{}

// parse leaves the command line to the full program.
func parse([]string, *term.Printer) error {
	return becomeFull("help, completion and what is wrong with a command line need")
}
