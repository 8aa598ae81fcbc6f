package interference

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry/bench/published"
	"skerry.dev/skerry/bench/report"
	"skerry.dev/skerry/spec"
)

// Without choices the matrix is that of the thesis, and all of its figures stand beside it.
func TestMatrix(t *testing.T) {
	groups, err := Choice{}.groups()
	if err != nil {
		t.Fatal(err)
	}
	all, err := published.Load()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, g := range groups {
		for _, rate := range g.rates {
			for _, place := range []string{spec.RuntimeOCI, spec.RuntimeMicroVM, Bare} {
				p := beside(all, place, g.Setting, rate)
				if len(p) == 0 {
					continue
				}
				n++
				if p[meanLatency] == "" || p[overhead] == "" {
					t.Errorf("%+v", p)
				}
			}
		}
	}
	if n != 7*4*2 {
		t.Errorf("%d figures", n)
	}
	p := beside(all, spec.RuntimeMicroVM, newGroup(Image, 0.5, PinNone, 0, "", nil).Setting, 8)
	if p[meanLatency] != "117.794 in Kata (004 table 5.1)" || p[overhead] != "38 in Kata (004 table 5.3)" {
		t.Errorf("%+v", p)
	}
	if groups, err = (Choice{Services: []string{Video, Database, Video}}).groups(); err != nil || len(groups) != 18 || !slices.Equal(groups[9].rates, []float64{60, 120, 180, 240}) || len(beside(all, spec.RuntimeOCI, groups[9].Setting, 60)) > 0 || len(beside(all, spec.RuntimeOCI, groups[0].Setting, 4)) > 0 {
		t.Errorf("%+v %v", groups, err)
	}
	groups, err = Choice{CPU: []float64{1, 0.5}, Neighbours: []string{"cpu", "cache"}, Rates: []float64{3}}.groups()
	if err != nil || len(groups) != 6 { // alone, and beside each of two
		t.Errorf("%+v %v", groups, err)
	}
	for _, bad := range []Choice{{CPU: []float64{0}}, {Rates: []float64{-1}}, {Services: []string{"tea"}}, {Pin: []string{"all"}}, {Neighbours: []string{"moon"}}, {Interference: []float64{-1}}} {
		if _, err := bad.groups(); err == nil {
			t.Errorf("%+v", bad)
		}
	}
}

// The generator has a processor of its own, a pinned service has others than its neighbour, and what does not fit is told.
func TestArrange(t *testing.T) {
	for _, c := range []struct {
		cpus         []int
		cpu, beside  float64
		pinned       bool
		service, too string // or the reason
	}{
		{[]int{0, 1}, 0.5, 0, false, "1", "0,1"},
		{[]int{0, 1}, 1, 1.5, false, "1", "0,1"},
		{[]int{0, 1}, 1, 1, true, "1", "0"},
		{[]int{0, 1}, 1, 1.5, true, "", "a neighbour of 1.5 processors needs 2, and 1 are left"},
		{[]int{0, 1}, 1.5, 0, false, "", "the service needs 2 processors and may have 1 of 2"},
		{[]int{2, 3, 5, 7}, 1.5, 1.5, true, "5,7", "2,3"},
		{[]int{0}, 0.5, 0, false, "", "may have 0 of 1"},
	} {
		l, why := arrange(c.cpus, Setting{CPU: c.cpu, Interference: c.beside}, c.pinned)
		if c.service == "" {
			if !strings.Contains(why, c.too) {
				t.Errorf("%+v: %q", c, why)
			}
			continue
		}
		if why != "" || l.generator != c.cpus[0] || list(l.service) != c.service || list(l.neighbour) != c.too {
			t.Errorf("%+v: %+v %s", c, l, why)
		}
	}
}

// What was found of a row is in the report: each metric with its unit and direction, by the second where it is, with what the
// thesis has; and what was not run has its reason.
func TestRow(t *testing.T) {
	all, err := published.Load()
	if err != nil {
		t.Fatal(err)
	}
	r := report.New("interference", "", "")
	r.Baseline = Bare
	half := newGroup(Image, 0.5, PinNone, 0, "", nil).Setting
	x := &row{place: spec.RuntimeOCI, Setting: half, rate: 4,
		outcome: &Outcome{Sent: 24, Success: 95, Throughput: 3.8, Latency: &Latency{48, 46, 53, 63, 64}, Application: &Application{5, 40, 45}, Overhead: 3, Error: "refused"},
		system:  map[string]float64{"processor time": 36, "throttled": 120, "pressure, cpu": 7, "cycles": 1e9, "instructions": 2e9, "cache-references": 10, "cache-misses": 3}, parts: []float64{100, 90}, used: []float64{35, 37}}
	x.add(r, all)
	bare := *x
	bare.place, bare.outcome = Bare, &Outcome{Success: 100, Throughput: 4, Latency: &Latency{Mean: 24}, Application: &Application{Total: 20}, Overhead: 4}
	bare.add(r, all)
	not := &row{place: "wasm", Setting: half, rate: 4, skip: "it has no disk"}
	not.add(r, all)
	r.Rounds++
	r.Finish(t.Context(), report.Measuring{})
	const group = "image, 0.5 CPU, alone, pin none"
	for name, want := range map[string]float64{"mean latency": 48, "p99 latency": 63, "time in the service": 45, "overhead": 3, "success": 95,
		"processor time": 36, "throttled": 120, "pressure, cpu": 7, "cycles": 1e9, perCycle: 2, missed: 30, "success, part by part": 95, "processor time, part by part": 36} {
		if f := r.Find(group, name+", 4/s", spec.RuntimeOCI); f == nil || f.Value == nil || f.Value.Value != want {
			t.Errorf("%s is %+v", name, f)
		}
	}
	mean := r.Find(group, "mean latency, 4/s", spec.RuntimeOCI)
	if mean.Published != "41.592 in Regular (004 table 5.1)" || mean.Against == nil || mean.Against.Times != 2 || mean.Curve != "mean latency by requests per second" || mean.At != 4 {
		t.Errorf("the mean latency is %+v, against bare %+v", mean, mean.Against)
	}
	if f := not.ran(r); f.Skip != "it has no disk" || f.Better != report.Higher {
		t.Errorf("%+v", f)
	}
	var out bytes.Buffer
	if err := r.WriteTable(&out); err != nil || !strings.Contains(out.String(), "success, 4/s in wasm: it has no disk") || !strings.Contains(out.String(), "4/s: refused") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if d := r.Drawings(); len(d) != 4 {
		t.Errorf("%d plots", len(d))
	}
}

// Settings are compared that differ in one thing alone, and only what counts.
func TestChange(t *testing.T) {
	r := report.New("interference", "", "")
	var groups []group
	for i, s := range []struct {
		pin       string
		load      float64
		neighbour string
		mean      float64
	}{{PinNone, 0, "", 40}, {PinNone, 1, "cpu", 60}, {PinNone, 1, "cache", 80}, {PinNone, 1.5, "cpu", 90}, {PinBoth, 1, "cpu", 45}, {PinNone, 1, "disk", 999}} {
		g := newGroup(Image, 1, s.pin, s.load, s.neighbour, []float64{4})
		groups = append(groups, g)
		f := metric{name: meanLatency, unit: "ms"}.figure(r, &row{place: "oci", Setting: g.Setting, rate: 4})
		r.Rounds = i
		r.Add(f, s.mean)
	}
	r.Disturbed = []report.Mark{{Round: 6, Group: groups[5].name(), Place: "oci", By: "late"}}
	change(r, groups, []string{"oci"})
	var got []string
	for _, f := range r.Figures[len(groups):] {
		got = append(got, fmt.Sprintf("%s %s %g", f.Group, f.Name, f.Samples[0]))
	}
	head := "image, 1 CPU: "
	want := []string{
		head + "beside cpu 1, pin none against alone, pin none mean latency, 4/s 1.5", head + "beside cache 1, pin none against alone, pin none mean latency, 4/s 2",
		head + "beside cpu 1.5, pin none against alone, pin none mean latency, 4/s 2.25", head + "beside cpu 1.5, pin none against beside cpu 1, pin none mean latency, 4/s 1.5",
		head + "beside cpu 1, pin both against beside cpu 1, pin none mean latency, 4/s 0.75",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the changes are %q", got)
	}
}
