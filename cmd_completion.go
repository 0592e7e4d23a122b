package main

import (
	"context"
	"embed"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"golock/config"
	"golock/locks"
	"golock/locks/open"
)

// The scripts that shells load. They only hand the words of the line to golock
// complete, so that what they offer is always what this golock understands.
//
//go:embed completion
var completionScripts embed.FS

// completionCommand is the grammar of golock completion.
type completionCommand struct {
	Shell *word `arg:"" optional:"" name:"shell"`
}

func (c *completionCommand) run(out *printer) int {
	shell := ""
	if c.Shell != nil {
		shell = string(*c.Shell)
	}
	if !slices.Contains(shells(), shell) {
		return out.exit(usageError{fmt.Errorf("completion for %q: want %s", locks.Printable(shell, 40), strings.Join(shells(), ", "))})
	}
	script, err := completionScripts.ReadFile("completion/golock." + shell)
	if err != nil {
		panic(err)
	}
	if _, err := os.Stdout.Write(script); err != nil {
		return out.exit(outputError{err})
	}
	return 0
}

func shells() []string { return []string{"bash", "zsh", "fish"} }

// completeCommand is the grammar of golock complete, which the scripts of
// completion call: WORDS are those behind "golock" up to the one that is to be
// completed, which may be empty. The first line of the answer says what fits:
//
//	words     one of the lines that follow: the word, a tab, what it means
//	part      the same, and the word goes on
//	files     a file
//	command N what a shell would complete if the words from the Nth on (from 0)
//	          stood alone
type completeCommand struct {
	Words rest `arg:"" optional:"" passthrough:""`
}

func (c *completeCommand) run(out *printer) int {
	words := []string(c.Words)
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	if len(words) == 0 {
		words = []string{""}
	}
	commands, err := describe()
	if err != nil {
		panic(err)
	}
	var b strings.Builder
	a := complete(commands, words)
	fmt.Fprintln(&b, a.kind)
	for _, w := range a.words {
		if strings.HasPrefix(w.word, words[len(words)-1]) {
			fmt.Fprintln(&b, strings.TrimRight(w.word+"\t"+w.meaning, "\t"))
		}
	}
	if _, err := os.Stdout.WriteString(b.String()); err != nil {
		return out.exit(outputError{err})
	}
	return 0
}

// answer is what fits.
type answer struct {
	kind  string
	words []suggestion
}

type suggestion struct{ word, meaning string }

const kindWords = "words"

// complete finds what the last of the words can become.
func complete(commands []commandModel, words []string) answer {
	current := words[len(words)-1]
	if len(words) == 1 {
		a := answer{kind: kindWords}
		for _, c := range commands {
			a.words = append(a.words, suggestion{c.name, c.summary})
		}
		return a
	}
	i := slices.IndexFunc(commands, func(c commandModel) bool { return c.name == words[0] })
	if i < 0 {
		return answer{kind: kindWords}
	}
	c := commands[i]
	given := map[string]string{} // by the long name without dashes
	for i := 1; i < len(words)-1; i++ {
		name, value, attached := strings.Cut(words[i], "=")
		f, known := c.flag(name)
		switch {
		case words[i] == "--" && c.runs:
			return answer{kind: "command " + strconv.Itoa(i+1)}
		case !strings.HasPrefix(name, "-") && c.runs:
			return answer{kind: "command " + strconv.Itoa(i)}
		case !known || f.value == "" || attached:
		case i+1 == len(words)-1:
			return c.values(f, "", given)
		default:
			i++
			value = words[i]
		}
		if known {
			given[f.names[0][2:]] = value
		}
	}
	if name, _, attached := strings.Cut(current, "="); attached {
		if f, known := c.flag(name); known && f.value != "" {
			return c.values(f, name+"=", given)
		}
	}
	switch _, named := given["name"]; {
	case strings.HasPrefix(current, "-"), c.runs && current == "" && !named:
		return c.unused(given)
	case c.runs:
		return answer{kind: "command " + strconv.Itoa(len(words)-1)}
	case c.arg == "":
		return c.unused(given)
	}
	return c.values(flagModel{names: []string{"--" + c.arg}, value: c.arg}, "", given)
}

// unused are the flags that can still be given.
func (c *commandModel) unused(given map[string]string) answer {
	a := answer{kind: kindWords}
	for _, f := range c.flags {
		if _, used := given[f.names[0][2:]]; !used || f.several {
			a.words = append(a.words, suggestion{f.names[0], firstSentence(f.help)})
		}
	}
	return a
}

// values are those that a flag can have, each behind the prefix.
func (c *commandModel) values(f flagModel, prefix string, given map[string]string) answer {
	a := answer{kind: kindWords}
	switch key := f.names[0][2:]; key {
	case "name", "lock", "id":
		a.words = inUse(key == "id", given)
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
	case "log-format":
		a.words = []suggestion{{"text", ""}, {"json", ""}}
	case "shell":
		for _, shell := range shells() {
			a.words = append(a.words, suggestion{shell, ""})
		}
	default:
		if f.value == "FILE" || key == "reports" {
			return answer{kind: "files"}
		}
		for word := range strings.SplitSeq(f.value, "|") {
			if strings.Contains(f.value, "|") && strings.ToLower(word) == word {
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

// inUse are the names, or the IDs, of all that holds or waits in the store of
// the flags. Whatever goes wrong: a completion has nobody to tell it to.
func inUse(ids bool, given map[string]string) (found []suggestion) {
	asked := flags{}
	for _, key := range []string{"store", "config"} {
		if value, ok := given[key]; ok {
			asked[key] = []string{value}
		}
	}
	v, err := asked.resolveWithout("GOLOCK_NAME")
	if err != nil {
		return nil
	}
	store, err := storeOf(v)
	if err != nil {
		return nil
	}
	defer store.Close()
	ctx, cancel := context.WithTimeout(context.Background(), lookLimit)
	defer cancel()
	name := given[config.NameKey]
	for e, err := range store.Entries(ctx, name) {
		if err != nil {
			return found
		}
		one := suggestion{e.Name, locks.Printable(strings.Join(e.Command, " "), 50)}
		if ids {
			one = suggestion{e.Ref.String(), e.Name + ": " + one.meaning}
		}
		if locks.CheckName(e.Name) != nil { // nobody can ask for it, and it could be more than a line
			continue
		}
		if one.word != "" && !slices.ContainsFunc(found, func(s suggestion) bool { return s.word == one.word }) {
			found = append(found, one)
		}
	}
	return found
}

// firstSentence is what a list has room for.
func firstSentence(text string) string {
	text, _, _ = strings.Cut(text, ". ")
	text, _, _ = strings.Cut(text, "; ")
	text, _, _ = strings.Cut(text, ": ")
	return strings.TrimRight(text, ".")
}
