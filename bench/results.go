package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// resultsFormat changes when an older file cannot be read any more.
const resultsFormat = 2

// results are what a run of the benchmarks has measured. The page and the bars are made from them alone.
type results struct {
	Format  int        `json:"format"`
	Date    string     `json:"date"`
	Quick   bool       `json:"quick"`
	Minutes float64    `json:"minutes"`
	Machine [][]string `json:"machine"`
	Cases   []outcome  `json:"cases"`
}

// outcome is what a case has measured.
type outcome struct {
	experiment
	Rows []rowJSON `json:"rows"`
	Bars []barJSON `json:"bars,omitempty"`
}

// rowJSON is one tool. Ratio is the median of the ratios to the base's first
// metric within each round.
type rowJSON struct {
	Tool   string           `json:"tool"`
	Rounds int              `json:"rounds"`
	Values map[string]value `json:"values"`
	Ratio  float64          `json:"ratio,omitempty"`
	Failed string           `json:"failed,omitempty"`
}

// value sums up a metric over the rounds.
type value struct {
	Median float64 `json:"median"`
	P10    float64 `json:"p10,omitempty"`
	P90    float64 `json:"p90,omitempty"`
}

// barJSON is a limit and what was measured; nil if nothing was.
type barJSON struct {
	What     string   `json:"what"`
	Limit    float64  `json:"limit"`
	Unit     string   `json:"unit"`
	Measured *float64 `json:"measured"`
}

func (b barJSON) met() bool { return b.Measured != nil && *b.Measured <= b.Limit }

func (b barJSON) String() string {
	verdict, measured := "MISSED", "nothing"
	if b.Measured != nil {
		measured = fmt.Sprintf("%.4g", *b.Measured)
	}
	if b.met() {
		verdict = "met"
	}
	return fmt.Sprintf("%-7s %8s, at most %g %s: %s", verdict, measured, b.Limit, b.Unit, b.What)
}

// missed gives the bars that are not met. A quick run leaves out long queues, and
// with them their bars.
func (r results) missed() (all []barJSON) {
	for _, c := range r.Cases {
		for _, b := range c.Bars {
			if !b.met() && (b.Measured != nil || !r.Quick) {
				all = append(all, b)
			}
		}
	}
	return all
}

func readResults(path string) (r results) {
	must(json.Unmarshal(get(os.ReadFile(path)), &r))
	if r.Format != resultsFormat {
		must(fmt.Errorf("%s: format %d, want %d", path, r.Format, resultsFormat))
	}
	return r
}

// writeAll writes the results, and the page from them.
func (r results) writeAll(dir string) {
	data := get(json.MarshalIndent(r, "", " "))
	replaceFile(filepath.Join(dir, "benchmarks.json"), append(data, '\n'))
	replaceFile(filepath.Join(dir, "benchmarks.md"), []byte(r.page()))
}

// replaceFile writes beside and renames, so that a failure leaves the old file.
func replaceFile(path string, data []byte) {
	beside := path + ".new"
	must(os.WriteFile(beside, data, 0o644))
	must(os.Rename(beside, path))
}
