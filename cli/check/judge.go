package check

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
)

// Report is what a test has found. Programs rely on the names in JSON.
type Report struct {
	Loops         int `json:"loops"`
	Counter       int `json:"counter"`        // the sum of the counters of all slots in the end
	LostUpdates   int `json:"lost_updates"`   // additions of children that the counters do not show
	MaxConcurrent int `json:"max_concurrent"` // the largest number of children inside at the same time
	Limit         int `json:"limit"`          // the largest number that the lock should admit

	// OrderInversions counts the runs that overtook a run that was waiting when they began. It is nil
	// for a lock that promises no order.
	OrderInversions *int `json:"order_inversions"`

	HandOff Times `json:"handoff_ms"`
	Killed  int   `json:"killed"` // runs of the tool that were killed
	Passed  bool  `json:"passed"`

	Failed   int      `json:"failed"` // runs that failed and were not killed
	Seconds  float64  `json:"seconds"`
	Problems []string `json:"problems"` // why the lock has not passed

	Ranked    int  `json:"-"` // runs whose fence tells in which order they got in
	Uncounted bool `json:"-"` // each child has a counter of its own: the tool admits several, without slot numbers
}

// missing returns the number of additions that the counters lack because runs were killed.
func (t *Test) missing(notes map[int]*note) int {
	killed := 0
	for _, r := range t.runs {
		if r.killed && !notes[r.number].hasEnded() {
			killed++
		}
	}
	return min(killed, t.Loops-t.sum()) // a killed child may have added one all the same
}

// sum returns the sum of all counters.
func (t *Test) sum() (sum int) {
	files, _ := fs.Glob(os.DirFS(t.Dir), counterFile+".*")
	for _, f := range files {
		sum += readCount(t.Dir + "/" + f)
	}
	return sum
}

// failures returns the runs that were neither killed nor stopped, and have not done their work.
func (t *Test) failures(notes map[int]*note) (failed []*run) {
	for _, r := range t.runs {
		if r.killed || r.stopped {
			continue
		}
		if !notes[r.number].hasEnded() || t.Golock && r.code != 0 {
			failed = append(failed, r)
		}
	}
	return failed
}

// judge makes the report. cause says why the test ended early; it is nil if it did not.
func (t *Test) judge(notes map[int]*note, cause error) *Report {
	r := &Report{Loops: t.Loops, Limit: t.Limit, Counter: t.sum(), Problems: []string{}}
	additions, wrongSlots := 0, 0
	for _, n := range notes {
		r.MaxConcurrent = max(r.MaxConcurrent, n.Byte+1)
		if n.hasEnded() {
			additions++
		}
		if n.Slot >= t.Limit {
			wrongSlots++
		}
		if n.Slot < 0 && t.Limit > 1 {
			r.Uncounted = true
		}
	}
	for _, run := range t.runs {
		if run.killed {
			r.Killed++
		}
	}
	r.LostUpdates = max(0, additions-r.Counter)
	r.problemIf(r.MaxConcurrent > t.Limit, "%d were inside at the same time, where %d may be", r.MaxConcurrent, t.Limit)
	r.problemIf(r.LostUpdates > 0, "%d of %d additions to the counter were lost", r.LostUpdates, additions)
	r.problemIf(wrongSlots > 0, "%d times a slot number was not below the limit of %d", wrongSlots, t.Limit)
	if failed := t.failures(notes); len(failed) > 0 {
		r.Failed = len(failed)
		why := fmt.Sprintf("%d runs ended without having done their work: the first with exit code %d", r.Failed, failed[0].code)
		if failed[0].message != "" {
			why += " (" + failed[0].message + ")"
		}
		r.Problems = append(r.Problems, why)
	}
	overtakers, ranked := inversions(t.runs, notes)
	if t.Golock && ranked > 0 { // a store without a queue gives no fences
		r.OrderInversions, r.Ranked = &overtakers, ranked
		r.problemIf(overtakers > 0, "%d runs overtook one that waited already when they began", overtakers)
	}
	if r.MaxConcurrent <= t.Limit { // if the lock admitted too many, the times mean nothing
		r.HandOff = timesOf(handOffs(t.runs, notes))
	}
	r.problemIf(cause != nil, "%v", cause)
	r.problemIf(len(r.Problems) == 0 && r.Counter != r.Loops, "the counter says %d after %d children", r.Counter, r.Loops)
	r.Passed = len(r.Problems) == 0
	return r
}

// inversions counts the runs that overtook another run. A run overtook another one if it got in first,
// although it was started after the other one was known to wait or was inside. The fences give the
// order in which runs got in; ranked counts the runs with a fence.
func inversions(runs []*run, notes map[int]*note) (overtakers, ranked int) {
	byFence := slices.SortedFunc(maps.Values(notes), func(a, b *note) int { return cmp.Compare(a.Fence, b.Fence) })
	// The loop goes from the last run that got in to the first. earliestWait is the time at which one of
	// the runs that it has passed was first known to wait.
	earliestWait := int64(math.MaxInt64)
	for _, n := range slices.Backward(byFence) {
		if n.Fence == 0 {
			break
		}
		ranked++
		r := runs[n.Number]
		if earliestWait < r.started {
			overtakers++
		}
		earliestWait = min(earliestWait, n.Begin)
		if r.queued != 0 {
			earliestWait = min(earliestWait, r.queued)
		}
	}
	return overtakers, ranked
}

// handOffs returns the times, in milliseconds, from the end of one child to the beginning of the next,
// if the next one was waiting then.
func handOffs(runs []*run, notes map[int]*note) (times []float64) {
	var ends []int64
	for _, n := range notes {
		if n.hasEnded() {
			ends = append(ends, n.End)
		}
	}
	slices.Sort(ends)
	byBegin := func(a, b *note) int { return cmp.Compare(a.Begin, b.Begin) }
	for _, n := range slices.SortedFunc(maps.Values(notes), byBegin) {
		if len(ends) == 0 || ends[0] > n.Begin {
			continue // a slot was free, so no child handed one over
		}
		if queued := runs[n.Number].queued; queued != 0 && queued < ends[0] {
			times = append(times, float64(n.Begin-ends[0])/1e6)
		}
		ends = ends[1:]
	}
	slices.Sort(times)
	return times
}

// problemIf adds a problem to the report if a condition holds.
func (r *Report) problemIf(holds bool, format string, args ...any) {
	if holds {
		r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
	}
}

// Times are percentiles of the times of hand-offs, in milliseconds. All are 0 if there were no
// hand-offs.
type Times struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// timesOf computes the percentiles of sorted times.
func timesOf(sorted []float64) Times {
	if len(sorted) == 0 {
		return Times{}
	}
	percentile := func(share float64) float64 {
		i := int(math.Ceil(share*float64(len(sorted)))) - 1
		return math.Round(sorted[max(i, 0)]*1000) / 1000
	}
	return Times{P50: percentile(0.5), P99: percentile(0.99), Max: percentile(1)}
}
