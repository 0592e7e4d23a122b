package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sampleOf is n values around a middle, evenly spread.
func sampleOf(middle, spread float64, n int) []float64 {
	var v []float64
	for i := range n {
		v = append(v, middle+spread*(2*float64(i)/float64(n-1)-1))
	}
	return v
}

func measured(what string, sample []float64) measure {
	b := bench{report: &report{}}
	b.note(what, "x", sample)
	return b.measures[0]
}

// A run of the same program is not worse, and one that is slower by more than
// the rounds of either run differ is pointed out.
func TestCompare(t *testing.T) {
	for _, c := range []struct {
		name          string
		was, is       []float64
		worse, better bool
	}{
		{"the same", sampleOf(2, 0.2, 100), sampleOf(2, 0.2, 100), false, false},
		{"a little slower", sampleOf(2, 0.2, 100), sampleOf(2.08, 0.2, 100), false, false},
		{"slower by a tenth", sampleOf(2, 0.2, 100), sampleOf(2.2, 0.2, 100), true, false},
		{"faster by a tenth", sampleOf(2, 0.2, 100), sampleOf(1.8, 0.2, 100), false, true},
		{"by a tenth, but few and wide", sampleOf(2, 1, 5), sampleOf(2.2, 1, 5), false, false},
		{"twice, though few and wide", sampleOf(2, 0.5, 5), sampleOf(4, 0.5, 5), true, false},
		{"once each, a fifth more", []float64{2}, []float64{2.4}, false, false},
		{"once each, twice", []float64{2}, []float64{4}, true, false},
		{"what was nothing is something", []float64{0, 0, 0}, []float64{0, 1, 1}, true, false},
		{"nothing stays nothing", []float64{0, 0, 0}, []float64{0, 0, 0}, false, false},
	} {
		all := compare([]measure{measured("a", c.was)}, []measure{measured("a", c.is)})
		if len(all) != 1 || all[0].worse() != c.worse || all[0].better() != c.better {
			t.Errorf("%s: %+v", c.name, all)
		}
	}
}

// Only what both runs have, in the same unit, is compared, and the section
// names what changed and no other.
func TestChanges(t *testing.T) {
	was := []measure{{"start: golock run, against flock", 2, "x", 0.01, 600}, {"memory: golock run", 1.3, "MiB", 0, 5}, {"old", 1, "x", 0, 1}, {"unit", 1, "x", 0, 1}}
	is := []measure{{"start: golock run, against flock", 2.5, "x", 0.01, 600}, {"memory: golock run", 1.3, "MiB", 0, 5}, {"new", 9, "x", 0, 1}, {"unit", 9, "MiB", 0, 1}}
	all := compare(was, is)
	if len(all) != 2 || len(worse(all)) != 1 {
		t.Fatalf("%+v", all)
	}
	text := markdown(changes(all, results{Date: "yesterday", Golock: "v1"}))
	if !strings.Contains(text, "| start: golock run, against flock | 2 x | 2.5 x | 0.1 | WORSE |") ||
		strings.Contains(text, "| memory") || !strings.Contains(text, "1 of 2 measures") || !strings.Contains(text, "yesterday") {
		t.Error(text)
	}
}

// What is written is read again, and another format is not compared with.
func TestResultsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.json")
	r := results{Format: resultsFormat, Date: "today", Golock: "v1", Machine: "m", Measures: []measure{{"a", 1.5, "x", 0.1, 3}, {"b", 0, "", 0, 1}}}
	if err := r.write(path); err != nil {
		t.Fatal(err)
	}
	got, ok, err := readResults(path, "")
	if err != nil || !ok || got.Date != "today" || len(got.Measures) != 2 || got.Measures[0] != r.Measures[0] {
		t.Fatalf("%+v %v %v", got, ok, err)
	}
	if data, _ := os.ReadFile(path); strings.Count(string(data), "\n") != 4 {
		t.Errorf("not a line for each: %s", data)
	}
	r.Format++
	if err := r.write(path); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := readResults(path, ""); ok || err != nil {
		t.Errorf("another format: %v %v", ok, err)
	}
	t.Chdir(t.TempDir())
	if _, ok, err := readResults("", "docs/none.json"); ok || err != nil {
		t.Errorf("nothing committed: %v %v", ok, err)
	}
	if _, _, err := readResults("missing.json", ""); err == nil {
		t.Error("a file that is named must be there")
	}
}

func TestMedianError(t *testing.T) {
	for _, c := range []struct {
		sample []float64
		want   float64
	}{
		{nil, 0}, {[]float64{5}, 0.5}, {[]float64{1, 1, 1, 1}, 0}, {[]float64{1, 2}, 1.2533 / 1.128 / math.Sqrt2},
		{sampleOf(0, 1, 101), 1.2533 * (1 / 1.349) / math.Sqrt(101)},
	} {
		if got := medianError(c.sample); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v: %v, want %v", len(c.sample), got, c.want)
		}
	}
	if got := rounded(0.00123456); got != 0.001235 && math.Abs(got-0.001235) > 1e-12 {
		t.Errorf("rounded: %v", got)
	}
}
