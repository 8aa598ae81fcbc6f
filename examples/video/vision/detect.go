package vision

import "math"

// scales are the widths at which blobs are looked for, in parts of the height of the picture: a disc of radius r answers most at r/√2
// (Lindeberg, Feature Detection with Automatic Scale Selection, 1998, section 5).
func scales(height int) []float64 {
	var out []float64
	for k := range 5 {
		out = append(out, float64(height)*0.011*math.Pow(1.4, float64(k)))
	}
	return out
}

// threshold is how much brighter than around it a blob is at least, of 255.
const threshold = 18

// Detect finds bright discs as maxima, in place and scale, of differences of Gaussians.
func Detect(pixels []byte, width, height int) (found []Object) {
	in := make([]float32, len(pixels))
	for i, v := range pixels {
		in[i] = float32(v)
	}
	sigmas := scales(height)
	room := make([]float32, len(in))
	var layers [][]float32 // differences between neighbouring widths
	last := blur(in, room, width, height, sigmas[0])
	for _, s := range sigmas[1:] {
		next := blur(in, room, width, height, s)
		for i := range last {
			last[i] -= next[i]
		}
		layers, last = append(layers, last), next
	}
	for k, layer := range layers {
		for y := 1; y < height-1; y++ {
			for x := 1; x < width-1; x++ {
				v := layer[y*width+x]
				if v < threshold || !top(layers, k, x, y, width, v) {
					continue
				}
				found = append(found, Object{X: float64(x), Y: float64(y), Radius: math.Sqrt2 * math.Sqrt(sigmas[k]*sigmas[k+1])})
			}
		}
	}
	return apart(found)
}

// top reports whether a value is the largest of its neighbours, in its layer and those beside it.
func top(layers [][]float32, k, x, y, width int, v float32) bool {
	for l := max(0, k-1); l <= min(len(layers)-1, k+1); l++ {
		for dy := -1; dy <= 1; dy++ {
			for dx := -1; dx <= 1; dx++ {
				if layers[l][(y+dy)*width+x+dx] > v {
					return false
				}
			}
		}
	}
	return true
}

// apart leaves one of blobs that overlap: the larger one, as a disc has weak maxima of small scales at its edge.
func apart(found []Object) (out []Object) {
	for i, o := range found {
		covered := false
		for k, p := range found {
			near := math.Hypot(o.X-p.X, o.Y-p.Y) < max(o.Radius, p.Radius)
			covered = covered || near && (p.Radius > o.Radius || p.Radius == o.Radius && k < i)
		}
		if !covered {
			out = append(out, o)
		}
	}
	return out
}

// blur convolves with a Gaussian, a row and then a column at a time, to three standard deviations.
func blur(in, room []float32, width, height int, sigma float64) []float32 {
	reach := int(math.Ceil(3 * sigma))
	kernel, sum := make([]float32, 2*reach+1), float32(0)
	for i := range kernel {
		d := float64(i-reach) / sigma
		kernel[i] = float32(math.Exp(-d * d / 2))
		sum += kernel[i]
	}
	for i := range kernel {
		kernel[i] /= sum
	}
	line := make([]float32, width+2*reach) // with what is beyond the edge, as at the edge
	for y := range height {
		row := in[y*width : (y+1)*width]
		copy(line[reach:], row)
		for i := range reach {
			line[i], line[width+reach+i] = row[0], row[width-1]
		}
		out := room[y*width : (y+1)*width]
		for x := range out {
			v := float32(0)
			for i, k := range kernel {
				v += k * line[x+i]
			}
			out[x] = v
		}
	}
	out := make([]float32, len(in))
	for y := range height {
		sums := out[y*width : (y+1)*width]
		for i, k := range kernel {
			row := room[min(height-1, max(0, y+i-reach))*width:]
			for x := range sums {
				sums[x] += k * row[x]
			}
		}
	}
	return out
}
