package sched

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/coord"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

func TestWholeApplicationStaysTogether(t *testing.T) {
	sites := func() []*cluster {
		return []*cluster{
			clusterOf("many", 100, 100, 10), // 10 cores in all, no worker with half a core
			clusterOf("roomy", 10, 2000, 100),
			clusterOf("tight", 40, 450, 200), // 18 cores
		}
	}
	ask := func(whole skerry.MilliCPU) ([]string, wire.Decision) {
		r := request(500, 1)
		r.Whole = spec.Resources{CPU: whole}
		return federation(r, sites()).Rank(epoch, r, 1, 10)
	}
	if names, _ := ask(19_000); names[0] != "roomy" {
		t.Errorf("only one holds it all: %v", names)
	}
	if names, _ := ask(0); names[0] != "tight" {
		t.Errorf("without a whole, the most workers that fit: %v", names)
	}
	// No site holds all of it: every site that can hold the instance stays, so that it is split.
	names, d := ask(1_000_000)
	if len(names) < 2 || d.Chosen == "" {
		t.Errorf("split: %v %v", names, d.Why)
	}
	// The second instance goes where the first is, although another could hold it all.
	r := request(500, 1)
	r.Whole, r.Peers = spec.Resources{CPU: 19_000}, []Peer{{Worker: "tight", Service: "db"}}
	if names, _ := federation(r, sites()).Rank(epoch, r, 1, 10); names[0] != "tight" {
		t.Errorf("beside what is placed: %v", names)
	}
	// What was handed out just now no longer holds it all.
	r = request(500, 1)
	r.Whole = spec.Resources{CPU: 19_000}
	f := federation(r, sites())
	f.Take("roomy", spec.Resources{CPU: 2000})
	if names, _ := f.Rank(epoch, r, 1, 10); names[0] == "roomy" {
		t.Errorf("handed out: %v", names)
	}
}

func TestSitesOutOfPlace(t *testing.T) {
	munich, berlin := spec.Location{Lat: 48.14, Lon: 11.58}, spec.Location{Lat: 52.52, Lon: 13.4}
	at := func(l spec.Location, km float64) func(*cluster) {
		return func(c *cluster) { c.Report.Centroid, c.Report.RadiusKm = &l, km }
	}
	sites := []*cluster{clusterOf("munich", 10, 2000, 100, at(munich, 10)), clusterOf("berlin", 10, 2000, 100, at(berlin, 10)), clusterOf("wide", 10, 2000, 100, at(berlin, 600)), clusterOf("somewhere", 10, 2000, 100)}
	want := map[string]string{"berlin": "distance", "somewhere": "location"}
	for name, edit := range map[string]func(*spec.ServiceSpec){
		"location": func(s *spec.ServiceSpec) { s.Placement.Location, s.Placement.MaxDistance = &munich, 100 },
		"user":     func(s *spec.ServiceSpec) { s.Placement.Users = []spec.User{{Location: &munich, MaxDistance: 100}} },
	} {
		r := request(1000, 1, edit)
		names, d := federation(r, sites).Rank(epoch, r, 1, 10)
		slices.Sort(names)
		if strings.Join(names, " ") != "munich wide" {
			t.Errorf("%s: %v", name, names)
		}
		for _, c := range d.Top {
			if c.Out != nil && c.Out.What != want[c.Name] {
				t.Errorf("%s: %s is ruled out by %+v", name, c.Name, c.Out)
			}
		}
	}
}

// A site whose aggregate was made of workers of which one fits, in room and in place, is never ruled out.
func TestNoSiteWithAFitIsRuledOut(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	fits := 0
	for round := range 3000 {
		r := request(skerry.MilliCPU(rng.IntN(4000)), skerry.Bytes(rng.IntN(4000))*skerry.MiB)
		where := spec.Location{Lat: 180*rng.Float64() - 90, Lon: 360*rng.Float64() - 180}
		km := 500 * rng.Float64()
		if rng.IntN(2) == 0 {
			r.Spec.Placement.Location, r.Spec.Placement.MaxDistance = &where, km
		}
		var cpu, mem []float64
		var points []spec.Location
		fit := false
		for range 1 + rng.IntN(10)*rng.IntN(2) {
			c, m := float64(rng.IntN(4000)), float64(rng.IntN(4000))*float64(skerry.MiB)
			l := spec.Location{Lat: math.Max(-90, math.Min(90, where.Lat+6*rng.Float64()-3)), Lon: math.Max(-180, math.Min(180, where.Lon+6*rng.Float64()-3))}
			cpu, mem, points = append(cpu, c), append(mem, m), append(points, l)
			fit = fit || c >= float64(r.Need.CPU) && m >= float64(r.Need.Memory) && (r.Spec.Placement.Location == nil || coord.GreatCircleKm(l, where) <= km)
		}
		if i := rng.IntN(len(points)); cpu[i] >= float64(r.Need.CPU) && mem[i] >= float64(r.Need.Memory) && r.Spec.Placement.Location != nil {
			// One that fits lies just within the limit.
			r.Spec.Placement.MaxDistance, fit = coord.GreatCircleKm(points[i], where)*(1+1e-12), true
		}
		if !fit {
			continue
		}
		fits++
		c := clusterOf("a", len(cpu), 0, 0)
		c.Report.Classes[0].Available[0], c.Report.Classes[0].Available[1] = wire.MomentsOf(cpu), wire.MomentsOf(mem)
		if centre, radius, ok := coord.Centroid(points); ok {
			c.Report.Centroid, c.Report.RadiusKm = &centre, radius
		}
		if names, d := federation(nil, []*cluster{c}).Rank(epoch, r, 1, 1); len(names) == 0 {
			t.Fatalf("round %d: ruled out by %+v", round, d.Why)
		}
	}
	if fits < 500 {
		t.Errorf("%d cases", fits)
	}
}

func TestRankIsADecisionOfItsInputs(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	var sites []*cluster
	for i := range 10_000 {
		sites = append(sites, clusterOf(fmt.Sprintf("c%05d", i), 1+rng.IntN(20), float64(rng.IntN(3000)), float64(rng.IntN(500)), func(c *cluster) { c.Connected = rng.IntN(20) > 0 }))
	}
	r := request(1000, skerry.GiB)
	names, d := federation(r, sites).Rank(epoch, r, 7, 32)
	if len(names) != 32 || d.Considered != 10_000 || len(d.Top) > maxSites+maxRuledOut {
		t.Fatalf("%d names, %d shown", len(names), len(d.Top))
	}
	rng.Shuffle(len(sites), func(i, j int) { sites[i], sites[j] = sites[j], sites[i] })
	f := federation(r, sites)
	again, e := f.Rank(epoch, r, 7, 32)
	if !slices.Equal(names, again) || !reflect.DeepEqual(d, e) {
		t.Error("the order in which sites came changes the decision")
	}
	// Names come back when the best are gone.
	for _, n := range names {
		f.Remove(n)
	}
	f.Remove("nobody")
	more, _ := f.Rank(epoch, r, 7, 32)
	if f.Len() != 10_000-32 || slices.ContainsFunc(more, func(n string) bool { return slices.Contains(names, n) }) {
		t.Error("a removed site is ranked")
	}
}

func TestFederationPutsUpWithNonsense(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	f := NewFederation()
	for i, m := range []wire.Moments{{Sum: nan, Mean: nan, StdDev: nan}, {Sum: inf, Mean: inf, StdDev: inf}, {Sum: -1, Mean: -1, StdDev: -1}, {Sum: 1e300, Mean: 1e300, StdDev: 1e300}, {}} {
		for j, workers := range []int{-5, 0, 1, math.MaxInt32} {
			name := fmt.Sprint("c", i, j)
			f.SetConnected(name, true)
			r := &wire.ClusterReport{Classes: []wire.ClassAggregate{{Class: wire.Class{Runtimes: []string{"oci"}}, Workers: workers}}, Centroid: &spec.Location{Lat: nan, Lon: inf}, RadiusKm: nan,
				Network: &spec.Coordinate{Height: nan}, NetworkMs: inf}
			for k := range r.Classes[0].Available {
				r.Classes[0].Available[k] = m
			}
			f.SetReport(name, r)
			f.Take(name, spec.Resources{CPU: math.MaxInt64 / 4})
		}
	}
	r := request(1000, 1, func(s *spec.ServiceSpec) {
		s.Placement.Location, s.Placement.MaxDistance = &spec.Location{Lat: nan, Lon: nan}, nan
		s.Links = []spec.Link{{Service: "web", MaxLatency: new(spec.Duration(0))}}
	})
	r.Service, r.Peers = "web", []Peer{{Worker: "c00", Service: "web"}}
	f.Rank(epoch, r, 1, 10)
	r = request(1000, 1)
	for _, n := range first(f.Rank(epoch, r, 1, 100)) {
		if !strings.HasPrefix(n, "c3") {
			t.Errorf("%s has a worker that fits?", n)
		}
	}
}

func first[A, B any](a A, _ B) A { return a }

// What a site has in all is told as such, and in units.
func TestFreeInAll(t *testing.T) {
	if got := about(memoryResource, 46976204846); got != "44800Mi" {
		t.Error(got)
	}
	if got := about(0, 1500); got != "1.5" {
		t.Error(got)
	}
}

// A site that has a class which is named, but not as what is asked for, is ruled out by that, and tells which it has.
func TestSitesWithoutTheClass(t *testing.T) {
	has := func(runtimes ...string) func(*cluster) {
		return func(c *cluster) { c.Report.Classes[0].Class.Runtimes = runtimes }
	}
	sites := []*cluster{clusterOf("kata", 3, 2000, 100, has("oci", "containerd/hardware/kata")), clusterOf("plain", 3, 2000, 100, has("oci",
		"containerd/shared/kata")),
		clusterOf("other", 3, 2000, 100, has("containerd/shared/crun")), clusterOf("none", 3, 2000, 100)}
	r := request(1000, 1, func(s *spec.ServiceSpec) {
		s.Runtime, s.RuntimeClass, s.Isolation = "containerd", "kata", spec.IsolationHardware
	})
	names, d := federation(r, sites).Rank(epoch, r, 1, 10)
	if !slices.Equal(names, []string{"kata"}) {
		t.Error(names)
	}
	want := map[string]string{"plain": "on its workers, class kata keeps a service apart as shared, and hardware is asked for",
		"other": "on its workers, no class kata works; what does is crun (shared)", "none": "on its workers, no class kata works, and no other"}
	for _, c := range d.Top {
		if c.Out != nil && (c.Out.What != "runtimeClass" || c.Out.Text != want[c.Name]) {
			t.Errorf("%s is ruled out by %+v", c.Name, c.Out)
		}
	}
}
