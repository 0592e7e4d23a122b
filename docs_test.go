package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golock/locks/open"
)

// pages are all that is written for users, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	add := func(path string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all[path] = string(text)
	}
	add("README.md")
	for _, dir := range []string{"docs", "examples"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".md") {
				add(path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// What the pages tell exists: flags, variables, exit codes, stores, files, tests.
func TestDocs(t *testing.T) {
	commands, err := describe()
	if err != nil {
		t.Fatal(err)
	}
	read, set := variables(t)
	known := append(read, set...)
	call := regexp.MustCompile(`\bgolock (run|acquire|renew|release|held|ls|break|clean|[a-z]+)((?: [^\s` + "`" + `|;&)]+)*)`)
	quoted := regexp.MustCompile(`'[^'\n]*'|"[^"\n]*"`)
	calls := 0
	for path, text := range pages(t) {
		for _, m := range call.FindAllStringSubmatch(quoted.ReplaceAllString(text, "QUOTED"), -1) {
			i := slices.IndexFunc(commands, func(c commandModel) bool { return c.name == m[1] })
			if i < 0 {
				continue // a sentence about golock
			}
			calls++
			args, _, _ := strings.Cut(m[2]+" ", " -- ")
			words := strings.Fields(args)
			for n := 0; n < len(words); n++ {
				name, _, attached := strings.Cut(strings.TrimRight(words[n], ".,:'\""), "=")
				if !strings.HasPrefix(name, "-") {
					if commands[i].runs {
						break // the command begins
					}
					continue
				}
				f, ok := commands[i].flag(name)
				if !ok && name != "-e" && name != "--" {
					t.Errorf("%s: golock %s has no flag %s: %s", path, m[1], name, m[0])
				}
				if ok && f.value != "" && !attached {
					n++
				}
			}
		}
		for _, name := range matches(text, `\bGOLOCK_[A-Z]+(?:_[A-Z]+)*`) {
			if !slices.Contains(known, name) && !strings.HasPrefix(name, "GOLOCK_TEST_") && name != "GOLOCK_CAMPAIGN" {
				t.Errorf("%s: there is no variable %s", path, name)
			}
		}
		for _, link := range matches(text, `\]\(([^)#:]+)(?:#[^)]*)?\)`) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), link)); err != nil {
				t.Errorf("%s: a link: %v", path, err)
			}
		}
	}
	if calls < 80 {
		t.Errorf("only %d commands were found: the test is blind", calls)
	}

	readme := pages(t)["README.md"]
	_, table, _ := strings.Cut(readme, "\n## Exit codes\n")
	table, _, _ = strings.Cut(table, "\n\nWith ")
	var codes []string
	for _, row := range matches(table, `(?m)^\| ([0-9+N, ]+) \|`) {
		codes = append(codes, matches(row, `\d+`)...)
	}
	same(t, "README, exit codes", codes, exitCodes(t))
	schemes := open.Schemes()
	for _, scheme := range schemes {
		if !strings.Contains(pages(t)["docs/stores.md"], scheme+"://") {
			t.Errorf("docs/stores.md does not tell of %s://", scheme)
		}
	}
	_, table, _ = strings.Cut(readme, "\n## Stores\n")
	table, _, _ = strings.Cut(table, "\nURLs, ")
	for _, scheme := range []string{"local", "flock", "fcntl", "bind", "mkdir", "symlink", "excl", "redis", "mysql", "mariadb", "postgres"} {
		if !strings.Contains(table, scheme+"://") {
			t.Errorf("README's table of stores does not tell of %s://", scheme)
		}
	}
	for _, scheme := range matches(table, `([a-z+]+)://`) {
		if !slices.Contains(schemes, scheme) {
			t.Errorf("README's table of stores tells of %s://, which is not there", scheme)
		}
	}
}

// Each row of docs/failures.md names tests that exist where it says, and every store has its table.
func TestDocsOfFailures(t *testing.T) {
	text := pages(t)["docs/failures.md"]
	rows := 0
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 5 || strings.HasPrefix(cells[1], "---") || strings.TrimSpace(cells[1]) == "what fails" {
			if strings.HasPrefix(line, "|") && len(cells) != 5 {
				t.Errorf("a row that is none: %s", line)
			}
			continue
		}
		rows++
		folder, named := "", 0
		for _, span := range matches(cells[3], "`([^`]+)`") {
			name := span
			if dir, test, found := strings.Cut(span, ": "); found {
				folder, name = dir, test
			}
			named++
			if !hasFunction(t, folder, name) {
				t.Errorf("%s has no test %s: %s", folder, name, cells[1])
			}
		}
		if named == 0 && !strings.Contains(cells[1], "**not promised:**") {
			t.Errorf("no test shows it: %s", line)
		}
	}
	if rows < 50 {
		t.Errorf("only %d rows were found", rows)
	}
	headings := strings.Join(matches(text, `(?m)^## (.*)$`), ", ")
	for _, scheme := range open.Schemes() {
		family, _, _ := strings.Cut(scheme, "+")
		switch family {
		case "rediss":
			family = "redis"
		case "postgresql":
			family = "postgres"
		}
		if !strings.Contains(headings, family) {
			t.Errorf("no table for %s", scheme)
		}
	}
}

// docs/security.md names tests that exist, and all of those that attack.
func TestDocsOfSecurity(t *testing.T) {
	text := pages(t)["docs/security.md"]
	named := matches(text, "`(Test[A-Za-z]+)`")
	for _, test := range named {
		if !hasFunction(t, "test/hostile", test) {
			t.Errorf("test/hostile has no test %s", test)
		}
	}
	files, err := filepath.Glob("test/hostile/*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range matches(string(text), `(?m)^func (Test[A-Z][A-Za-z]+)\(t `) {
			if !slices.Contains(named, test) {
				t.Errorf("docs/security.md does not tell of %s", test)
			}
		}
	}
}

func hasFunction(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(files) == 0 {
		t.Errorf("no folder %q: %v", folder, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+name+"(") {
			return true
		}
	}
	return false
}
