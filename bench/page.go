package main

import (
	_ "embed"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// report is what one page tells.
type report struct {
	pageHead
	sections []section
	targets  []target
	measures []measure
	plots    []*plot
	changed  []section // against an earlier run
}

// pageHead is what of a page is not measured.
type pageHead struct{ name, prose string }

//go:embed testdata/page.md
var benchmarksProse string

//go:embed testdata/scale.md
var scaleProse string

// pageHeads are the pages: the second one has the experiments of scale.
var pageHeads = []pageHead{{"benchmarks", benchmarksProse}, {"scale", scaleProse}}

// plotTitles are the drawings, by the names of their files.
var plotTitles = map[string]struct{ title, unit string }{
	"start-up":    {"Start-up: a run of /bin/true, free lock", "ms"},
	"hand-off":    {"Hand-off: from the end of one command to the start of the next", "ms"},
	"burst":       {"Burst: many at once on one lock, by process", "ms"},
	"memory":      {"Resident memory of one process that holds", "MiB"},
	"scale-grant": {"Hand-off as the line grows", "ms"},
	"scale-cpu":   {"CPU time for each grant as the line grows, clients and server", "ms"},
}

// writePage writes the report of b under path, or in its directory if it is
// another one than the first: its prose, then the tables of this run, the
// results for later runs beside it, and the drawings below it.
func (b *bench) writePage(path string) error {
	if b.report != b.pages[0] {
		path = filepath.Join(filepath.Dir(path), b.name+".md")
	}
	parts := []string{strings.TrimSpace(b.prose) + "\n"}
	foot := ""
	for _, row := range b.about.rows {
		if row[0] == "date" || row[0] == "processor" {
			foot = strings.TrimPrefix(foot+", "+row[1], ", ")
		}
	}
	if b.quick {
		foot += ", few rounds"
	}
	for _, p := range b.plots {
		file := filepath.Join("plots", p.file+".svg")
		if err := os.MkdirAll(filepath.Join(filepath.Dir(path), "plots"), 0o755); err != nil {
			return err
		}
		if err := replaceFile(filepath.Join(filepath.Dir(path), file), p.svg(foot)); err != nil {
			return err
		}
		parts = append(parts, "!["+p.title+"]("+file+")\n")
	}
	parts = append(parts, markdown(b.about))
	for _, s := range slices.Concat([]section{b.verdicts()}, b.changed, b.sections) {
		parts = append(parts, markdown(s))
	}
	if err := b.results(b.about).write(strings.TrimSuffix(path, ".md") + ".json"); err != nil {
		return err
	}
	return replaceFile(path, strings.Join(parts, "\n"))
}

// replaceFile writes beside and renames, so that a failure leaves the old file.
func replaceFile(path, text string) error {
	beside := path + ".new"
	if err := os.WriteFile(beside, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(beside, path)
}
