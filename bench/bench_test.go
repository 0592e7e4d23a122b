package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The table is typed by hand: what it names must be there.
func TestTableOfCases(t *testing.T) {
	names := map[string]bool{}
	for _, e := range experiments() {
		if names[e.Name] {
			t.Errorf("two cases are named %s", e.Name)
		}
		names[e.Name] = true
		rows, metrics := map[string]bool{}, map[string]bool{}
		for _, r := range e.rows {
			if rows[r.label()] {
				t.Errorf("%s: two rows are named %s", e.Name, r.label())
			}
			rows[r.label()] = true
		}
		for _, m := range e.Metrics {
			metrics[m.Name] = true
		}
		if e.Base != "" && !rows[e.Base] {
			t.Errorf("%s: no row %q to compare with", e.Name, e.Base)
		}
		for _, b := range e.bars {
			if !metrics[b.metric] || !rows[b.of] || (b.against != "" && !rows[b.against]) {
				t.Errorf("%s: a bar is of nothing: %v", e.Name, b)
			}
		}
		if (e.Column != "") != (e.Title == shared) {
			t.Errorf("%s: a column %q of the table %q", e.Name, e.Column, e.Title)
		}
	}
}

func TestBarsCompareWithinRounds(t *testing.T) {
	// The machine is three times slower in the second round.
	samples := map[string]rounds{
		"a": {0: {"wall": 2}, 1: {"wall": 6.3}, 2: {"wall": 2.2}},
		"b": {0: {"wall": 1}, 1: {"wall": 3}, 2: {"wall": 1}, 3: {"wall": 100}},
	}
	for _, c := range []struct {
		bar  bar
		want float64
		met  bool
	}{
		{bar{metric: "wall", of: "a", against: "b", limit: 2.1, unit: "x"}, 2.1, true},
		{bar{metric: "wall", of: "a", against: "b", limit: 1, unit: "ms"}, 1.2, false},
		{bar{metric: "wall", of: "a", limit: 2.2, unit: "ms"}, 2.2, true},
		{bar{metric: "wall", of: "a", limit: 2.2, unit: "ms", worst: true}, 6.3, false},
	} {
		got := c.bar.measure(samples)
		if got.Measured == nil || *got.Measured != c.want || got.met() != c.met {
			t.Errorf("%v: want %g, %v", got, c.want, c.met)
		}
	}
	if got := (bar{metric: "wall", of: "c", limit: 1}).measure(samples); got.met() {
		t.Errorf("a bar that nothing was measured of: %v", got)
	}
}

func newTestBench(t *testing.T) *bench {
	t.Helper()
	b := newBench("/bin/true") // no golock is needed
	t.Cleanup(b.close)
	return b
}

func TestRoundsRotateAndFailuresStay(t *testing.T) {
	b := newTestBench(t)
	var order []string
	e := experiment{
		Metrics: []metric{{"wall", "ms"}}, Base: "true", rounds: 4, size: 1,
		rows: append(tools("true", "flock", "nothing"), row{tool: "flock", size: 2, every: 2}),
		measure: func(_ *bench, tool *tool, size int) sample {
			order = append(order, fmt.Sprint(tool.name, size))
			if size == 2 && len(order) > 3 {
				must(errors.New("too late"))
			}
			return sample{"wall": float64(len(tool.name))}
		},
	}
	got := b.measure(e)
	want := "true1 flock1 flock2 flock1 true1 flock2 true1 flock1 true1 flock1"
	if strings.Join(order, " ") != want {
		t.Errorf("order: %v, want %s", order, want)
	}
	if o := got.Rows[1]; o.Ratio != 1.25 || o.Rounds != 4 {
		t.Errorf("flock: %+v", o)
	}
	if got.Rows[3].Failed != "too late" || got.Rows[3].Rounds != 1 || got.Rows[2].Failed == "" {
		t.Errorf("rows that failed: %+v", got.Rows[2:])
	}
}

// Programs are started as cron does it.
func TestStarterIsLikeCron(t *testing.T) {
	must(unix.Dup3(2, 200, 0)) // the harness's caller may leave some open
	defer unix.Close(200)
	b := newTestBench(t)
	file := filepath.Join(b.dir, "seen")
	script := `exec >"$0"; grep FDSize /proc/self/status; tty; echo /proc/$$/fd/*; env`
	p := b.start([]string{"/bin/sh", "-c", script, file})[0]
	p.succeed()
	data, _ := os.ReadFile(file)
	// With the fourth descriptor the shell reads the directory.
	fds := fmt.Sprintf("/proc/%[1]d/fd/0 /proc/%[1]d/fd/1 /proc/%[1]d/fd/2 /proc/%[1]d/fd/3\n", p.pid)
	head, variables, _ := strings.Cut(string(data), fds)
	if head != "FDSize:\t64\nnot a tty\n" {
		t.Errorf("a program sees:\n%s", data)
	}
	want := append(cronEnvironment(b.dir), "PWD="+b.dir) // the last is the shell's
	got := strings.Fields(variables)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("a program's environment: %q, want %q", got, want)
	}
}

func TestStarterTellsHowAProgramEnded(t *testing.T) {
	b := newTestBench(t)
	for script, want := range map[string]int{"exit 3": 3, "kill -TERM $$": 143} {
		p := b.start([]string{"/bin/sh", "-c", script})[0]
		if r := p.wait(); r.code != want || r.ended <= p.begun {
			t.Errorf("%s: %+v, want code %d", script, r, want)
		}
	}
	b.start([]string{"/bin/sh", "-c", "setsid sleep 1000 & exit 0"})[0].succeed()
	b.endAll()
	if left := childrenOf(b.cmd.Process.Pid); left != nil {
		t.Errorf("an orphan is left after the end of all: %v", left)
	}
}

// A lock that does not exclude must not get a figure.
func TestRecordsShowExclusion(t *testing.T) {
	l := lock{dir: filepath.Join(t.TempDir(), "lock")}
	write := func(records ...[3]int64) {
		var data []byte
		for _, r := range records {
			for _, v := range r {
				data = binary.NativeEndian.AppendUint64(data, uint64(v))
			}
		}
		must(os.WriteFile(l.records(), data, 0o600))
	}
	strict := &tool{name: "strict"}
	write([3]int64{2, 30e6, 40e6}, [3]int64{1, 10e6, 20e6})
	if gaps, inversions := gapsOf(readRecords(strict, l, 2)); gaps[0] != 10 || inversions != 0 {
		t.Errorf("gaps %v, inversions %d", gaps, inversions)
	}
	if try(func() { readRecords(strict, l, 3) }) == nil {
		t.Error("a command that did not run is not noticed")
	}
	write([3]int64{1, 10e6, 20e6}, [3]int64{2, 19e6, 40e6})
	if try(func() { readRecords(strict, l, 2) }) == nil {
		t.Error("an overlap is not noticed")
	}
}

func TestPageHasATableForEachQuestion(t *testing.T) {
	dir, measured := t.TempDir(), 3.0
	of := func(metric string, v float64) map[string]value { return map[string]value{metric: {v, v, v}} }
	r := results{Format: resultsFormat, Date: "2026-11-22", Cases: []outcome{
		{
			experiment: experiment{Title: "Start-up", Base: "flock", Metrics: []metric{{"wall", "ms"}, {"CPU", "ms"}}},
			Rows: []rowJSON{
				{Tool: "flock", Values: of("wall", 1.25)}, {Tool: "golock", Values: of("wall", 2.5), Ratio: 2},
				{Tool: "lost", Failed: "not there"},
			},
			Bars: []barJSON{{What: "golock: wall", Limit: 2, Measured: &measured}},
		},
		{
			experiment: experiment{Title: "Servers", Column: "hand-off", Metrics: []metric{{"gap", "ms"}, {"worst gap", "ms"}}},
			Rows:       []rowJSON{{Tool: "golock", Values: of("gap", 123.4)}},
		},
		{
			experiment: experiment{Title: "Servers", Column: "burst", Metrics: []metric{{"total", "ms"}}},
			Rows:       []rowJSON{{Tool: "golock, 100", Values: of("total", 7)}},
		},
	}}
	r.writeAll(dir)
	must(os.Remove(filepath.Join(dir, "benchmarks.md")))
	r = readResults(filepath.Join(dir, "benchmarks.json"))
	r.writeAll(dir)
	if r.missed() == nil {
		t.Error("the bar that was missed is lost")
	}
	page := string(get(os.ReadFile(filepath.Join(dir, "benchmarks.md"))))
	for _, want := range []string{
		"|  | wall, ms (ratio to flock) | CPU, ms |\n", "| golock | 2.5 (2) | - |\n", "lost failed: not there",
		"|  | hand-off, ms | burst, ms |\n", "| golock | 123 | - |\n| golock, 100 | - | 7 |\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if strings.Contains(page, r.Cases[0].Bars[0].What) {
		t.Error("the page tells of bars")
	}
}

// docs/benchmarks.md is what its results give.
func TestPageIsCurrent(t *testing.T) {
	r := readResults("../docs/benchmarks.json")
	if page := get(os.ReadFile("../docs/benchmarks.md")); string(page) != r.page() {
		t.Error("not current: go run . -from ../docs/benchmarks.json -out ../docs")
	}
}
