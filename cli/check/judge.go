package check

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Report is what a test has found; the names are part of the contract.
type Report struct {
	Loops           int   `json:"loops"`
	Counter         int   `json:"counter"`          // what the counters of all slots say in the end
	LostUpdates     int   `json:"lost_updates"`     // additions that were made and are not in there
	MaxConcurrent   int   `json:"max_concurrent"`   // the most that were inside at the same time
	Limit           int   `json:"limit"`            // the most that may be
	OrderInversions *int  `json:"order_inversions"` // runs that were let in before one that waited when they began; nil: not promised
	HandOff         Times `json:"handoff_ms"`
	Killed          int   `json:"killed"` // runs of the tool that were killed
	Passed          bool  `json:"passed"`

	Failed   int      `json:"failed"` // runs that ended otherwise than they should, and were not killed
	Seconds  float64  `json:"seconds"`
	Problems []string `json:"problems"` // why it has not passed

	Ranked    int  `json:"-"` // runs whose place in the queue is known
	Uncounted bool `json:"-"` // there was no counter: several at a time, without slot numbers
}

// missing is how many of the runs that were killed have added nothing.
func (t *Test) missing(runs []*run, notes map[int]*note) (missing int) {
	_, last := counters(t.Dir)
	added := added(notes, last)
	for _, r := range runs {
		if r.killed && !added[r.number] {
			missing++
		}
	}
	return missing
}

// added says who has added one: all who say so, and of those who were killed
// before they could, those whose number the next one found in the counter, or
// that is still there (last).
func added(notes map[int]*note, last map[int]bool) map[int]bool {
	all := map[int]bool{}
	for n := range last {
		if n >= 0 {
			all[n] = true
		}
	}
	for _, n := range notes {
		if n.end != 0 {
			all[n.number] = true
		}
		if n.found.last >= 0 {
			all[n.found.last] = true
		}
	}
	return all
}

// judge reports what has come out.
func (t *Test) judge(runs []*run, notes map[int]*note) *Report {
	sum, last := counters(t.Dir)
	done := len(added(notes, last))
	r := &Report{Loops: t.Loops, Limit: t.Limit, Counter: sum, Problems: []string{}}
	for _, n := range notes {
		r.MaxConcurrent = max(r.MaxConcurrent, n.others+1)
		if t.Limit > 1 && n.slot < 0 {
			r.Uncounted = true
		}
	}
	if r.Uncounted {
		r.Counter = done
	}
	r.LostUpdates = max(0, done-r.Counter)
	if r.MaxConcurrent > t.Limit {
		r.fault("%d were inside at the same time, where %d may be", r.MaxConcurrent, t.Limit)
	}
	if r.LostUpdates > 0 {
		r.fault("%d of %d additions to the counter were lost", r.LostUpdates, done)
	}
	t.judgeSlots(r, notes)
	t.judgeRuns(r, runs, notes)
	if t.Tool.Ordered {
		r.OrderInversions = new(int)
		*r.OrderInversions, r.Ranked = inversions(runs, notes)
		if *r.OrderInversions > 0 {
			r.fault("%d runs overtook one that waited already when they began", *r.OrderInversions)
		}
	}
	if r.MaxConcurrent <= t.Limit { // else nothing was handed from one to the next
		r.HandOff = timesOf(handOffs(runs, notes, t.Tool.Golock))
	}
	return r
}

// judgeSlots looks at the numbers that the children were given.
func (t *Test) judgeSlots(r *Report, notes map[int]*note) {
	clashes, wrong := 0, 0
	for _, n := range notes {
		if n.clash {
			clashes++
		}
		if n.slot >= t.Limit {
			wrong++
		}
	}
	if clashes > 0 {
		r.fault("%d times a slot number was given to two at the same time", clashes)
	}
	if wrong > 0 {
		r.fault("%d times a slot number was not below the limit of %d", wrong, t.Limit)
	}
}

// judgeRuns looks at how the runs ended.
func (t *Test) judgeRuns(r *Report, runs []*run, notes map[int]*note) {
	var first *run
	for _, one := range runs {
		n := notes[one.number]
		switch {
		case one.killed:
			r.Killed++
		case one.stopped:
		case n == nil || n.end == 0 || t.Tool.Golock && one.code != 0:
			r.Failed++
			if first == nil {
				first = one
			}
		}
	}
	if first == nil {
		return
	}
	why := fmt.Sprintf("%d runs ended without having done their work: the first with exit code %d", r.Failed, first.code)
	if r.Failed == 1 {
		why = fmt.Sprintf("a run ended without having done its work: exit code %d", first.code)
	}
	if message := first.message(); message != "" {
		why += " (" + message + ")"
	}
	r.fault("%s", why)
}

// inversions counts the runs that got in although another one got in later that
// was known to wait, or was inside, before they were even started. The fence
// says in which order they got in. Runs that began at about the same time prove
// nothing.
func inversions(runs []*run, notes map[int]*note) (inverted, ranked int) {
	type entrant struct{ started, known, fence int64 }
	var byStart []entrant
	for _, r := range runs {
		n := notes[r.number]
		if n == nil || n.fence == 0 {
			continue
		}
		known := n.begin
		if r.queued != 0 {
			known = min(known, r.queued)
		}
		byStart = append(byStart, entrant{r.started, known, n.fence})
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

// handOffs are the times, in milliseconds, from the end of one inside to the
// beginning of the one who waited for it. Who came later than that waited for
// nobody.
func handOffs(runs []*run, notes map[int]*note, tells bool) []float64 {
	waits := map[int]int64{} // since when
	for _, r := range runs {
		switch {
		case !tells:
			waits[r.number] = r.started
		case r.queued != 0:
			waits[r.number] = r.queued
		}
	}
	var ends []int64
	var entrants []*note
	for _, n := range notes {
		entrants = append(entrants, n)
		if n.end != 0 {
			ends = append(ends, n.end)
		}
	}
	slices.Sort(ends)
	slices.SortFunc(entrants, func(a, b *note) int { return cmp.Compare(a.begin, b.begin) })
	var times []float64
	for _, n := range entrants {
		if len(ends) == 0 || ends[0] > n.begin {
			continue // there was room
		}
		since, waited := waits[n.number]
		if waited && since < ends[0] {
			times = append(times, float64(n.begin-ends[0])/1e6)
		}
		ends = ends[1:]
	}
	slices.Sort(times)
	return times
}

func (r *Report) fault(format string, args ...any) {
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

func (r *Report) conclude() {
	if len(r.Problems) == 0 && r.Counter != r.Loops {
		r.fault("the counter says %d after %d children", r.Counter, r.Loops)
	}
	r.Passed = len(r.Problems) == 0
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
