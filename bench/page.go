package main

import (
	_ "embed"
	"os"
	"strings"
)

//go:embed testdata/page.md
var pageHead string

// writePage writes docs/benchmarks.md: the prose of testdata/page.md, then
// the tables of this run.
func (b *bench) writePage(path string) error {
	parts := []string{strings.TrimSpace(pageHead) + "\n", markdown(b.about), markdown(b.verdicts())}
	for _, s := range b.sections {
		parts = append(parts, markdown(s))
	}
	// Written beside and renamed, so that a failure leaves the old page.
	beside := path + ".new"
	if err := os.WriteFile(beside, []byte(strings.Join(parts, "\n")), 0o644); err != nil {
		return err
	}
	return os.Rename(beside, path)
}
