package main

import (
	"fmt"
	"hash/crc32"
	"math"
)

// window is how many samples a message of a sensor has.
const window = 256

// samples are what sensor n measures: a vibration of n+3 periods with half as much of another, and noise, about a mean of 1000+n.
func samples(n int) []int {
	out, noise := make([]int, window), draws(n+1)
	for i := range out {
		at := 2 * math.Pi * float64(i) / window
		out[i] = 1000 + n + int(math.Round(200*math.Sin(float64(n+3)*at)+100*math.Sin(float64(n+40)*at))) + int(noise.next(-20, 20))
	}
	return out
}

// analyse gives how many periods of the strongest vibration there are in samples, their mean and the largest, as a sum. The spectrum is computed by its definition.
func analyse(values []int) (sum uint32, strongest int, err error) {
	if len(values) != window {
		return 0, 0, fmt.Errorf("%d samples, not %d", len(values), window)
	}
	var table [window]float64
	for i := range table {
		table[i] = math.Cos(2 * math.Pi * float64(i) / window)
	}
	total, largest, power := 0, values[0], 0.0
	for _, v := range values {
		total, largest = total+v, max(largest, v)
	}
	for k := 1; k < window/2; k++ {
		re, im := 0.0, 0.0
		for i, v := range values {
			re += float64(v) * table[k*i%window]
			im += float64(v) * table[(k*i+window/4)%window]
		}
		if p := re*re + im*im; p > power {
			strongest, power = k, p
		}
	}
	return crc32.ChecksumIEEE(fmt.Appendf(nil, "%d %d %d", strongest, total/window, largest)), strongest, nil
}

func prepareSensors(string) error { return nil }

// openSensors gives what the subscriber of a stream computes.
func openSensors(string) (kernel, error) {
	return func(n int, _ string, loaded func()) (uint32, error) {
		values := samples(n)
		loaded()
		sum, _, err := analyse(values)
		return sum, err
	}, nil
}
