package wire

import (
	"fmt"
	"math"
	"time"

	"skerry.dev/skerry/spec"
)

// RuntimeProfile is what a worker measured of a runtime of its own.
type RuntimeProfile struct {
	CPU float64   `json:"cpu" cbor:"1,keyasint"` // processor time for the same work, as a multiple of what it takes in a container there; 0.01 to 1000
	At  time.Time `json:"at" cbor:"2,keyasint"`
	// Rate is how many requests of the work one processor answers in a second by the clock, up to 1e9, so that a processor that is slow and one that
	// is not given for all of the time (by a quota, neighbours, a hypervisor, heat) are told alike; 0: not measured. Share is how much of a
	// processor it was given meanwhile, and Spread the largest rate less the smallest of all rounds, as a share of their median, which is Rate.
	Rate   float64 `json:"rate,omitempty" cbor:"3,keyasint,omitempty"`
	Share  float64 `json:"share,omitempty" cbor:"4,keyasint,omitempty"`
	Spread float64 `json:"spread,omitempty" cbor:"5,keyasint,omitempty"`
}

// Valid reports whether the figures of a profile are such as can be.
func (p *RuntimeProfile) Valid() bool {
	in := func(v, low, high float64) bool { return v >= low && v <= high } // false for what is no number
	return in(p.CPU, 0.01, 1000) && in(p.Rate, 0, maxProfileRate) && in(p.Share, 0, maxProfileShare) && in(p.Spread, 0, math.MaxFloat64)
}

const (
	// maxProfileRate bounds a rate that counts, and maxProfileShare what one processor gives: work beside the request is counted, too.
	maxProfileRate, maxProfileShare = 1e9, 16
	// MaxProfileSpread is up to which spread the rate of a profile counts. A machine of which rounds differ by more was measured while
	// something else happened to it, and counts as one of unknown speed.
	MaxProfileSpread = 0.5
	// profileRequests is how many requests of a profile's work take as long as one of the published service. Measured side by side, by
	// processor time (examples/services, docs/results/before-reports.md): 172 to 254 in twelve runs on a machine that others used, median 214.
	profileRequests = 214
)

// Slowness is how many times as long the worker takes for the same work in a container as the machine of the published figures took; 0: it
// is not known.
func (f *WorkerFacts) Slowness() float64 {
	if f == nil {
		return 0
	}
	for i := range f.Runtimes {
		r := &f.Runtimes[i]
		if p := r.Profile; r.Name == spec.RuntimeOCI && r.Passed && p != nil && p.Valid() && p.Rate > 0 && p.Spread <= MaxProfileSpread {
			d, _ := spec.PublishedDemand()
			return profileRequests / p.Rate / d
		}
	}
	return 0
}

// costStep is the ratio of neighbouring multiples: machines of one make are then alike, although no two measurements are the same.
const costStep = 1.1

// RuntimeCosts gives what a worker measured. Published figures were taken with hardware virtualization, and none holds where a runtime
// emulates a processor.
func (f *WorkerFacts) RuntimeCosts() (out spec.RuntimeCosts) {
	if f == nil {
		return nil
	}
	slow := f.Slowness()
	for i := range f.Runtimes {
		r := &f.Runtimes[i]
		v := -1.0
		switch p := r.Profile; {
		case p != nil && p.Valid():
			v = p.CPU
		case r.Emulated:
			v = 0
		case slow > 0 && spec.PublishedFigure(r.Name).CPU > 0:
			v = spec.PublishedFigure(r.Name).CPU
		}
		if v > 0 && slow > 0 {
			v *= slow
		}
		if v > 0 {
			v = math.Pow(costStep, math.Round(math.Log(v)/math.Log(costStep)))
		}
		if v >= 0 && r.Passed {
			if out == nil {
				out = spec.RuntimeCosts{}
			}
			out[r.Name] = v
		}
	}
	return out
}

// Figure gives the figure of a runtime on the worker, with when it was measured and how sure it is.
func (f *WorkerFacts) Figure(runtime string) spec.RuntimeFigure {
	costs := f.RuntimeCosts()
	out := costs.Figure(runtime)
	if costs[runtime] == 0 { // nothing was measured, or it is not there
		return out
	}
	var own, container *RuntimeProfile
	for i := range f.Runtimes {
		r := &f.Runtimes[i]
		if r.Profile == nil || !r.Passed || !r.Profile.Valid() {
			continue
		}
		if r.Name == runtime {
			own = r.Profile
		}
		if r.Name == spec.RuntimeOCI {
			container = r.Profile
		}
	}
	slow := f.Slowness()
	switch {
	case own != nil:
		out.Source += " on " + own.At.UTC().Format(time.DateOnly)
	case slow > 0:
		out.Source = spec.PublishedFigure(runtime).Source
	}
	if slow > 0 {
		out.Source += fmt.Sprintf("; work takes %.2f times as long there as on the machine of the published figures (%.4g requests a second, rounds %.0f %% apart, given %.0f %% of a processor; %s)",
			slow, container.Rate, 100*container.Spread, 100*container.Share, container.At.UTC().Format(time.DateOnly))
	}
	return out
}
