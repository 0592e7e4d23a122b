package check

import (
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
		got := handOffs(runs, notes, true)
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

// What a killed child has added counts if anybody has seen it.
func TestAdded(t *testing.T) {
	notes := map[int]*note{
		0: {Number: 0, End: 1, Found: count{Last: -1}},
		1: {Number: 1, Found: count{1, 0}}, // killed after it had written
		2: {Number: 2, End: 3, Found: count{2, 1}},
		3: {Number: 3, Found: count{3, 2}}, // killed before
		4: {Number: 4, Found: count{3, 2}}, // killed after, and the last one
	}
	test := &Test{Dir: t.TempDir()}
	testkit.Must(t, writeCount(test.Dir+"/counter.0", count{4, 4}))
	sum, got := test.added(notes)
	if sum != 4 {
		t.Errorf("the sum is %d", sum)
	}
	for n := range 5 {
		if got[n] != (n != 3) {
			t.Errorf("%d added: %v", n, got[n])
		}
	}
}

// The verdict names each thing that is wrong.
func TestProblems(t *testing.T) {
	for _, c := range []struct {
		want string
		bad  func(map[int]*note, []*run)
	}{
		{"2 were inside at the same time, where 1 may be", func(n map[int]*note, _ []*run) { n[1].Others = 1 }},
		{"1 times a slot number was given to two", func(n map[int]*note, _ []*run) { n[1].Clash = true }},
		{"1 times a slot number was not below", func(n map[int]*note, _ []*run) { n[1].Slot = 1 }},
		{"1 runs overtook one", func(n map[int]*note, _ []*run) { n[1].Fence = 9 }},
		{"1 runs ended without having done their work: the first with exit code 79 (the slot was lost)", func(_ map[int]*note, r []*run) { r[1].code, r[1].output = 79, []byte("the slot was lost\n") }},
		{"1 runs ended without having done their work: the first with exit code 0", func(n map[int]*note, _ []*run) { delete(n, 2) }},
	} {
		runs, notes := runsOf([5]int64{1, 0, 2, 10, 1}, [5]int64{3, 4, 11, 12, 2}, [5]int64{5, 6, 13, 14, 3})
		test := &Test{Dir: t.TempDir(), Loops: 3, Limit: 1, Golock: true, Ordered: true, runs: runs}
		c.bad(notes, runs)
		testkit.Must(t, writeCount(test.Dir+"/counter.0", count{len(notes), len(notes) - 1}))
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
