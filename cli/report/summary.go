package report

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// Summary sums up the runs of each lock.
type Summary struct {
	rows map[lockKey]*Row
}

// lockKey names a lock: runs of a name in two stores do not limit each other.
type lockKey struct{ name, store string }

// Row sums up the runs of a lock. It counts a run in Runs, and in at most one of the fields from Skipped to
// Unlocked.
type Row struct {
	Name, Store string

	Runs        int // all runs that asked for a slot
	Skipped     int // there was no slot in time
	Failed      int // the exit code was not 0, and no other field counts the run
	Lost        int // the slot was lost while the command ran
	Unavailable int // the store could not be asked
	Unlocked    int // the command ran without a slot, and did not fail

	Waited Times // how long all runs waited
	Ran    Times // how long the commands ran

	LastEnd    float64 // the end of the last run, in seconds since 1970
	LastResult string
	LastKind   Kind
}

// Times are the times of several runs, in seconds.
type Times struct {
	all []float64 // sorted by Summary.Rows
}

// NewSummary returns a summary of no runs.
func NewSummary() *Summary { return &Summary{rows: map[lockKey]*Row{}} }

// Add counts a run.
func (s *Summary) Add(l *Line) {
	key := lockKey{l.Name, l.Store}
	row := s.rows[key]
	if row == nil {
		row = &Row{Name: l.Name, Store: l.Store, LastEnd: math.Inf(-1)}
		s.rows[key] = row
	}
	row.Runs++
	kind := l.Kind()
	switch {
	case l.isFailure():
		row.Failed++
	case kind == Skipped:
		row.Skipped++
	case kind == Lost:
		row.Lost++
	case kind == Unavailable:
		row.Unavailable++
	case kind == Unlocked:
		row.Unlocked++
	}
	row.Waited.all = append(row.Waited.all, l.Waited)
	if l.Started() {
		row.Ran.all = append(row.Ran.all, l.Ran)
	}
	if end := l.End(); end >= row.LastEnd {
		row.LastEnd, row.LastResult, row.LastKind = end, l.Result(), l.Kind()
	}
}

// Rows returns the rows, ordered by name and store.
func (s *Summary) Rows() []*Row {
	for _, row := range s.rows {
		slices.Sort(row.Waited.all)
		slices.Sort(row.Ran.all)
	}
	return slices.SortedFunc(maps.Values(s.rows), func(a, b *Row) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Store, b.Store))
	})
}

// Median returns the time that half of the runs did not exceed.
func (t Times) Median() string { return t.percentile(50) }

// P95 returns the time that 95 % of the runs did not exceed.
func (t Times) P95() string { return t.percentile(95) }

// Longest returns the longest time.
func (t Times) Longest() string { return t.percentile(100) }

// percentile returns the shortest time that this percentage of the runs did not exceed, or "" if there
// are no runs.
func (t Times) percentile(percent int) string {
	if len(t.all) == 0 {
		return ""
	}
	rank := (percent*len(t.all) + 99) / 100
	return Span(t.all[max(rank, 1)-1])
}
