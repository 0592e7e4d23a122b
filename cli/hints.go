//go:build !lean

package cli

import (
	"fmt"
	"strings"
)

// withHint adds to a mistake on the command line what golock has for a command or a flag of another tool.
func withHint(err error, args []string) error {
	if (&commands{}).named(args[0]) == nil {
		if own := ownCommand(args[0]); own != "" {
			return fmt.Errorf("there is no command %q: did you mean golock %s?", args[0], own)
		}
		return err
	}
	rest, isFlag := strings.CutPrefix(err.Error(), "unknown flag ")
	flag, _, _ := strings.Cut(rest, ",")
	if own := ownFlag(flag); isFlag && own != "" {
		return fmt.Errorf("unknown flag %s: %s", flag, own)
	}
	return err
}

// ownCommand returns the command that does what other tools call so, or "".
func ownCommand(word string) string {
	switch word {
	case "status", "list", "show", "ps":
		return "ls"
	case "lock":
		return "acquire"
	case "unlock":
		return "release"
	case "kill", "evict":
		return "break"
	case "exec":
		return "run"
	}
	return ""
}

// ownFlag says how golock has what a flag means in other tools, or returns "".
func ownFlag(flag string) string {
	switch flag {
	case "-c", "--command":
		return "a line for the shell is run with -- sh -c 'LINE'"
	case "-t":
		return "--wait D limits the waiting, --time-limit D the command"
	case "-j", "--jobs":
		return "--max N lets N run at a time"
	}
	return ""
}
