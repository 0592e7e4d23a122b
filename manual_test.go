package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"golock/locks/open"
)

// page is golock(1) of this program.
func page(t *testing.T) string {
	t.Helper()
	commands, err := describe()
	if err != nil {
		t.Fatal(err)
	}
	return manual(manualPage, commands)
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

// exitCodes are the program's own: the constants exit... of this package.
func exitCodes(t *testing.T) (codes []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.CONST || strings.HasSuffix(name, "_test.go") {
				continue
			}
			for _, spec := range decl.Specs {
				if v := spec.(*ast.ValueSpec); strings.HasPrefix(v.Names[0].Name, "exit") && len(v.Values) == 1 {
					codes = append(codes, v.Values[0].(*ast.BasicLit).Value)
				}
			}
		}
	}
	if len(codes) < 10 {
		t.Fatalf("only these constants were found: %q", codes)
	}
	return codes
}

// variables are those that the program reads or sets: the settings', and the
// constants of runner.
func variables(t *testing.T) (read, set []string) {
	t.Helper()
	for _, s := range settings() {
		if s.Env != "" {
			read = append(read, s.Env)
		}
	}
	files, err := filepath.Glob("runner/*.go")
	if err != nil {
		t.Fatal(err)
	}
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
	return read, set
}

// golock(1) and the program have the same commands, flags, variables, exit codes and stores.
func TestManualIsComplete(t *testing.T) {
	text := page(t)
	parser, err := kong.New(&root{}, kong.Name("golock"))
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	for _, node := range parser.Model.Children {
		if node.Hidden {
			continue
		}
		commands = append(commands, node.Name)
		_, section, found := strings.Cut(text, "\n.SS golock "+node.Name+"\n")
		if !found {
			continue // said below
		}
		section, _, _ = strings.Cut(section, "\n.S")
		var flags []string
		for _, f := range node.Flags {
			if !f.Hidden {
				flags = append(flags, "--"+f.Name)
			}
			for _, alias := range f.Aliases {
				flags = append(flags, "--"+alias)
			}
		}
		var documented []string
		for _, names := range matches(section, `\\fB(.*?)\\fR`) {
			documented = append(documented, matches(strings.ReplaceAll(names, `\-`, "-"), `--[a-z-]+`)...)
		}
		same(t, "golock "+node.Name, documented, flags)
		if strings.Contains(section, ".TP\n\\fB\\fR") || regexp.MustCompile(`(?m)\\fR\n\n`).MatchString(section) {
			t.Errorf("golock %s: a flag without a text", node.Name)
		}
	}
	same(t, "commands", matches(text, `(?m)^\.SS golock ([a-z]+)$`), commands)

	read, set := variables(t)
	same(t, "variables", matches(part(t, text, "ENVIRONMENT"), `(?m)^(?:\\fB|\.B )(GOLOCK_[A-Z_]+)`), append(read, set...))
	for _, name := range matches(text, `GOLOCK_[A-Z_]+`) {
		if !slices.Contains(append(read, set...), name) {
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

// Every text of --help belongs to something, and everything has a text.
func TestHelpIsComplete(t *testing.T) {
	parser, err := kong.New(&root{}, kong.Name("golock"))
	if err != nil {
		t.Fatal(err)
	}
	var commands, flags []string
	for _, f := range parser.Model.Flags {
		flags = append(flags, f.Name)
	}
	for _, node := range parser.Model.Children {
		if node.Hidden {
			continue
		}
		commands = append(commands, node.Name)
		for _, f := range node.Flags {
			if !f.Hidden {
				flags = append(flags, f.Name)
			}
		}
		for _, p := range node.Positional {
			flags = append(flags, p.Name)
		}
	}
	var documented []string
	for name, text := range commandTexts() {
		if documented = append(documented, name); text.help == "" {
			t.Errorf("golock %s has no text", name)
		}
	}
	same(t, "commands", documented, commands)
	documented = nil
	for name, text := range valueTexts() {
		if documented = append(documented, name); text.help == "" {
			t.Errorf("--%s has no text", name)
		}
	}
	same(t, "flags and arguments", documented, flags)
}

// The formatters of manual pages find nothing to say about golock(1).
func TestManualIsWellFormed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "golock.1")
	if err := os.WriteFile(file, []byte(page(t)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{
		{"groff", "-man", "-ww", "-z", "-Tutf8", file},
		{"mandoc", "-Tlint", "-Wwarning", file},
		{"man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", file},
	} {
		if _, err := exec.LookPath(argv[0]); err != nil {
			t.Fatalf("%v; run: make deps", err)
		}
		var said bytes.Buffer
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Stderr = &said
		if argv[0] == "mandoc" { // its findings are its output
			cmd.Stdout = &said
		}
		if err := cmd.Run(); err != nil || said.Len() > 0 {
			t.Errorf("%q: %v\n%s", argv, err, &said)
		}
	}
	// What is typed is what is shown: no dash has become a hyphen, no quote a curly one.
	shown, err := exec.Command("mandoc", "-Tutf8", "-Owidth=200", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	plain := regexp.MustCompile(".\b").ReplaceAllString(string(shown), "")
	for _, line := range []string{
		"golock run --name gpu --max 4 -- sh -c 'CUDA_VISIBLE_DEVICES=$GOLOCK_SLOT exec train'",
		"golock break --id $(golock ls --json deploy | jq -r '.[0].id')",
		"*/5 * * * * golock run --name sync -n -E 0 -- /usr/local/bin/sync",
	} {
		if !strings.Contains(plain, line) {
			t.Errorf("golock(1) does not show %q", line)
		}
	}
}
