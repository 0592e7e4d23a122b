//go:build !lean

package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golock/test/testkit"
)

// event is a call that writes an event: its message, as far as it is written
// down there, and the names of its values.
type event struct {
	at, message string
	keys        []string
}

// eventsOf finds every event in a directory's source: calls of Log and log with
// (warn, message, pairs...), of Step and Warn with (message, pairs...), and of
// Line with (level, message, pairs).
func eventsOf(t *testing.T, dir string) (events []event) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	testkit.Must(t, err)
	set := token.NewFileSet()
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(set, file, nil, 0)
		testkit.Must(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			name := ""
			switch f := call.Fun.(type) {
			case *ast.SelectorExpr:
				name = f.Sel.Name
			case *ast.Ident:
				name = f.Name
			}
			first := map[string]int{"Log": 1, "log": 1, "Step": 0, "Warn": 0, "Line": 1}
			at, ok := first[name]
			if !ok || len(call.Args) <= at || name == "Line" && len(call.Args) < 3 {
				return true
			}
			e := event{at: set.Position(call.Pos()).String(), message: leading(call.Args[at])}
			if e.message == "" {
				return true // a sentence, or passed on from elsewhere
			}
			pairs := call.Args[at+1:]
			if name == "Line" {
				list, ok := call.Args[2].(*ast.CompositeLit)
				if !ok {
					return true
				}
				pairs = list.Elts
			}
			for i := 0; i < len(pairs); i += 2 {
				key := leading(pairs[i])
				if key == "" {
					t.Errorf("%s: a key that is not written down", e.at)
				}
				e.keys = append(e.keys, key)
			}
			events = append(events, e)
			return true
		})
	}
	return events
}

// leading is the text that an expression begins with; "": it is not known.
func leading(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, _ := strconv.Unquote(e.Value)
		return text
	case *ast.BinaryExpr:
		return leading(e.X)
	}
	return ""
}

// Every event, with every key, is in docs/reference.md, and nothing else is.
func TestLogFormatIsDocumented(t *testing.T) {
	_, text, found := strings.Cut(pages(t)["docs/reference.md"], "\n## Log events\n")
	if !found {
		t.Fatal("docs/reference.md has no section of log events")
	}
	text, _, _ = strings.Cut(text, "\n## ")
	documented, missing := map[string]map[string]bool{}, map[string]bool{}
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]*)\\|")
	for _, m := range row.FindAllStringSubmatch(text, -1) {
		keys := map[string]bool{}
		for _, k := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(m[2], -1) {
			keys[k[1]] = true
			missing[m[1]+" "+k[1]] = true
		}
		documented[m[1]] = keys
		missing[m[1]] = true
	}
	for _, e := range slices.Concat(eventsOf(t, "."), eventsOf(t, "term"), eventsOf(t, projectDir+"/runner"), eventsOf(t, projectDir+"/runner/renewal")) {
		name := e.message
		if strings.HasPrefix(name, "ignored: ") {
			name = "ignored: …"
		}
		keys, ok := documented[name]
		if !ok {
			t.Errorf("%s: docs/reference.md does not know the event %q", e.at, name)
			continue
		}
		delete(missing, name)
		for _, key := range e.keys {
			if !keys[key] {
				t.Errorf("%s: docs/reference.md does not know the key %s of %q", e.at, key, name)
			}
			delete(missing, name+" "+key)
		}
	}
	for name := range missing {
		t.Errorf("docs/reference.md describes %q, which there is not", name)
	}
}
