package main

import (
	"math"
	"slices"
)

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

// medianError is the standard error of a sample's median, as if the sample
// were of a normal distribution with its quartiles; of less than four values
// their range stands for those. One value alone tells nothing of its error: a
// tenth is assumed.
func medianError(sample []float64) float64 {
	const (
		quartiles = 1.349  // of a normal distribution are so many sigma apart
		efficient = 1.2533 // how much less the median tells than the mean
	)
	var sigma float64
	switch n := len(sample); n {
	case 0:
		return 0
	case 1:
		return math.Abs(sample[0]) / 10
	case 2, 3:
		spread := [...]float64{2: 1.128, 3: 1.693} // the range of so many, in sigma
		sigma = (quantile(sample, 1) - quantile(sample, 0)) / spread[n]
	default:
		sigma = (quantile(sample, 0.75) - quantile(sample, 0.25)) / quartiles
	}
	return efficient * sigma / math.Sqrt(float64(len(sample)))
}

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

// ratios within each round.
func (p paired) ratios(base paired) []float64 {
	var ratios []float64
	for round, x := range p {
		if y := base[round]; y > 0 {
			ratios = append(ratios, x/y)
		}
	}
	return ratios
}

// against returns the median of the ratios within each round: the way to
// compare on a machine whose speed changes from minute to minute.
func (p paired) against(base paired) float64 { return median(p.ratios(base)) }
