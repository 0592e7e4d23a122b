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
	var bars []barJSON
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
		bars = append(bars, got)
	}
	bars = append(bars, bar{metric: "wall", of: "c", limit: 1}.measure(samples)) // nothing was measured
	dir, r := t.TempDir(), results{Format: resultsFormat, Cases: []outcome{{Bars: bars}}}
	r.writeAll(dir)
	r = readResults(filepath.Join(dir, "benchmarks.json"))
	if missed := r.missed(); len(missed) != 3 {
		t.Errorf("missed: %v, want the second and the last two", missed)
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
	if page := section([]outcome{got}); !strings.Contains(page, "- flock, 2 failed: too late\n") {
		t.Errorf("the page does not tell of a failure:\n%s", page)
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

// docs/benchmarks.md is what its results give.
func TestPageIsCurrent(t *testing.T) {
	r := readResults("../docs/benchmarks.json")
	if page := get(os.ReadFile("../docs/benchmarks.md")); string(page) != r.page() {
		t.Error("not current: go run . -from ../docs/benchmarks.json -out ../docs")
	}
}
