package check

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"golock/test/testkit"
)

// history is what a test knows of a run: when it was started and queued, when its child began and
// ended, in milliseconds, and the fence. A begin of 0 is that of a run whose child never got inside.
type history struct{ started, queued, begin, end, fence int64 }

// runsOf makes runs and the notes of their children.
func runsOf(histories ...history) (runs []*run, notes map[int]*note) {
	notes = map[int]*note{}
	for i, h := range histories {
		r := &run{number: i, started: h.started * 1e6, queued: h.queued * 1e6, ended: h.end*1e6 + 1}
		runs = append(runs, r)
		if h.begin != 0 {
			notes[i] = &note{Number: i, Begin: h.begin * 1e6, End: h.end * 1e6, Fence: h.fence}
		}
	}
	return runs, notes
}

func TestInversions(t *testing.T) {
	for _, c := range []struct {
		name string
		want int
		all  []history
	}{
		{"in order", 0, []history{{1, 0, 2, 10, 1}, {3, 4, 11, 12, 2}, {5, 6, 13, 14, 3}}},
		{"overtaken in the queue", 1, []history{{1, 0, 2, 10, 1}, {3, 4, 13, 14, 3}, {5, 6, 11, 12, 2}}},
		{"overtaken by one that did not queue", 1, []history{{1, 0, 2, 10, 1}, {3, 4, 13, 14, 3}, {5, 0, 11, 12, 2}}},
		{"two overtake one", 2, []history{{1, 0, 2, 10, 1}, {3, 4, 15, 16, 4}, {5, 6, 11, 12, 2}, {7, 8, 13, 14, 3}}},
		{"begun at the same time", 0, []history{{1, 0, 2, 10, 1}, {3, 6, 13, 14, 3}, {5, 6, 11, 12, 2}}},
		{"a fence that goes back", 1, []history{{1, 0, 2, 3, 7}, {4, 0, 5, 6, 6}}},
		{"killed while it waited", 0, []history{{1, 0, 2, 10, 1}, {3, 4, 0, 0, 0}, {5, 6, 11, 12, 2}}},
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
		all  []history
	}{
		{"one after the other", []float64{1, 3}, []history{{1, 0, 2, 10, 0}, {3, 4, 11, 12, 0}, {5, 6, 15, 16, 0}}},
		{"nobody waited", nil, []history{{1, 0, 2, 10, 0}, {11, 12, 13, 14, 0}}},
		{"one came later, one waited", []float64{2}, []history{{1, 0, 2, 10, 0}, {11, 12, 13, 20, 0}, {14, 15, 22, 23, 0}}},
		{"killed inside: nobody knows when", []float64{1}, []history{{1, 0, 2, 0, 0}, {3, 4, 11, 12, 0}, {5, 6, 13, 14, 0}}},
		{"two at a time", []float64{1, 2}, []history{{1, 0, 2, 10, 0}, {1, 0, 3, 12, 0}, {4, 5, 11, 20, 0}, {4, 5, 14, 20, 0}}},
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

// The additions of killed runs are missing, except those that the counter has.
func TestMissing(t *testing.T) {
	test := &Test{Dir: t.TempDir(), Loops: 5}
	for n := range test.Loops {
		test.runs = append(test.runs, &run{number: n, killed: n > 1})
	}
	notes := map[int]*note{0: {End: 1}, 1: {End: 2}, 2: {End: 3}, 3: {}} // child 3 was killed after it had written the counter
	testkit.Must(t, os.WriteFile(test.Dir+"/counter.0", []byte("4\n"), 0o600))
	if got := test.missing(notes); got != 1 {
		t.Errorf("%d additions are missing, want 1", got)
	}
	test.Loops = 9 // four more runs failed without a kill
	if got := test.missing(notes); got != 2 {
		t.Errorf("%d additions are missing, want 2", got)
	}
}

// The report names each problem.
func TestProblems(t *testing.T) {
	for _, c := range []struct {
		want    string
		corrupt func(map[int]*note, []*run)
	}{
		{"2 were inside at the same time, where 1 may be", func(n map[int]*note, _ []*run) { n[1].Byte = 1 }},
		{"1 times a slot number was not below", func(n map[int]*note, _ []*run) { n[1].Slot = 1 }},
		{"1 runs overtook one", func(n map[int]*note, _ []*run) { n[1].Fence = 9 }},
		{"1 runs ended without having done their work: the first with exit code 79 (the slot was lost)", func(_ map[int]*note, r []*run) { r[1].code, r[1].message = 79, "the slot was lost" }},
		{"1 runs ended without having done their work: the first with exit code 0", func(n map[int]*note, _ []*run) { delete(n, 2) }},
	} {
		runs, notes := runsOf(history{1, 0, 2, 10, 1}, history{3, 4, 11, 12, 2}, history{5, 6, 13, 14, 3})
		test := &Test{Dir: t.TempDir(), Loops: 3, Limit: 1, Golock: true, runs: runs}
		c.corrupt(notes, runs)
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
