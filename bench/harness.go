package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"
)

// experiment is a case: what is measured, with whom, and what must come of it.
// The results tell the exported part.
type experiment struct {
	Name    string   `json:"name"`
	Title   string   `json:"title"`            // cases with the same title share a table
	Column  string   `json:"column,omitempty"` // the first metric's in such a table
	How     string   `json:"how"`
	Metrics []metric `json:"metrics"`        // the first one is compared
	Base    string   `json:"base,omitempty"` // the row it is compared with

	rounds  int
	size    int // jobs, waiters, seconds
	quick   int // the size in a quick run; 0 if it is the same
	measure func(b *bench, t *tool, size int) sample
	rows    []row
	bars    []bar
}

// metric is a quantity and its unit.
type metric struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
}

// row is a tool that takes part.
type row struct {
	tool  string
	size  int // if it is not the experiment's; then the row is named for it
	every int // takes part in every so-manieth round only
}

// label is the name of the row on the page and in bars.
func (r row) label() string {
	if r.size == 0 {
		return r.tool
	}
	return fmt.Sprintf("%s, %d", r.tool, r.size)
}

// bar is a limit: of the median, of the median ratio (unit x) or difference to
// another row within a round, or of the worst round.
type bar struct {
	metric, of, against string
	limit               float64
	unit                string
	worst               bool
}

func (r bar) String() string {
	s := r.of + ": " + r.metric
	switch {
	case r.worst:
		s += ", worst round"
	case r.against != "" && r.unit == "x":
		s += ", ratio to " + r.against
	case r.against != "":
		s += ", beyond " + r.against
	}
	return s
}

// rounds are the samples of one row, by the round.
type rounds map[int]sample

// values gives one metric's.
func (r rounds) values(metric string) map[int]float64 {
	all := map[int]float64{}
	for round, s := range r {
		if v, is := s[metric]; is {
			all[round] = v
		}
	}
	return all
}

// measure measures all rows in interleaved rounds: each once a round, in an order
// that rotates. A row that fails takes no further part; its error is printed.
func (b *bench) measure(e experiment) outcome {
	begun := time.Now()
	rows, count := slices.Clone(e.rows), e.rounds
	if b.quick {
		const longest = 100
		rows = slices.DeleteFunc(rows, func(r row) bool { return r.size > longest })
		count = min(count, 2)
	}
	samples, failed := map[string]rounds{}, map[string]error{}
	for round := range count {
		for i := range rows {
			row := rows[(round+i)%len(rows)]
			label := row.label()
			if failed[label] != nil || (row.every > 0 && round%row.every != 0) {
				continue
			}
			var s sample
			err := try(func() { s = b.once(e, row) })
			if err != nil {
				fmt.Fprintf(os.Stderr, "bench: %s: %s: %v\n", e.Name, label, err)
				failed[label] = err
				b.endAll()
				continue
			}
			if samples[label] == nil {
				samples[label] = rounds{}
			}
			samples[label][round] = s
		}
	}
	out := outcome{experiment: e}
	for _, row := range rows {
		out.Rows = append(out.Rows, e.summarize(row.label(), samples, failed[row.label()]))
	}
	for _, limit := range e.bars {
		out.Bars = append(out.Bars, limit.measure(samples))
	}
	fmt.Fprintf(os.Stderr, "bench: %s took %.0f s\n", e.Name, time.Since(begun).Seconds())
	return out
}

// once measures one row. Servers are started outside of what is measured.
func (b *bench) once(e experiment, row row) sample {
	t, size := b.tool(row.tool), row.size
	if size == 0 && b.quick {
		size = e.quick
	}
	if size == 0 {
		size = e.size
	}
	return e.measure(b, t, size)
}

// summarize makes of a row's samples what is kept.
func (e experiment) summarize(label string, samples map[string]rounds, failed error) rowJSON {
	out := rowJSON{Tool: label, Rounds: len(samples[label]), Values: map[string]value{}}
	if failed != nil {
		out.Failed = failed.Error()
	}
	for _, m := range e.Metrics {
		if v := samples[label].values(m.Name); len(v) > 0 {
			out.Values[m.Name] = valueOf(v)
		}
	}
	first := e.Metrics[0].Name
	of, base := samples[label].values(first), samples[e.Base].values(first)
	if label != e.Base {
		out.Ratio = rounded(median(pairwise(of, base, ratio)))
	}
	return out
}

func ratio(a, b float64) float64 { return a / b }

// measure holds the samples against the bar.
func (r bar) measure(samples map[string]rounds) barJSON {
	out := barJSON{What: r.String(), Limit: r.limit, Unit: r.unit}
	of := samples[r.of].values(r.metric)
	all := valuesOf(of)
	if r.against != "" {
		combine := ratio
		if r.unit != "x" {
			combine = func(a, b float64) float64 { return a - b }
		}
		all = pairwise(of, samples[r.against].values(r.metric), combine)
	}
	if len(all) == 0 {
		return out
	}
	measured := rounded(median(all))
	if r.worst {
		measured = rounded(slices.Max(all))
	}
	out.Measured = &measured
	return out
}

// rounded keeps four digits: no more mean anything.
func rounded(v float64) float64 {
	return get(strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64))
}

// quantile of a sample, with linear interpolation; 0 of an empty one.
func quantile(sample []float64, q float64) float64 {
	if len(sample) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(sample))
	at := q * float64(len(s)-1)
	i := int(at)
	if i+1 == len(s) {
		return s[i]
	}
	return s[i] + (at-float64(i))*(s[i+1]-s[i])
}

func median(sample []float64) float64 { return quantile(sample, 0.5) }

func valuesOf(byRound map[int]float64) []float64 {
	return slices.Collect(maps.Values(byRound))
}

// pairwise combines two rows' values within each round: the way to compare on a
// machine whose speed changes from minute to minute.
func pairwise(a, b map[int]float64, combine func(a, b float64) float64) []float64 {
	var all []float64
	for round, x := range a {
		if y, both := b[round]; both && y != 0 {
			all = append(all, combine(x, y))
		}
	}
	return all
}

func valueOf(byRound map[int]float64) value {
	all := valuesOf(byRound)
	return value{rounded(median(all)), rounded(quantile(all, 0.1)), rounded(quantile(all, 0.9))}
}
