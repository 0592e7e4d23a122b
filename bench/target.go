package main

import "fmt"

// target is a promise about cost and what this run measured of it.
type target struct {
	what     string
	limit    float64
	aim      float64 // what it should come to; 0: the limit is all
	unit     string
	measured float64
}

// hold the measured value against the limit; smaller is better everywhere.
func (b *bench) target(what string, limit, aim float64, unit string, measured float64) {
	b.targets = append(b.targets, target{what, limit, aim, unit, measured})
}

func (t target) verdict() string {
	switch {
	case t.measured > t.limit:
		return "MISSED"
	case t.aim > 0 && t.measured > t.aim:
		return fmt.Sprintf("met (aim %g%s missed)", t.aim, t.unit)
	case t.aim > 0:
		return fmt.Sprintf("met (aim %g%s too)", t.aim, t.unit)
	}
	return "met"
}

func (b *bench) verdicts() section {
	s := section{
		title: "Targets",
		how: "What golock is held to, the aim that it should come to where there is one, and what this run measured. A ratio is the median of the ratios " +
			"within each round, a difference that of the differences, so that a machine that changes speed does not favour anyone.",
		head: []string{"what", "target", "measured", ""},
	}
	for _, t := range b.targets {
		format := "%.2f%s"
		if t.measured == float64(int(t.measured)) {
			format = "%.0f%s"
		}
		limit := fmt.Sprintf("<= %g%s", t.limit, t.unit)
		if t.limit == 0 {
			limit = "0"
		}
		s.rows = append(s.rows, []string{
			t.what, limit, fmt.Sprintf(format, t.measured, t.unit), t.verdict(),
		})
	}
	return s
}
