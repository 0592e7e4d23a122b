package main

import "strings"

// quick understands the usual command line of golock run without the library:
// to build and check a grammar costs more than to take the lock, and golock
// stands in front of everything that cron starts. It reports false for all that
// is not plain: a wrong or unknown flag, --help, a value that looks like a flag.
// Then the library says what there is to say. TestQuick holds the two to the
// same understanding.
func (c *runCommand) quick(args []string) bool {
	for len(args) > 0 {
		arg := args[0]
		switch {
		case arg == "--":
			c.Command = args
			return true
		case strings.HasPrefix(arg, "--"):
			name, value, attached := strings.Cut(arg[2:], "=")
			o := c.option(name)
			switch {
			case o.set == nil && (o.toggle == nil || attached):
				return false
			case o.toggle != nil:
				*o.toggle = "true"
			case attached:
				o.set(value)
			default:
				if len(args) < 2 || strings.HasPrefix(args[1], "-") {
					return false
				}
				o.set(args[1])
				args = args[1:]
			}
		case strings.HasPrefix(arg, "-") && len(arg) > 1:
			o := c.option(longName(arg[1]))
			switch {
			case o.toggle != nil && len(arg) == 2:
				*o.toggle = "true"
			case o.set != nil && len(arg) == 2 && len(args) > 1 && !strings.HasPrefix(args[1], "-"):
				o.set(args[1])
				args = args[1:]
			default:
				return false
			}
		default:
			c.Command = args
			return true
		}
		args = args[1:]
	}
	return true
}

// option is where a flag goes: to a toggle or, with its value, to set.
type option struct {
	toggle *toggle
	set    func(string)
}

func (c *runCommand) option(name string) option {
	text := func(to **word) option {
		return option{set: func(s string) { *to = (*word)(&s) }}
	}
	list := func(to *words) option {
		return option{set: func(s string) { *to = append(*to, s) }}
	}
	switch name {
	case "name":
		return text(&c.Name)
	case "store":
		return text(&c.Store)
	case "config":
		return text(&c.Config)
	case "max":
		return text(&c.Max)
	case "shared":
		return option{toggle: &c.Shared}
	case "exclusive":
		return option{toggle: &c.Exclusive}
	case "exclusive-lock":
		return option{toggle: &c.FlockE}
	case "weight":
		return text(&c.Weight)
	case "wait":
		return text(&c.Wait)
	case "no-wait", "nonblock", "nb":
		return option{toggle: &c.NoWait}
	case "conflict-exit-code":
		return text(&c.ConflictExitCode)
	case "priority":
		return text(&c.Priority)
	case "max-queue":
		return text(&c.MaxQueue)
	case "replace":
		return text(&c.Replace)
	case "hold":
		return text(&c.Hold)
	case "time-limit":
		return text(&c.TimeLimit)
	case "kill-after":
		return text(&c.KillAfter)
	case "signal":
		return text(&c.Signal)
	case "rewrite":
		return list(&c.Rewrite)
	case "ok-exit":
		return list(&c.OkExit)
	case "tree":
		return option{toggle: &c.Tree}
	case "close":
		return option{toggle: &c.Close}
	case "exec", "no-fork":
		return option{toggle: &c.Exec}
	case "ttl":
		return text(&c.TTL)
	case "on-lost":
		return text(&c.OnLost)
	case "report":
		return text(&c.Report)
	case "show-args":
		return option{toggle: &c.ShowArgs}
	case "verbose":
		return option{toggle: &c.Verbose}
	case "quiet":
		return option{toggle: &c.Quiet}
	case "log-format":
		return text(&c.LogFormat)
	}
	return option{}
}

// longName is the long form of a flag of one letter.
func longName(letter byte) string {
	switch letter {
	case 's':
		return "shared"
	case 'x':
		return "exclusive"
	case 'e':
		return "exclusive-lock"
	case 'w':
		return "wait"
	case 'n':
		return "no-wait"
	case 'E':
		return "conflict-exit-code"
	case 'o':
		return "close"
	case 'F':
		return "exec"
	case 'v':
		return "verbose"
	case 'q':
		return "quiet"
	}
	return ""
}
