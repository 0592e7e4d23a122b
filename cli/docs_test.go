//go:build !lean

package cli

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"golock/locks/open"
	"golock/test/testkit"
)

// projectDir is the module's root.
const projectDir = ".."

// pages are all that is written for users, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	add := func(path string) {
		text, err := os.ReadFile(filepath.Join(projectDir, path))
		testkit.Must(t, err)
		all[path] = string(text)
	}
	add("README.md")
	add("CHANGELOG.md")
	err := fs.WalkDir(os.DirFS(projectDir), "docs", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".md") {
			add(path)
		}
		return err
	})
	testkit.Must(t, err)
	return all
}

// What the pages tell exists: flags, variables, exit codes, stores, files.
func TestDocs(t *testing.T) {
	commands := newParser(nil).Model.Leaves(true)
	read, set := variables(t)
	known := append(read, set...)
	call := regexp.MustCompile(`\bgolock (run|acquire|renew|release|held|ls|break|clean|[a-z]+)((?: [^\s` + "`" + `|;&)]+)*)`)
	quoted := regexp.MustCompile(`'[^'\n]*'|"[^"\n]*"`)
	calls := 0
	for path, text := range pages(t) {
		for _, m := range call.FindAllStringSubmatch(quoted.ReplaceAllString(text, "QUOTED"), -1) {
			i := slices.IndexFunc(commands, func(c *kong.Node) bool { return c.Name == m[1] })
			if i < 0 {
				continue // a sentence about golock
			}
			calls++
			args, _, _ := strings.Cut(m[2]+" ", " -- ")
			words := strings.Fields(args)
			for n := 0; n < len(words); n++ {
				name, _, attached := strings.Cut(strings.TrimRight(words[n], ".,:'\""), "=")
				if !strings.HasPrefix(name, "-") {
					if m[1] == "run" {
						break // the command begins
					}
					continue
				}
				f := flagNamed(commands[i], name)
				if f == nil && name != "--" {
					t.Errorf("%s: golock %s has no flag %s: %s", path, m[1], name, m[0])
				}
				if f != nil && !f.IsBool() && !attached {
					n++
				}
			}
		}
		for _, name := range matches(text, `\bGOLOCK_[A-Z]+(?:_[A-Z]+)*`) {
			if !slices.Contains(known, name) {
				t.Errorf("%s: there is no variable %s", path, name)
			}
		}
		for _, link := range matches(text, `\]\(([^)#:]+)(?:#[^)]*)?\)`) {
			if _, err := os.Stat(filepath.Join(projectDir, filepath.Dir(path), link)); err != nil {
				t.Errorf("%s: a link: %v", path, err)
			}
		}
	}
	if calls < 80 {
		t.Errorf("only %d commands were found: the test is blind", calls)
	}

	_, table, _ := strings.Cut(pages(t)["docs/reference.md"], "\n## Exit codes\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var codes []string
	for _, row := range matches(table, `(?m)^\| ([0-9+N, ]+) \|`) {
		codes = append(codes, matches(row, `\d+`)...)
	}
	codes = slices.DeleteFunc(codes, func(code string) bool { return code == "0" })
	same(t, "docs/reference.md, exit codes", codes, exitCodes(t))
	schemes := open.Schemes()
	for _, scheme := range schemes {
		if !strings.Contains(pages(t)["docs/stores.md"], scheme+"://") {
			t.Errorf("docs/stores.md does not tell of %s://", scheme)
		}
	}
	choosing := pages(t)["docs/choosing.md"]
	for _, scheme := range []string{"local", "flock", "fcntl", "bind", "mkdir", "symlink", "excl", "redis", "mysql", "mariadb", "postgres", "etcd"} {
		if !strings.Contains(choosing, "`"+scheme+"`") && !strings.Contains(choosing, scheme+"://") {
			t.Errorf("docs/choosing.md does not tell of %s", scheme)
		}
	}
	for _, page := range []string{"README.md", "docs/choosing.md"} {
		for _, scheme := range matches(pages(t)[page], "`([a-z+]+)://") {
			if !slices.Contains(schemes, scheme) {
				t.Errorf("%s tells of %s://, which is not there", page, scheme)
			}
		}
	}
}

// Every test that docs/development.md names for the tables of failures exists, and every store has a
// table. Pages for users name no tests.
func TestDocsOfFailures(t *testing.T) {
	_, tests, _ := strings.Cut(pages(t)["docs/development.md"], "\n## Tests of the pages\n")
	tests, _, _ = strings.Cut(tests, "\n## ")
	exist := testFunctions(t, ".", `(?m)^func ([Tt]est\w+)\(`)
	named := matches(tests, "`([Tt]est[A-Za-z0-9]+)`")
	for _, test := range named {
		if !slices.Contains(exist, test) {
			t.Errorf("docs/development.md: there is no test %s", test)
		}
	}
	if len(named) < 70 {
		t.Errorf("only %d tests are named", len(named))
	}
	for _, page := range []string{"README.md", "docs/guide.md", "docs/runbook.md", "docs/choosing.md", "docs/operations.md",
		"docs/stores.md", "docs/reference.md", "docs/security.md"} {
		for _, test := range matches(pages(t)[page], "`((?:Test|test|Fuzz)[A-Z][A-Za-z0-9]+)`") {
			t.Errorf("%s, a page for users, names the test %s", page, test)
		}
	}
	_, text, _ := strings.Cut(pages(t)["docs/operations.md"], "\n## Failures\n")
	text, _, _ = strings.Cut(text, "\n## ")
	headings := strings.Join(matches(text, `(?m)^### (.*)$`), ", ")
	for _, scheme := range open.Schemes() {
		family, _, _ := strings.Cut(scheme, "+")
		switch family {
		case "rediss":
			family = "redis"
		case "postgresql":
			family = "postgres"
		case "etcds":
			family = "etcd"
		}
		if !strings.Contains(headings, family) {
			t.Errorf("no table for %s", scheme)
		}
	}
}

// Pages that are written by hand fit into 100 columns, and the README is short.
func TestPagesAreShort(t *testing.T) {
	generated := []string{"docs/benchmarks.md", "docs/reliability.md"}
	for path, text := range pages(t) {
		number := 0
		for line := range strings.Lines(text) {
			number++
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 && !slices.Contains(generated, path) {
				t.Errorf("%s:%d has %d columns", path, number, n)
			}
		}
		if path == "README.md" && number > 110 {
			t.Errorf("README.md has %d lines", number)
		}
	}
}

// testFunctions are the names of the tests below a folder of the module.
func testFunctions(t *testing.T, folder, pattern string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(projectDir, folder), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		text, err := os.ReadFile(path)
		names = append(names, matches(string(text), pattern)...)
		return err
	})
	testkit.Must(t, err)
	return names
}

// docs/development.md names all tests that attack, and no others.
func TestDocsOfSecurity(t *testing.T) {
	_, attacks, _ := strings.Cut(pages(t)["docs/development.md"], "\nAttacks by other users")
	attacks, _, _ = strings.Cut(attacks, "\n## ")
	named := matches(attacks, "`(Test[A-Za-z]+)`")
	same(t, "docs/development.md", named, testFunctions(t, "test/hostile", `(?m)^func (Test\w+)\(t `))
}

// The commands and flags in docs/reference.md are what the program makes of its flags.
func TestReferenceIsCurrent(t *testing.T) {
	text, err := os.ReadFile(projectDir + "/docs/reference.md")
	_, rest, _ := strings.Cut(string(text), "<!-- flags -->\n")
	part, _, found := strings.Cut(rest, "\n<!-- /flags -->")
	want := reference(newParser(nil).Model)
	if err != nil || !found || part != want {
		t.Errorf("not current (%v): this has to be between the marks:\n%s", err, want)
	}
}

// reference is the part of docs/reference.md about commands and flags. What is as
// for run is not said again.
func reference(app *kong.Application) string {
	var b strings.Builder
	inRun := map[string]string{}
	for _, c := range app.Leaves(true) {
		fmt.Fprintf(&b, "\n### golock %s\n\n%s", c.Name, fold(c.Help+" `"+usageOf(c)+"`", ""))
		var items, same []string
		for _, f := range flagsOf(c) {
			switch {
			case inRun[f.Name] == f.Help:
				same = append(same, "`--"+f.Name+"`")
			default:
				items = append(items, referenceItem(f, c.Name == "run" && f.Tag.Has("file")))
			}
			if c.Name == "run" {
				inRun[f.Name] = f.Help
			}
		}
		if len(items) > 0 {
			b.WriteString("\n" + strings.Join(items, ""))
		}
		if len(same) > 0 {
			b.WriteString("\n" + fold("As for `run`: "+strings.Join(same, ", ")+".", ""))
		}
	}
	return b.String()
}

func referenceItem(f *kong.Flag, flagOnly bool) string {
	names := "`" + strings.Join(namesOf(f), "`, `")
	if f.PlaceHolder != "" {
		names += " " + f.PlaceHolder
	}
	names += "`"
	var notes []string
	if env := f.Tag.Get("variable"); env != "" {
		notes = append(notes, env)
	}
	if value := f.Tag.Get("builtin"); value != "" {
		notes = append(notes, "default "+value)
	}
	if flagOnly {
		notes = append(notes, "flag only")
	}
	if len(notes) > 0 {
		names += " (" + strings.Join(notes, ", ") + ")"
	}
	return "-" + fold(names+": "+f.Help, "  ")[1:]
}
