package report

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Median of values; NaN for none.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// Quantile interpolates linearly between the two nearest values; q is 0 to 1. It gives NaN for no values.
func Quantile(values []float64, q float64) float64 {
	return quantile(slices.Sorted(slices.Values(values)), q)
}

// quantile is Quantile of sorted values.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// resamples is how often the bootstrap draws. The source of chance is fixed, so that a report of the same samples is the same.
const resamples = 2000

// interval is the 95 % bootstrap interval of a quantile.
func interval(values []float64, q float64) (low, high float64) {
	if slices.Min(values) == slices.Max(values) {
		return values[0], values[0]
	}
	rng, draw, found := rand.New(rand.NewPCG(1, 2)), make([]float64, len(values)), make([]float64, resamples)
	for i := range found {
		for k := range draw {
			draw[k] = values[rng.IntN(len(values))]
		}
		slices.Sort(draw)
		found[i] = quantile(draw, q)
	}
	slices.Sort(found)
	return quantile(found, 0.025), quantile(found, 0.975)
}

// valueOf is the value of samples, nil of none.
func valueOf(samples []float64, q float64) *Value {
	if len(samples) == 0 {
		return nil
	}
	v := &Value{Value: Quantile(samples, q), N: len(samples)}
	v.Low, v.High = interval(samples, q)
	return v
}

// Ratios gives how many times another figure one is, in each of the rounds that both have, by the medians of the round:
// what disturbed one of a round disturbed the other.
func Ratios(base, of *Figure) (rounds []int, ratios []float64) {
	bases, values := base.byRound(), of.byRound()
	for _, round := range slices.Compact(slices.Sorted(slices.Values(of.Rounds))) {
		if b := Median(bases[round]); b > 0 {
			rounds, ratios = append(rounds, round), append(ratios, Median(values[round])/b)
		}
	}
	return rounds, ratios
}

// ratioOf compares a figure with the baseline's. Nil: they have no round in common.
func ratioOf(base, of *Figure) *Ratio {
	_, ratios := Ratios(base, of)
	if len(ratios) == 0 {
		return nil
	}
	x := &Ratio{Times: Median(ratios)}
	x.Low, x.High = interval(ratios, 0.5)
	x.Significant = len(ratios) > 2 && (x.Low > 1 || x.High < 1)
	return x
}

// byRound gives the samples of each round.
func (f *Figure) byRound() map[int][]float64 {
	out := map[int][]float64{}
	for i, round := range f.Rounds {
		out[round] = append(out[round], f.Samples[i])
	}
	return out
}
