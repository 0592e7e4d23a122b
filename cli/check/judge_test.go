package check

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"golock/test/testkit"
)

// runsOf makes runs of (started, queued), their notes of (begin, end, fence).
// Times are in ms.
func runsOf(all ...[5]int64) (runs []*run, notes map[int]*note) {
	notes = map[int]*note{}
	for i, v := range all {
		r := &run{number: i, started: v[0] * 1e6, queued: v[1] * 1e6, ended: v[3]*1e6 + 1}
		runs = append(runs, r)
		if v[2] != 0 {
			notes[i] = &note{Number: i, Begin: v[2] * 1e6, End: v[3] * 1e6, Fence: v[4]}
		}
	}
	return runs, notes
}

func TestInversions(t *testing.T) {
	for _, c := range []struct {
		name string
		want int
		all  [][5]int64
	}{
		{"in order", 0, [][5]int64{{1, 0, 2, 10, 1}, {3, 4, 11, 12, 2}, {5, 6, 13, 14, 3}}},
		{"overtaken in the queue", 1, [][5]int64{{1, 0, 2, 10, 1}, {3, 4, 13, 14, 3}, {5, 6, 11, 12, 2}}},
		{"overtaken by one that did not queue", 1, [][5]int64{{1, 0, 2, 10, 1}, {3, 4, 13, 14, 3}, {5, 0, 11, 12, 2}}},
		{"two overtake one", 2, [][5]int64{{1, 0, 2, 10, 1}, {3, 4, 15, 16, 4}, {5, 6, 11, 12, 2}, {7, 8, 13, 14, 3}}},
		{"begun at the same time", 0, [][5]int64{{1, 0, 2, 10, 1}, {3, 6, 13, 14, 3}, {5, 6, 11, 12, 2}}},
		{"a fence that goes back", 1, [][5]int64{{1, 0, 2, 3, 7}, {4, 0, 5, 6, 6}}},
		{"killed while it waited", 0, [][5]int64{{1, 0, 2, 10, 1}, {3, 4, 0, 0, 0}, {5, 6, 11, 12, 2}}},
	} {
		runs, notes := runsOf(c.all...)
		if got, ranked := inversions(runs, notes); got != c.want || ranked != len(notes) {
			t.Errorf("%s: %d inversions of %d, want %d of %d", c.name, got, ranked, c.want, len(notes))
		}
	}
}

func TestHandOffs(t *testing.T) {
	for _, c := range []struct {
		name string
		want []float64
		all  [][5]int64
	}{
		{"one after the other", []float64{1, 3}, [][5]int64{{1, 0, 2, 10, 0}, {3, 4, 11, 12, 0}, {5, 6, 15, 16, 0}}},
		{"nobody waited", nil, [][5]int64{{1, 0, 2, 10, 0}, {11, 12, 13, 14, 0}}},
		{"one came later, one waited", []float64{2}, [][5]int64{{1, 0, 2, 10, 0}, {11, 12, 13, 20, 0}, {14, 15, 22, 23, 0}}},
		{"killed inside: nobody knows when", []float64{1}, [][5]int64{{1, 0, 2, 0, 0}, {3, 4, 11, 12, 0}, {5, 6, 13, 14, 0}}},
		{"two at a time", []float64{1, 2}, [][5]int64{{1, 0, 2, 10, 0}, {1, 0, 3, 12, 0}, {4, 5, 11, 20, 0}, {4, 5, 14, 20, 0}}},
	} {
		runs, notes := runsOf(c.all...)
		got := handOffs(runs, notes)
		if len(got) != len(c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%s: %v, want %v", c.name, got, c.want)
			}
		}
	}
}

// Of the runs that were killed, those are missing whose children have not added.
func TestMissing(t *testing.T) {
	test := &Test{Dir: t.TempDir(), Loops: 5}
	for n := range test.Loops {
		test.runs = append(test.runs, &run{number: n, killed: n > 1})
	}
	notes := map[int]*note{0: {End: 1}, 1: {End: 2}, 2: {End: 3}, 3: {}} // 3 was killed after it had written
	testkit.Must(t, os.WriteFile(test.Dir+"/counter.0", []byte("4\n"), 0o600))
	if got := test.missing(notes); got != 1 {
		t.Errorf("%d are missing, want 1", got)
	}
	test.Loops = 9 // others failed
	if got := test.missing(notes); got != 2 {
		t.Errorf("%d are missing, want 2", got)
	}
}

// The verdict names each thing that is wrong.
func TestProblems(t *testing.T) {
	for _, c := range []struct {
		want string
		bad  func(map[int]*note, []*run)
	}{
		{"2 were inside at the same time, where 1 may be", func(n map[int]*note, _ []*run) { n[1].Place = 1 }},
		{"1 times a slot number was not below", func(n map[int]*note, _ []*run) { n[1].Slot = 1 }},
		{"1 runs overtook one", func(n map[int]*note, _ []*run) { n[1].Fence = 9 }},
		{"1 runs ended without having done their work: the first with exit code 79 (the slot was lost)", func(_ map[int]*note, r []*run) { r[1].code, r[1].message = 79, "the slot was lost" }},
		{"1 runs ended without having done their work: the first with exit code 0", func(n map[int]*note, _ []*run) { delete(n, 2) }},
	} {
		runs, notes := runsOf([5]int64{1, 0, 2, 10, 1}, [5]int64{3, 4, 11, 12, 2}, [5]int64{5, 6, 13, 14, 3})
		test := &Test{Dir: t.TempDir(), Loops: 3, Limit: 1, Golock: true, runs: runs}
		c.bad(notes, runs)
		testkit.Must(t, os.WriteFile(test.Dir+"/counter.0", []byte(strconv.Itoa(len(notes))), 0o600))
		r := test.judge(notes, nil)
		if r.Passed || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], c.want) {
			t.Errorf("problems %q, want %q", r.Problems, c.want)
		}
	}
}

func TestTimes(t *testing.T) {
	if got := timesOf([]float64{0.3, 0.6, 0.7, 1.2, 4, 4.5, 30}); got != (Times{1.2, 30, 30}) {
		t.Errorf("times %v", got)
	}
}
