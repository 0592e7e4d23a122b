package main

import "slices"

// quantile of a sample, with linear interpolation; 0 of an empty one.
func quantile(sample []float64, q float64) float64 {
	if len(sample) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(sample))
	at := q * float64(len(s)-1)
	i := int(at)
	if i+1 == len(s) {
		return s[i]
	}
	return s[i] + (at-float64(i))*(s[i+1]-s[i])
}

func median(sample []float64) float64 { return quantile(sample, 0.5) }

// paired is what a tool measured, by the round it was measured in.
type paired map[int]float64

func (p paired) values() []float64 {
	var v []float64
	for _, x := range p {
		v = append(v, x)
	}
	return v
}

// beyond returns the median of the differences within each round.
func (p paired) beyond(base paired) float64 {
	var more []float64
	for round, x := range p {
		if y, both := base[round]; both {
			more = append(more, x-y)
		}
	}
	return median(more)
}

// against returns the median of the ratios within each round: the way to
// compare on a machine whose speed changes from minute to minute.
func (p paired) against(base paired) float64 {
	var ratios []float64
	for round, x := range p {
		if y := base[round]; y > 0 {
			ratios = append(ratios, x/y)
		}
	}
	return median(ratios)
}
