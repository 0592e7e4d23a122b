//go:build !lean

package cli

import (
	"context"
	"embed"
	"fmt"
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

// completionScripts are what shells load. They pass the words of the command line to `golock
// complete`, so they offer exactly what this golock understands.
//
//go:embed completion
var completionScripts embed.FS

type completionCommand struct {
	Shell textFlag `arg:"" optional:"" name:"shell" placeholder:"bash|zsh|fish" help:"bash, zsh or fish."`
}

func (*completionCommand) Help() string {
	return `The script completes commands, flags, their values, names of locks in use and IDs. After
golock run it completes the command as if it stood alone.

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
		return usageError{fmt.Errorf("completion for %q: expected bash, zsh or fish", locks.Printable(shell, 40))}
	}
	return printOut(string(script))
}

// completeCommand is golock complete, which the completion scripts call. Words are the words after
// "golock", up to the one to complete, which may be empty. The first line of the answer says what that
// word can become:
//
//	words     a word of the lines that follow, each of which has a word, a tab and its meaning
//	part      such a word, but the user goes on typing it
//	files     the name of a file
//	command N what the shell offers for the words from the Nth on (the first is 0), as if they stood alone
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
	kind, found := complete(newParser(nil).Model, words)
	text := kind + "\n"
	for _, word := range found {
		if strings.HasPrefix(word, words[len(words)-1]) {
			text += strings.TrimRight(word, "\t") + "\n"
		}
	}
	return printOut(text)
}

const kindWords = "words"

// complete finds what the last of the words can become. kind is the first line of the answer of
// completeCommand, found are the lines that follow.
func complete(app *kong.Application, words []string) (kind string, found []string) {
	current := words[len(words)-1]
	if len(words) == 1 {
		for _, c := range app.Leaves(true) {
			found = append(found, c.Name+"\t"+c.Help)
		}
		return kindWords, found
	}
	c := commandNamed(app, words[0])
	if c == nil {
		return kindWords, nil
	}
	runsCommand := len(c.Positional) > 0 && c.Positional[0].Passthrough
	given := map[string][]string{} // the values of flags by the long name
	for i := 1; i < len(words)-1; i++ {
		name, value, attached := strings.Cut(words[i], "=")
		f := flagNamed(c, name)
		switch {
		case words[i] == "--" && runsCommand:
			return "command " + strconv.Itoa(i+1), nil
		case !strings.HasPrefix(name, "-") && runsCommand:
			return "command " + strconv.Itoa(i), nil
		case f == nil:
			continue
		case !f.IsBool() && !attached:
			i++
			if i == len(words)-1 {
				return valuesOf(f.Value, "", given)
			}
			value = words[i]
		}
		given[f.Name] = []string{value}
	}
	if name, _, attached := strings.Cut(current, "="); attached {
		if f := flagNamed(c, name); f != nil && !f.IsBool() {
			return valuesOf(f.Value, name+"=", given)
		}
	}
	_, isNamed := given["name"]
	needsFlag := runsCommand && current == "" && !isNamed
	switch {
	case strings.HasPrefix(current, "-"), needsFlag, len(c.Positional) == 0:
		return kindWords, remainingFlags(append(flagsOf(c), app.HelpFlag), given)
	case runsCommand:
		return "command " + strconv.Itoa(len(words)-1), nil
	}
	return valuesOf(c.Positional[0], "", given)
}

// remainingFlags returns the flags that may still be given, with their meaning.
func remainingFlags(flags []*kong.Flag, given map[string][]string) (found []string) {
	for _, f := range flags {
		_, isRepeatable := f.Target.Addr().Interface().(*listFlag)
		_, isGiven := given[f.Name]
		if !isGiven || isRepeatable {
			found = append(found, "--"+f.Name+"\t"+firstSentence(f.Help))
		}
	}
	return found
}

// valuesOf returns what the values of a flag or an argument can be. Each begins with the prefix, which is
// what stands before the value in the same word, such as --store=.
func valuesOf(v *kong.Value, prefix string, given map[string][]string) (kind string, found []string) {
	kind = kindWords
	switch v.Name {
	case "name", "lock", "id", "entry":
		wantsIDs := v.Name == "id" || v.Name == "entry"
		found = inUse(wantsIDs, given)
	case "store":
		kind = "part"
		found = []string{"local"}
		for _, scheme := range open.Schemes() {
			found = append(found, scheme+"://")
		}
	case "signal":
		for sig := unix.SIGHUP; sig <= unix.SIGSYS; sig++ {
			found = append(found, strings.TrimPrefix(unix.SignalName(sig), "SIG"))
		}
	default:
		if v.Tag.PlaceHolder == "FILE" {
			return "files", nil
		}
		for word := range strings.SplitSeq(v.Tag.PlaceHolder, "|") {
			if word != strings.ToUpper(word) { // in upper case it is a placeholder, not a value
				found = append(found, word)
			}
		}
	}
	for i := range found {
		found[i] = prefix + found[i]
	}
	return kind, found
}

// inUse returns the names of the locks in the store that the flags name, or with
// wantsIDs the IDs of the entries. It drops errors, because nobody would read them.
func inUse(wantsIDs bool, given map[string][]string) (found []string) {
	ls := &lsCommand{}
	ls.Name.texts, ls.Store.texts = given["name"], given["store"]
	ls.StoreFile.texts, ls.Config.texts = given["store-file"], given["config"]
	_, store, err := resolveStore(ls)
	if err != nil {
		return nil
	}
	defer store.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) // a user has pressed a key and waits
	defer cancel()
	entries, _ := store.Entries(ctx, ls.Name.text())
	for _, e := range entries {
		if locks.CheckName(e.Name) != nil { // no command takes such a name, and it may not fit in a line
			continue
		}
		command := locks.Printable(strings.Join(e.Command, " "), 50)
		switch {
		case wantsIDs:
			found = append(found, e.Ref.String()+"\t"+e.Name+": "+command)
		case !slices.ContainsFunc(found, func(one string) bool { return strings.HasPrefix(one, e.Name+"\t") }):
			found = append(found, e.Name+"\t"+command)
		}
	}
	return found
}

// firstSentence returns the beginning of a help text, short enough for a list.
func firstSentence(text string) string {
	text, _, _ = strings.Cut(text, ". ")
	text, _, _ = strings.Cut(text, "; ")
	text, _, _ = strings.Cut(text, ": ")
	return strings.TrimRight(text, ".")
}

// commandNamed finds a command that users call, or returns nil.
func commandNamed(app *kong.Application, name string) *kong.Node {
	for _, c := range app.Leaves(true) {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// flagsOf returns the flags of a command, without --help and hidden ones.
func flagsOf(c *kong.Node) []*kong.Flag {
	return slices.DeleteFunc(slices.Clone(c.Flags), func(f *kong.Flag) bool { return f.Hidden })
}

// namesOf returns the names of a flag as they are typed, the usual long one first.
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

// flagNamed finds a flag by one of its names, or returns nil.
func flagNamed(c *kong.Node, name string) *kong.Flag {
	for _, f := range flagsOf(c) {
		if slices.Contains(namesOf(f), name) {
			return f
		}
	}
	return nil
}
