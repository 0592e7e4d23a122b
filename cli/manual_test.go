//go:build !lean

package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golock/locks/open"
	"golock/runner"
	"golock/test/testkit"
)

// page is golock(1) of this program.
func page(t *testing.T) string {
	t.Helper()
	return manual(manualPage, newParser(nil).Model)
}

// part is one section of the page.
func part(t *testing.T, page, title string) string {
	t.Helper()
	_, text, found := strings.Cut(page, "\n.SH "+title+"\n")
	if !found {
		t.Fatalf("golock(1) has no section %s", title)
	}
	text, _, _ = strings.Cut(text, "\n.SH ")
	return text
}

// same demands that two lists have the same members.
func same(t *testing.T, what string, documented, real []string) {
	t.Helper()
	for _, list := range []*[]string{&documented, &real} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	for _, word := range real {
		if !slices.Contains(documented, word) {
			t.Errorf("%s: %s is not documented", what, word)
		}
	}
	for _, word := range documented {
		if !slices.Contains(real, word) {
			t.Errorf("%s: %s is documented, and not there", what, word)
		}
	}
}

func matches(text, pattern string) (all []string) {
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		all = append(all, m[len(m)-1])
	}
	return all
}

// exitCodes are the program's own: the constants exit... of exit.go.
func exitCodes(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("exit.go")
	codes := matches(string(text), `(?m)^\texit\w+ += (\d+)`)
	if err != nil || len(codes) < 10 {
		t.Fatalf("only these constants were found: %q, %v", codes, err)
	}
	return codes
}

// variables are those that the program reads or sets: the settings', and the
// constants of runner.
func variables(t *testing.T) (read, set []string) {
	t.Helper()
	all, _ := settings(&runCommand{})
	for _, s := range all {
		if s.Env != "" {
			read = append(read, s.Env)
		}
	}
	files, err := filepath.Glob(projectDir + "/runner/*.go")
	testkit.Must(t, err)
	for _, f := range files {
		if text, err := os.ReadFile(f); err != nil {
			t.Fatal(err)
		} else if !strings.HasSuffix(f, "_test.go") {
			set = append(set, matches(string(text), `"(GOLOCK_[A-Z_]+)`)...)
		}
	}
	if len(set) < 7 {
		t.Fatalf("runner sets only %q", set)
	}
	for _, name := range set {
		if !runner.IsOutput(name) {
			t.Errorf("golock takes its own variable %s for a misspelt setting", name)
		}
	}
	return read, set
}

// golock(1) and the program have the same commands, flags, variables, exit codes and stores.
func TestManualIsComplete(t *testing.T) {
	text := page(t)
	var names []string
	for _, c := range newParser(nil).Model.Leaves(true) {
		names = append(names, c.Name)
		_, section, _ := strings.Cut(text, "\n.SS golock "+c.Name+"\n")
		section, _, _ = strings.Cut(section, "\n.S")
		var flags, documented []string
		for _, f := range flagsOf(c) {
			flags = append(flags, namesOf(f)...)
		}
		for _, names := range matches(section, `\\fB(.*?)\\fR`) {
			documented = append(documented, matches(strings.ReplaceAll(names, `\-`, "-"), `(?:^|, )(--?[a-zA-Z-]+)`)...)
		}
		same(t, "golock "+c.Name, documented, flags)
	}
	same(t, "commands", matches(text, `(?m)^\.SS golock ([a-z]+)$`), names)

	read, set := variables(t)
	known := slices.Concat(read, set)
	same(t, "variables", matches(part(t, text, "ENVIRONMENT"), `(?m)^(?:\\fB|\.B )(GOLOCK_[A-Z_]+)`), known)
	for _, name := range matches(text, `GOLOCK_[A-Z_]+`) {
		if !slices.Contains(known, name) {
			t.Errorf("golock(1) speaks of %s, which nobody knows", name)
		}
	}
	same(t, "exit codes", matches(part(t, text, "EXIT STATUS"), `(?m)^\.TP\n\.BR? ([0-9]+)`), exitCodes(t))
	schemes := matches(part(t, text, "STORES"), `([a-z+]+)://`)
	same(t, "stores", schemes, open.Schemes())
	for _, title := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "FILES", "SIGNALS", "EXAMPLES", "SEE ALSO"} {
		part(t, text, title)
	}
}

// The sample of a configuration file has every setting that a file can give.
func TestSampleIsComplete(t *testing.T) {
	var keys []string
	all, _ := settings(&runCommand{})
	for _, s := range all {
		if !s.NotInFile {
			keys = append(keys, s.Key)
		}
	}
	same(t, "golock manual --toml", matches(sample(newParser(nil).Model), `(?m)^# ?([a-z-]+) = `), keys)
}
