package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// measure is a figure that travels from one machine to another, and from one
// run to the next: a ratio to what was measured in the same rounds, a count, an
// amount of memory. Milliseconds do not. Smaller is better in all of them.
type measure struct {
	What   string  `json:"what"` // experiment: tool, and what it is compared with
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Error  float64 `json:"error"` // the standard error of the value, by the spread of what it is the median of
	Rounds int     `json:"rounds"`
}

// results are those of a run, as the file beside the page has them.
type results struct {
	Format   int       `json:"format"`
	Date     string    `json:"date"`
	Command  string    `json:"command"`
	Machine  string    `json:"machine"`
	Golock   string    `json:"golock"`
	Measures []measure `json:"measures"`
}

// resultsFormat changes when older files cannot be compared with any more.
const resultsFormat = 1

// note keeps the median of a sample for later runs to be compared with.
func (b *bench) note(what, unit string, sample []float64) {
	b.measures = append(b.measures, measure{what, rounded(median(sample)), unit, rounded(medianError(sample)), len(sample)})
}

// noteRatio keeps how a tool of golock's compares with another one.
func (b *bench) noteRatio(experiment string, t *tool, p paired, base string, of paired) {
	if t.isGolock() && t.name != base {
		b.note(fmt.Sprintf("%s: %s, against %s", experiment, t.name, base), "x", p.ratios(of))
	}
}

// rounded keeps four digits: no more mean anything.
func rounded(v float64) float64 {
	short, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return short
}

// change is what became of a measure between two runs.
type change struct {
	measure
	was       float64
	tolerance float64 // a difference up to this says nothing
}

func (c change) worse() bool  { return c.Value-c.was > c.tolerance }
func (c change) better() bool { return c.was-c.Value > c.tolerance }

const (
	// certainty is how many standard errors apart two values have to be. One of
	// some hundred measures is beyond three by chance.
	certainty = 4

	// unseen is the part of a value by which two runs of the same program
	// differ though neither saw it within itself: where the kernel happens to
	// put a file's pages, what else a machine's neighbours do.
	unseen = 0.05
)

// tolerance of the difference between two runs' values of one measure. What was
// nothing in every round has to stay nothing.
func tolerance(was, is measure) float64 {
	if was.Value == 0 && was.Error == 0 {
		return 0
	}
	return max(certainty*math.Hypot(was.Error, is.Error), unseen*was.Value)
}

// compare holds a run's measures against an earlier one's. A measure that only
// one of them has is left out.
func compare(was, is []measure) []change {
	before := map[string]measure{}
	for _, m := range was {
		before[m.What+m.Unit] = m
	}
	var all []change
	for _, m := range is {
		if old, both := before[m.What+m.Unit]; both {
			all = append(all, change{m, old.Value, tolerance(old, m)})
		}
	}
	return all
}

// worse gives those that became worse.
func worse(all []change) []change {
	var bad []change
	for _, c := range all {
		if c.worse() {
			bad = append(bad, c)
		}
	}
	return bad
}

// changes are the comparison as it is printed.
func changes(all []change, before results) section {
	s := section{
		title: "Against the run before",
		how: fmt.Sprintf("What changed since the run of %s (golock %s, %s), in ratios, counts and memory; milliseconds are not compared. "+
			"A difference counts when it is more than %d standard errors, by the spread of the rounds in both runs, and more than %g %%.",
			before.Date, before.Golock, before.Machine, certainty, unseen*100),
		head: []string{"what", "was", "is", "tolerance", ""},
	}
	same := 0
	for _, c := range all {
		verdict := ""
		switch {
		case c.worse():
			verdict = "WORSE"
		case c.better():
			verdict = "better"
		default:
			same++
			continue
		}
		s.rows = append(s.rows, []string{
			c.What, fmt.Sprintf("%.4g %s", c.was, c.Unit), fmt.Sprintf("%.4g %s", c.Value, c.Unit), fmt.Sprintf("%.2g", c.tolerance), verdict,
		})
	}
	if s.rows == nil {
		s.head = nil
	}
	s.notes = append(s.notes, fmt.Sprintf("%d of %d measures that both runs have are within their tolerance", same, len(all)))
	return s
}

// readResults reads an earlier run's. Without a file that is named it is what
// is committed; ok is false if nothing is, or nothing that can be compared with.
func readResults(file, committed string) (before results, ok bool, err error) {
	var data []byte
	if file != "" {
		data, err = os.ReadFile(file)
	} else {
		show := exec.Command("git", "show", "HEAD:"+committed)
		if data, err = show.Output(); err != nil {
			if data, err = os.ReadFile(committed); errors.Is(err, fs.ErrNotExist) {
				return before, false, nil
			}
		}
	}
	if err != nil {
		return before, false, err
	}
	if err := json.Unmarshal(data, &before); err != nil {
		return before, false, fmt.Errorf("results of an earlier run: %w", err)
	}
	return before, before.Format == resultsFormat, nil
}

// results of this run, of the experiments of one page.
func (b *bench) results(about section) results {
	r := results{Format: resultsFormat, Command: commandLine(), Golock: b.tools["golock"].version, Measures: b.measures}
	for _, row := range about.rows {
		switch row[0] {
		case "date":
			r.Date = row[1]
		case "processor":
			r.Machine = row[1]
		}
	}
	return r
}

// write leaves the results as a file that shows well in a diff: a line each.
func (r results) write(path string) error {
	var out strings.Builder
	measures := r.Measures
	r.Measures = nil
	head, err := json.Marshal(r)
	if err != nil {
		return err
	}
	out.WriteString(strings.TrimSuffix(string(head), "null}") + "[\n")
	for i, m := range measures {
		line, err := json.Marshal(m)
		if err != nil {
			return err
		}
		end := ",\n"
		if i+1 == len(measures) {
			end = "\n"
		}
		out.WriteString("  " + string(line) + end)
	}
	out.WriteString("]}\n")
	return replaceFile(path, out.String())
}
