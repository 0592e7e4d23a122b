package check

import (
	"fmt"
	"math"
	"strings"
)

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

// HandOffs is how many hand-offs were measured.
func (r *Report) HandOffs() int { return len(r.handOffs) }

// Histogram draws the hand-offs in lines of at most width columns, a step of 1,
// 2, 5, 10 ... for each.
func (r *Report) Histogram(width int) []string {
	if len(r.handOffs) == 0 {
		return nil
	}
	type step struct {
		below float64
		n     int
	}
	var steps []step
	for _, ms := range r.handOffs {
		for len(steps) == 0 || ms >= steps[len(steps)-1].below {
			steps = append(steps, step{below: stepAt(len(steps))})
		}
		steps[len(steps)-1].n++
	}
	for len(steps) > 1 && steps[0].n == 0 {
		steps = steps[1:]
	}
	most := 0
	for _, s := range steps {
		most = max(most, s.n)
	}
	var lines []string
	room := max(width-30, 10)
	for _, s := range steps {
		bar := strings.Repeat("#", (s.n*room+most-1)/most)
		lines = append(lines, strings.TrimRight(fmt.Sprintf("  below %6g ms  %6d  %s", s.below, s.n, bar), " "))
	}
	return lines
}

// stepAt is the end of a step: 0.1, 0.2, 0.5, 1, 2, 5 ... ms.
func stepAt(i int) float64 {
	end := []float64{1, 2, 5}[i%3] * math.Pow10(i/3-1)
	return math.Round(end*10) / 10
}
