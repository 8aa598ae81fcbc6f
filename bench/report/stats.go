package report

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Summary is what is told of the samples of a case in one place.
type Summary struct {
	Mean float64 `json:"mean"`
	// RSD is the relative standard deviation of the samples, in percent.
	RSD float64 `json:"rsd"`
	// Low and High bound the mean: the 95 % bootstrap interval.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	N    int     `json:"n"`
}

// Overhead compares a place with the bare machine, in percent; less than 0 is a loss. As in the RISC-V paper (000, section 4) it is
// bare/measured - 1 where lower is better, and measured/bare - 1 where higher is.
type Overhead struct {
	Percent float64 `json:"percent"`
	Low     float64 `json:"low"` // 95 % bootstrap interval, over rounds
	High    float64 `json:"high"`
	// Significant says that the interval does not hold 0.
	Significant bool `json:"significant"`
}

// resamples is how often the bootstrap draws. The source of chance is fixed, so that a report of the same samples is the same.
const resamples = 2000

func chance() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// Summarise needs at least one sample.
func Summarise(samples []float64) Summary {
	s := Summary{Mean: mean(samples), N: len(samples)}
	if len(samples) > 1 && s.Mean != 0 {
		sum := 0.0
		for _, v := range samples {
			sum += (v - s.Mean) * (v - s.Mean)
		}
		s.RSD = 100 * math.Sqrt(sum/float64(len(samples)-1)) / math.Abs(s.Mean)
	}
	rng, draw, means := chance(), make([]float64, len(samples)), make([]float64, resamples)
	for i := range means {
		for k := range draw {
			draw[k] = samples[rng.IntN(len(samples))]
		}
		means[i] = mean(draw)
	}
	s.Low, s.High = Quantile(means, 0.025), Quantile(means, 0.975)
	return s
}

// Compare gives the overhead of a place from the samples of the same rounds there and on the bare machine, which are as many.
// It is nil where there is nothing to compare: no samples, or a figure of 0.
func Compare(better string, bare, measured []float64) *Overhead {
	n := min(len(bare), len(measured))
	if n == 0 || slices.Contains(bare[:n], 0) || slices.Contains(measured[:n], 0) {
		return nil
	}
	loss := func(b, m float64) float64 {
		if better == Lower {
			b, m = m, b
		}
		return 100 * (m/b - 1)
	}
	o := &Overhead{Percent: loss(mean(bare[:n]), mean(measured[:n]))}
	rng, values := chance(), make([]float64, resamples)
	for i := range values {
		b, m := 0.0, 0.0
		for range n {
			k := rng.IntN(n) // rounds are drawn, not samples: what disturbed one place of a round disturbed the other
			b, m = b+bare[k], m+measured[k]
		}
		values[i] = loss(b, m)
	}
	o.Low, o.High = Quantile(values, 0.025), Quantile(values, 0.975)
	o.Significant = n > 2 && (o.Low > 0 || o.High < 0)
	return o
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// Relative is how many times as long work takes in a place as on the bare machine, as the geometric mean over cases; 0 for none.
func Relative(overheads []*Overhead) float64 {
	sum, n := 0.0, 0
	for _, o := range overheads {
		if o != nil && o.Percent > -100 {
			sum -= math.Log(1 + o.Percent/100)
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return math.Exp(sum / float64(n))
}
