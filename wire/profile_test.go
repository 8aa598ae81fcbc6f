package wire_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

func rated(isolation spec.Isolation, cpu skerry.MilliCPU, rate float64, objective time.Duration) *spec.ServiceSpec {
	return &spec.ServiceSpec{Name: "s", Runtime: "auto", Isolation: isolation, Container: spec.Container{Image: "a/b:1"},
		Resources: spec.Resources{CPU: cpu}, ExpectedRate: rate, LatencyObjective: spec.Duration(objective)}
}

// TestSaturationAsPublished: the model gives the rates at which the thesis saw the image service saturate in a microVM, and tells that a
// container did not.
func TestSaturationAsPublished(t *testing.T) {
	for _, tt := range []struct {
		cpu       skerry.MilliCPU
		rate      float64 // section 5.3.1
		container float64 // share of its limit that the container used then, at most and at least
		most      float64
	}{{500, 8, 0.55, 0.60}, {1000, 16, 0.58, 0.62}, {1500, 25, 0.60, 0.65}} {
		by := map[string]spec.RuntimeChoice{}
		for _, r := range rated("shared", tt.cpu, tt.rate, 0).RuntimeChoices("microvm", nil) {
			by[r.Runtime] = r
		}
		vm, oci := by["microvm"], by["oci"]
		if math.Abs(vm.Saturation/tt.rate-1) > 0.04 || vm.Crowded == "" || !strings.HasPrefix(vm.Processor.Source, "published: thesis") {
			t.Errorf("%s: a microVM saturates at %.2f a second (%s)", tt.cpu, vm.Saturation, vm.Crowded)
		}
		if used := tt.rate / oci.Saturation; used < tt.container-0.02 || used > tt.most+0.02 || oci.Crowded != "" || math.Abs(*oci.HeadRoom-(1-used)) > 1e-9 {
			t.Errorf("%s: a container uses %.3f of its limit, head-room %v, %s", tt.cpu, used, *oci.HeadRoom, oci.Crowded)
		}
		if g := by["gvisor"]; g.Saturation != 0 || g.HeadRoom != nil || g.Processor != (spec.RuntimeFigure{}) || !strings.Contains(g.Crowded, "no figure") {
			t.Errorf("of gVisor nothing is published: %+v", g)
		}
	}
}

// TestAutoStaysClearOfSaturation has auto choose on workers that have some runtimes, at published and measured costs.
func TestAutoStaysClearOfSaturation(t *testing.T) {
	all := []string{"native", "oci", "gvisor", "microvm"}
	for _, tt := range []struct {
		name    string
		s       *spec.ServiceSpec
		has     []string
		costs   spec.RuntimeCosts
		want    string
		crowded string
	}{
		{"no rate", rated("sandboxed", 1000, 0, 0), all, nil, "gvisor", ""},
		{"no rate, whatever was measured", rated("shared", 1000, 0, 0), all, spec.RuntimeCosts{"oci": 9}, "oci", ""},
		{"a containerd's containers are containers", rated("shared", 1000, 12, 0), []string{"containerd", "gvisor", "microvm"}, nil, "containerd", ""},
		{"the cheapest", rated("shared", 1000, 12, 0), all, nil, "oci", ""},
		{"known to be clear before unknown", rated("sandboxed", 1000, 12, 0), all, nil, "microvm", ""},
		{"unknown, for there is nothing else", rated("sandboxed", 1000, 12, 0), []string{"oci", "gvisor"}, nil, "gvisor", "no figure tells"},
		{"measured and cheaper", rated("sandboxed", 1000, 12, 0), all, spec.RuntimeCosts{"gvisor": 1.6}, "gvisor", ""},
		{"measured and not clear", rated("sandboxed", 1000, 12, 0), all, spec.RuntimeCosts{"gvisor": 2.6}, "microvm", ""},
		{"none clear: the most head-room", rated("sandboxed", 1000, 30, 0), all, spec.RuntimeCosts{"gvisor": 2.6}, "microvm", "30 requests per second are 185 % of the rate at which runtime microvm saturates with 1 of a processor, more than 80 %"},
		{"none clear, measured", rated("sandboxed", 1000, 30, 0), all, spec.RuntimeCosts{"gvisor": 1.3}, "gvisor", "runtime gvisor"},
		{"never a weaker isolation", rated("hardware", 1000, 100, 0), all, nil, "microvm", "runtime microvm"},
		{"emulated machines last", rated("sandboxed", 1000, 12, 0), all, spec.RuntimeCosts{"microvm": 0, "gvisor": 3}, "gvisor", "runtime gvisor"},
		{"with the whole machine", rated("hardware", 4000, 30, 0), all, nil, "microvm", ""},
		{"at the margin", rated("hardware", 1000, 12.9, 0), all, nil, "microvm", ""},
		{"beyond it", rated("hardware", 1000, 13, 0), all, nil, "microvm", "80 %"},
		{"an objective keeps further away", rated("hardware", 1000, 12, time.Second), all, nil, "microvm", "60 %"},
		{"a short one bounds what a request takes", rated("hardware", 1000, 50, 5*time.Millisecond), all, nil, "microvm", ""},
		{"nothing there", rated("hardware", 1000, 12, 0), []string{"oci"}, nil, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.s.RuntimeOn("amd64", tt.has, tt.costs)
			if got != tt.want {
				t.Errorf("%q, not %q", got, tt.want)
			}
			if why := tt.s.Crowded(got, tt.costs); (why == "") != (tt.crowded == "") || !strings.Contains(why, tt.crowded) {
				t.Errorf("crowded: %q, not %q", why, tt.crowded)
			}
		})
	}
}

// TestWorkersCosts: what workers measure counts in steps, so that machines of one make are alike, and what cannot be does not count.
func TestWorkersCosts(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	of := func(cpu float64, emulated bool) spec.RuntimeCosts {
		f := &wire.WorkerFacts{Runtimes: []wire.RuntimeReport{{Name: "oci", Passed: true}, {Name: "microvm", Passed: true, Emulated: emulated}}}
		if cpu != 0 {
			f.Runtimes[1].Profile = &wire.RuntimeProfile{CPU: cpu, At: now}
		}
		return f.RuntimeCosts()
	}
	if of(0, false) != nil || (*wire.WorkerFacts)(nil).RuntimeCosts() != nil {
		t.Error("nothing was measured")
	}
	if a, b := of(1.60, false), of(1.63, false); a.Key() != b.Key() || math.Abs(a["microvm"]/1.6-1) > 0.05 {
		t.Errorf("%q and %q", a.Key(), b.Key())
	}
	if a, b := of(1.6, false), of(2, false); a.Key() == b.Key() {
		t.Errorf("%q and %q", a.Key(), b.Key())
	}
	if v, told := of(0, true)["microvm"]; !told || v != 0 {
		t.Error("published figures do not hold where a processor is emulated")
	}
	if of(30, true)["microvm"] < 25 {
		t.Error("a measured figure holds there")
	}
	for _, bad := range []float64{-1, math.NaN(), math.Inf(1), 1e9, 1e-9} {
		if of(bad, false) != nil {
			t.Errorf("%g counts", bad)
		}
	}
}

// TestWorkersSpeed: two workers whose containers cost the same beside their other runtimes are told apart by how many requests they answer by
// the clock; what was not measured well, or not of containers, tells nothing.
func TestWorkersSpeed(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	oci := func(rate, spread float64) *wire.WorkerFacts {
		return &wire.WorkerFacts{Runtimes: []wire.RuntimeReport{{Name: "oci", Passed: true, Profile: &wire.RuntimeProfile{CPU: 1, At: now, Rate: rate, Share: 0.9, Spread: spread}},
			{Name: "native", Passed: true}, {Name: "gvisor", Passed: true}, {Name: "microvm", Passed: true, Emulated: true}, {Name: "containerd", Passed: false}}}
	}
	quick, slow := oci(6000, 0.1), oci(1500, 0.1)
	if r := slow.Slowness() / quick.Slowness(); math.Abs(r-4) > 1e-9 || math.Abs(quick.Slowness()-1) > 0.1 {
		t.Errorf("%g and %g", slow.Slowness(), quick.Slowness())
	}
	a, b := quick.RuntimeCosts(), slow.RuntimeCosts()
	for _, name := range []string{"oci", "native"} { // what was not measured is as much slower
		if r := b[name] / a[name]; r < 3.5 || r > 4.5 {
			t.Errorf("%s: %g times", name, r)
		}
	}
	if _, told := b["gvisor"]; told || b["microvm"] != 0 || len(b) != 3 {
		t.Errorf("%v", b)
	}
	s := rated("shared", 500, 5, 0)
	if s.Crowded("oci", a) != "" || !strings.Contains(s.Crowded("oci", b), "of the rate at which runtime oci saturates") {
		t.Errorf("%q, %q", s.Crowded("oci", a), s.Crowded("oci", b))
	}
	if got := s.Relief("oci", 1, b, a); !slices.Contains(got, "oci") {
		t.Errorf("one that is full on the slow one would find relief on the quick one, not %v", got)
	}
	if f := slow.Figure("oci"); f.CPU != b["oci"] || !strings.HasPrefix(f.Source, "measured on its worker on 2023-11-14; work takes 3.") || !strings.Contains(f.Source, "rounds 10 % apart, given 90 % of a processor; 2023-11-14") {
		t.Errorf("%+v", f)
	}
	if f := slow.Figure("native"); f.CPU != b["native"] || !strings.HasPrefix(f.Source, "published: WoWMoM") || !strings.Contains(f.Source, "times as long there") {
		t.Errorf("%+v", f)
	}
	if f := slow.Figure("gvisor"); f != (spec.RuntimeFigure{}) {
		t.Errorf("%+v", f)
	}
	for _, bad := range []*wire.WorkerFacts{nil, oci(0, 0), oci(1500, 0.51), oci(-1, 0), oci(math.NaN(), 0), oci(math.Inf(1), 0), oci(1500, math.NaN())} {
		if v := bad.Slowness(); v != 0 {
			t.Errorf("%g from %+v", v, bad)
		}
	}
}
