//go:build !lean

package cli

import (
	"context"
	"embed"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/sys/unix"

	"golock/cli/term"
	"golock/locks"
	"golock/locks/open"
)

// The scripts that shells load. They only hand the words of the line to golock
// complete, so that what they offer is always what this golock understands.
//
//go:embed completion
var completionScripts embed.FS

type completionCommand struct {
	Shell textFlag `arg:"" optional:"" name:"shell" help:"bash, zsh or fish."`
}

func (*completionCommand) Help() string {
	return `Completes commands, flags, their values, the names of locks in use, IDs, and behind
golock run the command as if it stood alone.

Examples:
  source <(golock completion bash)
        in ~/.bashrc
  source <(golock completion zsh)
        in ~/.zshrc, after compinit
  golock completion fish > ~/.config/fish/completions/golock.fish`
}

func (c *completionCommand) run(*term.Printer) error {
	shell := c.Shell.text()
	script, err := completionScripts.ReadFile("completion/golock." + shell)
	if err != nil {
		return usageError{fmt.Errorf("completion for %q: want bash, zsh, fish", locks.Printable(shell, 40))}
	}
	return printOut(string(script))
}

// completeCommand is golock complete, which the scripts of completion call: WORDS
// are those behind "golock" up to the one to complete, which may be empty. The
// first line of the answer says what fits:
//
//	words     one of the lines that follow: the word, a tab, what it means
//	part      the same, and the word goes on
//	files     a file
//	command N what a shell would complete if the words from the Nth on (from 0)
//	          stood alone
type completeCommand struct {
	Words rest `arg:"" optional:"" passthrough:"" name:"words"`
}

func (c *completeCommand) run(*term.Printer) error {
	words := []string(c.Words)
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	if len(words) == 0 {
		words = []string{""}
	}
	var b strings.Builder
	a := complete(newParser(nil).Model, words)
	fmt.Fprintln(&b, a.kind)
	for _, w := range a.words {
		if strings.HasPrefix(w.word, words[len(words)-1]) {
			fmt.Fprintln(&b, strings.TrimRight(w.word+"\t"+w.meaning, "\t"))
		}
	}
	return printOut(b.String())
}

// completions is what fits.
type completions struct {
	kind  string
	words []suggestion
}

type suggestion struct{ word, meaning string }

const kindWords = "words"

// complete finds what the last of the words can become.
func complete(app *kong.Application, words []string) completions {
	current := words[len(words)-1]
	if len(words) == 1 {
		a := completions{kind: kindWords}
		for _, c := range commandsOf(app) {
			a.words = append(a.words, suggestion{c.Name, c.Help})
		}
		return a
	}
	all := commandsOf(app)
	i := slices.IndexFunc(all, func(c *kong.Node) bool { return c.Name == words[0] })
	if i < 0 {
		return completions{kind: kindWords}
	}
	c := all[i]
	runs := len(c.Positional) > 0 && c.Positional[0].Passthrough
	given := map[string][]string{} // by the long name
	for i := 1; i < len(words)-1; i++ {
		name, value, attached := strings.Cut(words[i], "=")
		f := flagNamed(c, name)
		switch {
		case words[i] == "--" && runs:
			return completions{kind: "command " + strconv.Itoa(i+1)}
		case !strings.HasPrefix(name, "-") && runs:
			return completions{kind: "command " + strconv.Itoa(i)}
		case f == nil || f.IsBool() || attached:
		case i+1 == len(words)-1:
			return values(f.Name, f.PlaceHolder, "", given)
		default:
			i++
			value = words[i]
		}
		if f != nil {
			given[f.Name] = []string{value}
		}
	}
	if name, _, attached := strings.Cut(current, "="); attached {
		if f := flagNamed(c, name); f != nil && !f.IsBool() {
			return values(f.Name, f.PlaceHolder, name+"=", given)
		}
	}
	switch _, named := given["name"]; {
	case strings.HasPrefix(current, "-"), runs && current == "" && !named:
		return unused(c, given)
	case runs:
		return completions{kind: "command " + strconv.Itoa(len(words)-1)}
	case len(c.Positional) == 0:
		return unused(c, given)
	}
	return values(c.Positional[0].Name, "", "", given)
}

// unused are the flags that can still be given.
func unused(c *kong.Node, given map[string][]string) completions {
	a := completions{kind: kindWords}
	for _, f := range flagsOf(c) {
		if _, used := given[f.Name]; !used || isRepeatable(f) {
			a.words = append(a.words, suggestion{"--" + f.Name, firstSentence(f.Help)})
		}
	}
	return a
}

// values are those of a flag or an argument, each behind the prefix.
func values(key, placeholder, prefix string, given map[string][]string) completions {
	a := completions{kind: kindWords}
	switch key {
	case "name", "lock", "id", "entry":
		a.words = inUse(key == "id" || key == "entry", given)
	case "store":
		a.kind = "part"
		for _, scheme := range open.Schemes() {
			if scheme == "local" {
				a.words = append(a.words, suggestion{scheme, ""})
			}
			a.words = append(a.words, suggestion{scheme + "://", ""})
		}
	case "signal":
		for sig := unix.SIGHUP; sig <= unix.SIGSYS; sig++ {
			a.words = append(a.words, suggestion{strings.TrimPrefix(unix.SignalName(sig), "SIG"), ""})
		}
	case "shell":
		for _, shell := range []string{"bash", "zsh", "fish"} {
			a.words = append(a.words, suggestion{shell, ""})
		}
	default:
		if placeholder == "FILE" || key == "reports" {
			return completions{kind: "files"}
		}
		for word := range strings.SplitSeq(placeholder, "|") {
			if strings.Contains(placeholder, "|") && strings.ToLower(word) == word {
				a.words = append(a.words, suggestion{word, ""})
			}
		}
	}
	for i := range a.words {
		a.words[i].word = prefix + a.words[i].word
	}
	return a
}

// lookLimit bounds how long a completion asks the store.
const lookLimit = time.Second

// inUse are the names, or the IDs, of all entries in the store of the flags.
// Errors are ignored: nobody would read them.
func inUse(ids bool, given map[string][]string) (found []suggestion) {
	flags := map[string][]string{}
	for _, key := range []string{"store", "store-file", "config"} {
		if value, ok := given[key]; ok {
			flags[key] = value
		}
	}
	v, err := resolve(&lsCommand{}, flags)
	if err != nil {
		return nil
	}
	store, err := openStore(v)
	if err != nil {
		return nil
	}
	defer store.Close()
	ctx, cancel := context.WithTimeout(context.Background(), lookLimit)
	defer cancel()
	name := ""
	if named := given["name"]; named != nil {
		name = named[0]
	}
	for e, err := range store.Entries(ctx, name) {
		if err != nil {
			return found
		}
		one := suggestion{e.Name, locks.Printable(strings.Join(e.Command, " "), 50)}
		if ids {
			one = suggestion{e.Ref.String(), e.Name + ": " + one.meaning}
		}
		if locks.CheckName(e.Name) != nil { // nobody can ask for it, and it may not fit in a line
			continue
		}
		if one.word != "" && !slices.ContainsFunc(found, func(s suggestion) bool { return s.word == one.word }) {
			found = append(found, one)
		}
	}
	return found
}

// firstSentence is short enough for a list.
func firstSentence(text string) string {
	text, _, _ = strings.Cut(text, ". ")
	text, _, _ = strings.Cut(text, "; ")
	text, _, _ = strings.Cut(text, ": ")
	return strings.TrimRight(text, ".")
}

// commandsOf are the commands that users call.
func commandsOf(app *kong.Application) (all []*kong.Node) {
	for _, c := range app.Children {
		if !c.Hidden {
			all = append(all, c)
		}
	}
	return all
}

// flagsOf are the flags of a command, --help last.
func flagsOf(c *kong.Node) []*kong.Flag {
	levels := c.AllFlags(true)
	slices.Reverse(levels)
	return slices.Concat(levels...)
}

// namesOf are the names of a flag as they are typed, the usual long one first.
func namesOf(f *kong.Flag) []string {
	names := []string{"--" + f.Name}
	if f.Short != 0 {
		names = append(names, "-"+string(f.Short))
	}
	for _, alias := range f.Aliases {
		dashes := "--"
		if len(alias) == 1 {
			dashes = "-"
		}
		names = append(names, dashes+alias)
	}
	return names
}

func isRepeatable(f *kong.Flag) bool { return f.Target.Type() == reflect.TypeFor[listFlag]() }

// flagNamed finds a flag by one of its names; nil: there is none.
func flagNamed(c *kong.Node, name string) *kong.Flag {
	for _, f := range flagsOf(c) {
		if slices.Contains(namesOf(f), name) {
			return f
		}
	}
	return nil
}
