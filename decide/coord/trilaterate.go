package coord

import (
	"math"

	"skerry.dev/skerry/spec"
)

// unknowns of a position: its vector and its height.
const unknowns = spec.CoordinateDims + 1

// Trilaterate places a point in the network from round trips to known coordinates, in milliseconds (Oakestra, Algorithm 2,
// line 13): the least squares of the differences between measured and predicted round trips, each weighed by the inverse
// of the round trip, because coordinates err relative to it. The minimum is sought from several starts by the method of
// Levenberg and Marquardt, because the sum has more than one. It gives the point, with its height, and the root mean
// square of what is left over, in milliseconds. With fewer round trips than unknowns the point is one of many; the
// nearest to a start is given. Round trips that are not positive and finite, and invalid coordinates, are left out; with
// none left the residual is infinite.
func Trilaterate(from []spec.Coordinate, rtt []float64) (spec.Coordinate, float64) {
	var f fitting
	for i := range min(len(from), len(rtt)) {
		if from[i].Valid() && rtt[i] > 0 && !math.IsInf(rtt[i], 0) {
			f.from, f.rtt = append(f.from, from[i]), append(f.rtt, rtt[i])
		}
	}
	if len(f.from) == 0 {
		return spec.Coordinate{}, math.Inf(1)
	}
	var best [unknowns]float64
	least := math.Inf(1)
	for _, start := range f.starts() {
		if at, cost := f.descend(start); cost < least {
			best, least = at, cost
		}
	}
	out := spec.Coordinate{Height: math.Max(0, best[spec.CoordinateDims])}
	copy(out.Vec[:], best[:])
	sum := 0.0
	for i := range f.from {
		d := out.RTT(f.from[i]) - f.rtt[i]
		sum += d * d
	}
	rms := math.Sqrt(sum / float64(len(f.from)))
	out.Error = f.relativeError(out)
	return out, rms
}

type fitting struct {
	from []spec.Coordinate
	rtt  []float64
}

// starts are the middle of the known points, each of them, and the far side of each: one point seen from two has two
// places.
func (f *fitting) starts() [][unknowns]float64 {
	var middle [unknowns]float64
	for _, c := range f.from {
		for i, v := range c.Vec {
			middle[i] += v / float64(len(f.from))
		}
	}
	out := [][unknowns]float64{middle}
	for _, c := range f.from {
		var at, beyond [unknowns]float64
		for i, v := range c.Vec {
			at[i], beyond[i] = v, 2*v-middle[i]
		}
		out = append(out, at, beyond)
	}
	return out
}

// miss gives the weighed difference for one round trip, and what it changes by with each unknown.
func (f *fitting) miss(i int, at [unknowns]float64) (r float64, slope [unknowns]float64) {
	c := &f.from[i]
	d := 0.0
	for k, v := range c.Vec {
		d += (at[k] - v) * (at[k] - v)
	}
	d = math.Sqrt(d)
	w := 1 / math.Max(f.rtt[i], 1)
	for k, v := range c.Vec {
		if d > 1e-9 {
			slope[k] = w * (at[k] - v) / d
		} else {
			slope[k] = w / math.Sqrt(spec.CoordinateDims) // on top of it every direction is as good
		}
	}
	slope[spec.CoordinateDims] = w
	return w * (d + c.Height + at[spec.CoordinateDims] - f.rtt[i]), slope
}

func (f *fitting) cost(at [unknowns]float64) float64 {
	sum := 0.0
	for i := range f.from {
		r, _ := f.miss(i, at)
		sum += r * r
	}
	return sum
}

// descend walks to a minimum.
func (f *fitting) descend(at [unknowns]float64) ([unknowns]float64, float64) {
	cost, damping := f.cost(at), 1e-3
	for range 60 {
		var a [unknowns][unknowns + 1]float64 // normal equations with their right side
		for i := range f.from {
			r, s := f.miss(i, at)
			for j := range unknowns {
				for k := range unknowns {
					a[j][k] += s[j] * s[k]
				}
				a[j][unknowns] -= s[j] * r
			}
		}
		for j := range unknowns {
			a[j][j] += damping * (a[j][j] + 1e-9)
		}
		step, ok := solve(a)
		if !ok {
			break
		}
		next := at
		for j := range unknowns {
			next[j] += step[j]
		}
		next[spec.CoordinateDims] = math.Max(0, next[spec.CoordinateDims])
		if c := f.cost(next); c < cost {
			done := cost-c < 1e-12*(1+cost)
			at, cost, damping = next, c, math.Max(damping/5, 1e-9)
			if done {
				break
			}
		} else if damping *= 5; damping > 1e9 {
			break
		}
	}
	return at, cost
}

// solve solves linear equations by elimination with pivoting.
func solve(a [unknowns][unknowns + 1]float64) (x [unknowns]float64, ok bool) {
	for c := range unknowns {
		p := c
		for r := c + 1; r < unknowns; r++ {
			if math.Abs(a[r][c]) > math.Abs(a[p][c]) {
				p = r
			}
		}
		if math.Abs(a[p][c]) < 1e-15 {
			return x, false
		}
		a[c], a[p] = a[p], a[c]
		for r := c + 1; r < unknowns; r++ {
			k := a[r][c] / a[c][c]
			for j := c; j <= unknowns; j++ {
				a[r][j] -= k * a[c][j]
			}
		}
	}
	for c := unknowns - 1; c >= 0; c-- {
		x[c] = a[c][unknowns]
		for j := c + 1; j < unknowns; j++ {
			x[c] -= a[c][j] * x[j]
		}
		x[c] /= a[c][c]
	}
	return x, true
}

// relativeError is the mean of the differences relative to the round trips.
func (f *fitting) relativeError(c spec.Coordinate) float64 {
	sum := 0.0
	for i := range f.from {
		sum += math.Abs(c.RTT(f.from[i])-f.rtt[i]) / f.rtt[i]
	}
	return sum / float64(len(f.from))
}
