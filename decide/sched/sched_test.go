package sched

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

func worker(name string, cpu skerry.MilliCPU, mem skerry.Bytes, edit ...func(*Worker)) *Worker {
	w := &Worker{Name: name, Runtimes: []string{"oci", plain}, Capacity: spec.Resources{CPU: 4000, Memory: 4 * skerry.GiB}, Available: spec.Resources{CPU: cpu, Memory: mem}, HostPorts: map[string]bool{}}
	for _, f := range edit {
		f(w)
	}
	return w
}

func siteOf(list []*Worker) *Site {
	s := NewSite()
	for _, w := range list {
		s.Set(w)
	}
	return s
}

// share is the plain form of BestFit's score.
func share(r *Request, w *Worker) float64 {
	free := func(have, need, all int64) float64 { return float64(have-need) * float64(1/float32(all)) }
	return 1 - (free(int64(w.Available.CPU), int64(r.Need.CPU), int64(w.Capacity.CPU))+free(int64(w.Available.Memory), int64(r.Need.Memory), int64(w.Capacity.Memory)))/2
}

// cluster is a site as the tables below write it.
type cluster struct {
	Name      string
	Connected bool
	Preferred bool
	Pending   spec.Resources
	Report    wire.ClusterReport
}

func federation(r *Request, list []*cluster) *Federation {
	f := NewFederation()
	for _, c := range list {
		f.SetConnected(c.Name, c.Connected)
		f.SetReport(c.Name, &c.Report)
		f.Take(c.Name, c.Pending)
		if c.Preferred {
			r.Peers = append(r.Peers, Peer{Worker: c.Name, Service: "db"})
		}
	}
	return f
}

// plain is a runtime that takes nothing beside what an instance needs.
const plain = "plain"

func request(cpu skerry.MilliCPU, mem skerry.Bytes, edit ...func(*spec.ServiceSpec)) *Request {
	s := &spec.ServiceSpec{Name: "web", Runtime: plain, Resources: spec.Resources{CPU: cpu, Memory: mem}}
	for _, f := range edit {
		f(s)
	}
	return &Request{Instance: "web-1", Spec: s, Need: s.Need()}
}

func TestROM(t *testing.T) {
	munich := &spec.Location{Lat: 48.14, Lon: 11.58}
	berlin := &spec.Location{Lat: 52.52, Lon: 13.40}
	for _, c := range []struct {
		name    string
		req     *Request
		workers []*Worker
		want    string // name, or the reasons
	}{
		{"best fit: the fullest that still has room", request(500, skerry.GiB),
			[]*Worker{worker("empty", 4000, 4*skerry.GiB), worker("full", 600, skerry.GiB), worker("half", 2000, 2*skerry.GiB)}, "full"},
		{"memory rules out", request(100, 2*skerry.GiB), []*Worker{worker("a", 4000, skerry.GiB)}, "memory: needs 2Gi of memory, 1Gi is free"},
		{"cpu rules out", request(1000, 0), []*Worker{worker("a", 900, skerry.GiB)}, "cpu: needs 1 of cpu, 0.9 is free"},
		{"over-committed counts as none", request(1000, 0), []*Worker{worker("a", -500, skerry.GiB)}, "cpu: needs 1 of cpu, 0 is free"},
		{"the nearest miss is told", request(1000, 0), []*Worker{worker("a", 100, skerry.GiB), worker("b", 900, skerry.GiB)}, "cpu: 2 workers: nearest: needs 1 of cpu, 0.9 is free"},
		{"virtualization rules out", request(1, 1, func(s *spec.ServiceSpec) { s.Runtime = "native" }), []*Worker{worker("a", 4000, skerry.GiB)}, "runtime: it offers no working runtime native"},
		{"lost and refusing", request(1, 1), []*Worker{worker("a", 4000, skerry.GiB, func(w *Worker) { w.Lost = true }), worker("b", 4000, skerry.GiB, func(w *Worker) { w.Refusing = "disk full" })},
			"reachable: it is not in touch; refusing: it takes nothing new: disk full"},
		{"area", request(1, 1, func(s *spec.ServiceSpec) { s.Placement.Area = "north" }), []*Worker{worker("a", 4000, skerry.GiB, func(w *Worker) { w.Area = "south" }), worker("b", 4000, skerry.GiB, func(w *Worker) { w.Area = "north" })}, "b"},
		{"distance", request(1, 1, func(s *spec.ServiceSpec) { s.Placement.Location, s.Placement.MaxDistance = munich, 100 }),
			[]*Worker{worker("far", 4000, skerry.GiB, func(w *Worker) { w.Location = berlin }), worker("nowhere", 4000, skerry.GiB), worker("near", 4000, skerry.GiB, func(w *Worker) { w.Location = munich })}, "near"},
		{"host port", request(1, 1, func(s *spec.ServiceSpec) { s.Ports = []spec.Port{{Port: 80, HostPort: 80}} }),
			[]*Worker{worker("a", 4000, skerry.GiB, func(w *Worker) { w.HostPorts["tcp/80"] = true })}, "hostPort: host port 80 is taken"},
		{"nobody", request(1, 1), nil, "workers: the site has no workers"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := siteOf(c.workers).Place(time.Time{}, ROM(), c.req, 1)
			got := d.Chosen
			if got == "" {
				var parts []string
				for _, r := range d.Why {
					parts = append(parts, r.What+": "+r.Text)
				}
				got = strings.Join(parts, "; ")
			}
			if got != c.want {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
			if d.Considered != len(c.workers) {
				t.Errorf("considered %d of %d", d.Considered, len(c.workers))
			}
		})
	}
}

// The dumb twin of ROM: filter, then take the best by sorting.
func TestROMAgainstItsTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for round := range 500 {
		var list []*Worker
		for i := range rng.IntN(20) {
			list = append(list, worker(fmt.Sprint("w", i), skerry.MilliCPU(rng.IntN(4000)), skerry.Bytes(rng.IntN(4096))*skerry.MiB))
		}
		r := request(skerry.MilliCPU(rng.IntN(3000)), skerry.Bytes(rng.IntN(3000))*skerry.MiB)
		d := siteOf(list).Place(time.Time{}, ROM(), r, uint64(round))
		best := -1.0
		for _, w := range list {
			if w.Available.Fits(r.Need) {
				best = max(best, share(r, w))
			}
		}
		if (best < 0) != (d.Chosen == "") {
			t.Fatalf("round %d: chosen %q, the twin's best is %v", round, d.Chosen, best)
		}
		for _, w := range list {
			if w.Name == d.Chosen && share(r, w) != best {
				t.Fatalf("round %d: chose a score of %v instead of %v", round, share(r, w), best)
			}
		}
		// The same view, request and seed give the same decision.
		if again := siteOf(list).Place(time.Time{}, ROM(), r, uint64(round)); !reflect.DeepEqual(again, d) {
			t.Fatal("the decision cannot be replayed")
		}
	}
}

func TestTiesAreSpreadBySeed(t *testing.T) {
	list := []*Worker{worker("a", 1000, skerry.GiB), worker("b", 1000, skerry.GiB), worker("c", 1000, skerry.GiB)}
	got := map[string]int{}
	for seed := range uint64(300) {
		got[siteOf(list).Place(time.Time{}, ROM(), request(1, 1), seed).Chosen]++
	}
	for _, n := range []string{"a", "b", "c"} {
		if got[n] < 50 {
			t.Errorf("%s was chosen %d times of 300", n, got[n])
		}
	}
}

func clusterOf(name string, workers int, meanCPU, dev float64, edit ...func(*cluster)) *cluster {
	c := &cluster{Name: name, Connected: true}
	k := wire.ClassAggregate{Class: wire.Class{Arch: "amd64", Runtimes: []string{"oci", plain}}, Workers: workers}
	for i := range k.Available {
		k.Available[i] = wire.Moments{Sum: 1e12, Mean: 1e12 / float64(workers)}
	}
	k.Available[0] = wire.Moments{Sum: meanCPU * float64(workers), Mean: meanCPU, StdDev: dev}
	c.Report.Classes = []wire.ClassAggregate{k}
	for _, f := range edit {
		f(c)
	}
	return c
}

func TestRankClusters(t *testing.T) {
	for _, c := range []struct {
		name  string
		req   *Request
		sites []*cluster
		want  string
	}{
		{"more fitting workers first", request(1000, 1), []*cluster{clusterOf("small", 3, 2000, 100), clusterOf("large", 30, 2000, 100)}, "large small"},
		{"a wide spread may still have room", request(3000, 1), []*cluster{clusterOf("even", 10, 2000, 0), clusterOf("uneven", 10, 2000, 1500)}, "uneven"},
		{"no worker can have so much", request(5000, 1), []*cluster{clusterOf("a", 4, 2000, 500)}, ""},
		{"not connected", request(1, 1), []*cluster{clusterOf("a", 4, 2000, 0, func(c *cluster) { c.Connected = false })}, ""},
		{"the rest of the application is there", request(1000, 1), []*cluster{clusterOf("large", 30, 2000, 100), clusterOf("home", 3, 2000, 100, func(c *cluster) { c.Preferred = true })}, "home large"},
		{"no area", request(1, 1, func(s *spec.ServiceSpec) { s.Placement.Area = "north" }), []*cluster{clusterOf("a", 4, 2000, 0)}, ""},
		{"runtime", request(1, 1, func(s *spec.ServiceSpec) { s.Runtime = "native" }), []*cluster{clusterOf("a", 4, 2000, 0)}, ""},
		{"what was handed out just now counts", request(1000, 1), []*cluster{clusterOf("a", 4, 2000, 600, func(c *cluster) { c.Pending.CPU = 7000 }), clusterOf("b", 4, 1900, 600)}, "b a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			names, d := federation(c.req, c.sites).Rank(time.Time{}, c.req, 1, 10)
			if got := strings.Join(names, " "); got != c.want {
				t.Errorf("got %q, want %q; %v", got, c.want, d.Why)
			}
			if len(names) == 0 && len(d.Why) == 0 {
				t.Error("no reasons")
			}
		})
	}
}

// What the aggregate proves impossible is impossible: whatever the workers are, a site with a fitting worker is never
// ruled out (Samuelson's inequality).
func TestAggregateNeverRulesOutAFit(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for round := range 5000 {
		n := 1 + rng.IntN(12)
		values := make([]float64, n)
		most := 0.0
		for i := range values {
			values[i] = float64(rng.IntN(4000))
			if rng.IntN(4) == 0 {
				values[i] = 0
			}
			most = max(most, values[i])
		}
		if most < 1 {
			continue
		}
		c := clusterOf("a", n, 0, 0)
		c.Report.Classes[0].Available[0] = wire.MomentsOf(values)
		names, d := federation(nil, []*cluster{c}).Rank(time.Time{}, request(skerry.MilliCPU(most), 0), 1, 10)
		if len(names) == 0 {
			t.Fatalf("round %d: a worker has %v of %v, but: %v", round, most, values, d.Why)
		}
	}
}
