//go:build !lean

package cli

import (
	"fmt"
	"strings"
)

// withHint adds to a mistake on the command line what golock has in place of a command or a flag of
// another tool.
func withHint(err error, args []string) error {
	if (&commands{}).find(args[0]) == nil {
		if equivalent := equivalentCommand(args[0]); equivalent != "" {
			return fmt.Errorf("there is no command %q: did you mean golock %s?", args[0], equivalent)
		}
		return err
	}
	rest, isFlag := strings.CutPrefix(err.Error(), "unknown flag ")
	flag, _, _ := strings.Cut(rest, ",")
	if advice := flagAdvice(flag); isFlag && advice != "" {
		return fmt.Errorf("unknown flag %s: %s", flag, advice)
	}
	return err
}

// equivalentCommand returns the golock command that does what a word means in other tools, or "".
func equivalentCommand(word string) string {
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

// flagAdvice says how golock does what a flag means in other tools. It returns "" if that is not known.
func flagAdvice(flag string) string {
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
