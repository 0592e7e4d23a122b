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

// Report is what a test has found; the names are part of the contract.
type Report struct {
	Loops         int `json:"loops"`
	Counter       int `json:"counter"`        // the sum of the counters of all slots in the end
	LostUpdates   int `json:"lost_updates"`   // additions that were made and are not in there
	MaxConcurrent int `json:"max_concurrent"` // the most that were inside at the same time
	Limit         int `json:"limit"`          // the most that may be

	// Runs that were let in before one that waited when they began; nil: not promised.
	OrderInversions *int `json:"order_inversions"`

	HandOff Times `json:"handoff_ms"`
	Killed  int   `json:"killed"` // runs of the tool that were killed
	Passed  bool  `json:"passed"`

	Failed   int      `json:"failed"` // runs that failed and were not killed
	Seconds  float64  `json:"seconds"`
	Problems []string `json:"problems"` // why it has not passed

	Ranked    int  `json:"-"` // runs whose place in the queue is known
	Uncounted bool `json:"-"` // there was no counter: several at a time, without slot numbers
}

// missing is how many additions were not made because runs were killed.
func (t *Test) missing(notes map[int]*note) int {
	killed := 0
	for _, r := range t.runs {
		if r.killed && !notes[r.number].ended() {
			killed++
		}
	}
	return min(killed, t.Loops-t.sum()) // some had added already
}

// sum is that of all counters.
func (t *Test) sum() (sum int) {
	files, _ := fs.Glob(os.DirFS(t.Dir), counterFile+".*")
	for _, f := range files {
		sum += readCount(t.Dir + "/" + f)
	}
	return sum
}

// failures are the runs that have not done their work, though nobody ended them.
func (t *Test) failures(notes map[int]*note) (failed []*run) {
	for _, r := range t.runs {
		if !r.killed && !r.stopped && (!notes[r.number].ended() || t.Golock && r.code != 0) {
			failed = append(failed, r)
		}
	}
	return failed
}

// judge makes the report. stopped says why the test ended early; nil: it did not.
func (t *Test) judge(notes map[int]*note, stopped error) *Report {
	r := &Report{Loops: t.Loops, Limit: t.Limit, Counter: t.sum(), Problems: []string{}}
	added, tooHigh := 0, 0
	for _, n := range notes {
		r.MaxConcurrent = max(r.MaxConcurrent, n.Place+1)
		if n.ended() {
			added++
		}
		if n.Slot >= t.Limit {
			tooHigh++
		}
		r.Uncounted = r.Uncounted || n.Slot < 0 && t.Limit > 1
	}
	for _, one := range t.runs {
		if one.killed {
			r.Killed++
		}
	}
	r.LostUpdates = max(0, added-r.Counter)
	r.faultIf(r.MaxConcurrent > t.Limit, "%d were inside at the same time, where %d may be", r.MaxConcurrent, t.Limit)
	r.faultIf(r.LostUpdates > 0, "%d of %d additions to the counter were lost", r.LostUpdates, added)
	r.faultIf(tooHigh > 0, "%d times a slot number was not below the limit of %d", tooHigh, t.Limit)
	if failed := t.failures(notes); len(failed) > 0 {
		r.Failed = len(failed)
		why := fmt.Sprintf("%d runs ended without having done their work: the first with exit code %d", r.Failed, failed[0].code)
		if failed[0].message != "" {
			why += " (" + failed[0].message + ")"
		}
		r.Problems = append(r.Problems, why)
	}
	if inverted, ranked := inversions(t.runs, notes); t.Golock && ranked > 0 { // a store without a queue has no fences
		r.OrderInversions, r.Ranked = &inverted, ranked
		r.faultIf(inverted > 0, "%d runs overtook one that waited already when they began", inverted)
	}
	if r.MaxConcurrent <= t.Limit { // else nothing was handed from one to the next
		r.HandOff = timesOf(handOffs(t.runs, notes))
	}
	r.faultIf(stopped != nil, "%v", stopped)
	r.faultIf(len(r.Problems) == 0 && r.Counter != r.Loops, "the counter says %d after %d children", r.Counter, r.Loops)
	r.Passed = len(r.Problems) == 0
	return r
}

// inversions counts the runs that overtook another one, which was known to wait or was
// inside before they were started. The fences give the order in which they got in.
// Runs that began at about the same time prove nothing.
func inversions(runs []*run, notes map[int]*note) (inverted, ranked int) {
	byFence := slices.SortedFunc(maps.Values(notes), func(a, b *note) int { return cmp.Compare(a.Fence, b.Fence) })
	laterKnown := int64(math.MaxInt64) // when the first of those that got in later was known to wait
	for _, n := range slices.Backward(byFence) {
		if n.Fence == 0 {
			break
		}
		r := runs[n.Number]
		if ranked++; laterKnown < r.started {
			inverted++
		}
		if laterKnown = min(laterKnown, n.Begin); r.queued != 0 {
			laterKnown = min(laterKnown, r.queued)
		}
	}
	return inverted, ranked
}

// handOffs are the times, in milliseconds, from the end of one inside to the beginning
// of the next, if that one waited already.
func handOffs(runs []*run, notes map[int]*note) (times []float64) {
	var ends []int64
	for _, n := range notes {
		if n.ended() {
			ends = append(ends, n.End)
		}
	}
	slices.Sort(ends)
	byBegin := func(a, b *note) int { return cmp.Compare(a.Begin, b.Begin) }
	for _, n := range slices.SortedFunc(maps.Values(notes), byBegin) {
		if len(ends) == 0 || ends[0] > n.Begin {
			continue // there was room
		}
		if since := runs[n.Number].queued; since != 0 && since < ends[0] {
			times = append(times, float64(n.Begin-ends[0])/1e6)
		}
		ends = ends[1:]
	}
	slices.Sort(times)
	return times
}

func (r *Report) faultIf(wrong bool, format string, args ...any) {
	if wrong {
		r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
	}
}

// Times sums up hand-offs, in milliseconds; all are 0 if there was none.
type Times struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// timesOf takes sorted times.
func timesOf(sorted []float64) Times {
	if len(sorted) == 0 {
		return Times{}
	}
	at := func(share float64) float64 {
		i := int(math.Ceil(share*float64(len(sorted)))) - 1
		return math.Round(sorted[max(i, 0)]*1000) / 1000
	}
	return Times{P50: at(0.5), P99: at(0.99), Max: at(1)}
}
