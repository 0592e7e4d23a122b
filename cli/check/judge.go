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

// missing is how many of the runs that were killed have added nothing.
func (t *Test) missing(notes map[int]*note) (missing int) {
	_, added := t.added(notes)
	for _, r := range t.runs {
		if r.killed && !added[r.number] {
			missing++
		}
	}
	return missing
}

// added gives the sum of all counters, and tells who has added one: all whose notes say
// so, and of those who were killed before, those whose number the next one found in the
// counter, or that is still there.
func (t *Test) added(notes map[int]*note) (sum int, all map[int]bool) {
	all = map[int]bool{}
	files, _ := fs.Glob(os.DirFS(t.Dir), counterFile+".*")
	for _, f := range files {
		if c, err := readCount(t.Dir + "/" + f); err == nil {
			sum += c.Value
			all[c.Last] = true
		}
	}
	for _, n := range notes {
		all[n.Found.Last] = true
		if n.End != 0 {
			all[n.Number] = true
		}
	}
	delete(all, -1) // nobody
	return sum, all
}

// judge makes the report. stopped says why the test ended early; nil: it did not.
func (t *Test) judge(notes map[int]*note, stopped error) *Report {
	sum, added := t.added(notes)
	done := len(added)
	r := &Report{Loops: t.Loops, Limit: t.Limit, Counter: sum, Problems: []string{}}
	clashes, tooHigh := 0, 0 // slot numbers
	for _, n := range notes {
		r.MaxConcurrent = max(r.MaxConcurrent, n.Others+1)
		if n.Clash {
			clashes++
		}
		switch {
		case n.Slot >= t.Limit:
			tooHigh++
		case n.Slot < 0 && t.Limit > 1:
			r.Uncounted = true
		}
	}
	if r.Uncounted {
		r.Counter = done
	}
	r.LostUpdates = max(0, done-r.Counter)
	r.faultIf(r.MaxConcurrent > t.Limit, "%d were inside at the same time, where %d may be", r.MaxConcurrent, t.Limit)
	r.faultIf(r.LostUpdates > 0, "%d of %d additions to the counter were lost", r.LostUpdates, done)
	r.faultIf(clashes > 0, "%d times a slot number was given to two at the same time", clashes)
	r.faultIf(tooHigh > 0, "%d times a slot number was not below the limit of %d", tooHigh, t.Limit)
	t.judgeRuns(r, notes)
	if t.Ordered {
		r.OrderInversions = new(int)
		*r.OrderInversions, r.Ranked = inversions(t.runs, notes)
		r.faultIf(*r.OrderInversions > 0, "%d runs overtook one that waited already when they began", *r.OrderInversions)
	}
	if r.MaxConcurrent <= t.Limit { // else nothing was handed from one to the next
		r.HandOff = timesOf(handOffs(t.runs, notes, t.Golock))
	}
	r.faultIf(stopped != nil, "%v", stopped)
	r.faultIf(len(r.Problems) == 0 && r.Counter != r.Loops, "the counter says %d after %d children", r.Counter, r.Loops)
	r.Passed = len(r.Problems) == 0
	return r
}

// judgeRuns checks how the runs ended.
func (t *Test) judgeRuns(r *Report, notes map[int]*note) {
	var failed []*run
	for _, one := range t.runs {
		n := notes[one.number]
		switch {
		case one.killed:
			r.Killed++
		case one.stopped:
		case n == nil || n.End == 0 || t.Golock && one.code != 0:
			failed = append(failed, one)
		}
	}
	if r.Failed = len(failed); r.Failed == 0 {
		return
	}
	first := failed[0]
	why := fmt.Sprintf("%d runs ended without having done their work: the first with exit code %d", r.Failed, first.code)
	if message := first.message(); message != "" {
		why += " (" + message + ")"
	}
	r.Problems = append(r.Problems, why)
}

// inversions counts the runs that overtook another one, which was known to wait or was
// inside before they were started. The fences give the order in which they got in.
// Runs that began at about the same time prove nothing.
func inversions(runs []*run, notes map[int]*note) (inverted, ranked int) {
	type entrant struct{ started, known, fence int64 }
	var byStart []entrant
	for _, r := range runs {
		n := notes[r.number]
		if n == nil || n.Fence == 0 {
			continue
		}
		known := n.Begin
		if r.queued != 0 {
			known = min(known, r.queued)
		}
		byStart = append(byStart, entrant{r.started, known, n.Fence})
	}
	byKnown := slices.Clone(byStart)
	slices.SortFunc(byStart, func(a, b entrant) int { return cmp.Compare(a.started, b.started) })
	slices.SortFunc(byKnown, func(a, b entrant) int { return cmp.Compare(a.known, b.known) })
	latest := int64(0) // the highest fence of those before
	for _, e := range byStart {
		for len(byKnown) > 0 && byKnown[0].known < e.started {
			latest = max(latest, byKnown[0].fence)
			byKnown = byKnown[1:]
		}
		if e.fence < latest {
			inverted++
		}
	}
	return inverted, len(byStart)
}

// handOffs are the times, in milliseconds, from the end of one inside to the beginning
// of the next, if that one waited already. logs: the tool tells when it waits.
func handOffs(runs []*run, notes map[int]*note, logs bool) (times []float64) {
	var ends []int64
	for _, n := range notes {
		if n.End != 0 {
			ends = append(ends, n.End)
		}
	}
	slices.Sort(ends)
	byBegin := func(a, b *note) int { return cmp.Compare(a.Begin, b.Begin) }
	for _, n := range slices.SortedFunc(maps.Values(notes), byBegin) {
		if len(ends) == 0 || ends[0] > n.Begin {
			continue // there was room
		}
		since := runs[n.Number].queued
		if !logs {
			since = runs[n.Number].started
		}
		if since != 0 && since < ends[0] {
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
