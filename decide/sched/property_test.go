package sched

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// takes is what a request takes of a worker whose runtimes are oci and native alone.
func takes(r *Request) spec.Resources { return r.Need.Add(r.Spec.Overhead("oci")) }

// Placements, and departures between them, never take more than there is; what is left is what was there less what was
// taken.
func TestNeverOverCommits(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 11))
	for _, p := range policiesByName() {
		s, m := NewSite(), shadow{}
		for i := range 150 {
			w := randomWorker(rng, nameOf(i))
			m[w.Name] = w
			s.Set(w)
		}
		type taken struct {
			worker string
			req    *Request
		}
		var list []taken
		left := map[string]spec.Resources{}
		for n, w := range m {
			left[n] = w.Available
		}
		placed := 0
		for step := range 1500 {
			if len(list) > 0 && rng.IntN(3) == 0 {
				i := rng.IntN(len(list))
				x := list[i]
				list = append(list[:i], list[i+1:]...)
				s.Give(x.worker, x.req)
				left[x.worker] = left[x.worker].Add(takes(x.req))
				continue
			}
			r := randomRequest(rng, nil)
			d := s.Place(epoch, p, r, uint64(step))
			if d.Chosen == "" {
				continue
			}
			if !left[d.Chosen].Fits(takes(r)) {
				t.Fatalf("%s: %v does not fit into %v", p.Name, r.Need, left[d.Chosen])
			}
			for _, port := range r.Spec.Ports {
				for _, x := range list {
					if x.worker == d.Chosen && len(x.req.Spec.Ports) > 0 {
						t.Fatalf("%s: port %d is given twice", p.Name, port.HostPort)
					}
				}
			}
			s.Take(d.Chosen, r)
			left[d.Chosen] = left[d.Chosen].Sub(takes(r))
			list = append(list, taken{d.Chosen, r})
			placed++
		}
		for n, want := range left {
			if got, ok := s.Available(n); !ok || got.Vector() != want.Vector() {
				t.Fatalf("%s: %s has %v left, want %v", p.Name, n, got, want)
			}
		}
		if placed < 100 {
			t.Errorf("%s: placed %d", p.Name, placed)
		}
	}
}

// record is all that a decision depends on.
type record struct {
	At      time.Time
	Policy  string
	Keep    int
	Seed    uint64
	Workers []*Worker
	Request *Request
}

func TestDecisionsCanBeReplayedFromARecord(t *testing.T) {
	rng := rand.New(rand.NewPCG(12, 12))
	for range 40 {
		m := shadow{}
		for i := range 1 + rng.IntN(100) {
			w := randomWorker(rng, nameOf(i))
			w.Available.CPU = max(w.Available.CPU, 0) // less than nothing cannot be written down
			m[w.Name] = w
		}
		for name, p := range Policies() {
			was := record{At: epoch, Policy: name, Keep: 1 + rng.IntN(20), Seed: rng.Uint64(), Request: randomRequest(rng, m.names())}
			for _, n := range m.names() {
				was.Workers = append(was.Workers, m[n])
			}
			text, err := json.Marshal(was)
			if err != nil {
				t.Fatal(err)
			}
			d := m.fresh(rng).Best(was.At, p, was.Request, was.Seed, was.Keep)
			var is record
			if err := json.Unmarshal(text, &is); err != nil {
				t.Fatal(err)
			}
			again := siteOf(is.Workers).Best(is.At, Policies()[is.Policy], is.Request, is.Seed, is.Keep)
			again.At = d.At // the same instant, another zone
			if !reflect.DeepEqual(d, again) {
				show(t, p, was.Request, "decided", d, "replayed", again)
			}
		}
	}
}

// Without affinities, more of everything and more workers never make a service unplaceable.
func TestMoreCapacityNeverHurts(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 13))
	placeable := 0
	for range 300 {
		m := shadow{}
		for i := range 1 + rng.IntN(20) {
			m[nameOf(i)] = randomWorker(rng, nameOf(i))
		}
		r := randomRequest(rng, m.names())
		r.Spec.Placement.Affinity, r.Spec.Placement.AntiAffinity = nil, nil
		more := shadow{}
		for n, w := range m {
			own := *w
			if rng.IntN(2) == 0 {
				extra := spec.Resources{CPU: skerry.MilliCPU(rng.IntN(4000)), Memory: skerry.Bytes(rng.Int64N(1 << 32)), GPUs: rng.IntN(2)}
				own.Capacity, own.Available = own.Capacity.Add(extra), own.Available.Add(extra)
			}
			more[n] = &own
		}
		for i := range rng.IntN(5) {
			more[nameOf(100+i)] = randomWorker(rng, nameOf(100+i))
		}
		for _, p := range policiesByName() {
			if m.fresh(rng).Place(epoch, p, r, 1).Chosen == "" {
				continue
			}
			placeable++
			if d := more.fresh(rng).Place(epoch, p, r, 1); d.Chosen == "" {
				show(t, p, r, "with more", d)
			}
		}
	}
	if placeable < 300 {
		t.Errorf("%d cases", placeable)
	}
}

func TestNonsenseIsPutUpWith(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	numbers := []float64{0, -1, 1, 91, 181, 1e9, -1e300, nan, inf, -inf, 100_000}
	sizes := []int64{0, -1, 1, math.MaxInt64, math.MinInt64, 4000}
	rng := rand.New(rand.NewPCG(14, 14))
	num := func() float64 { return pick(rng, numbers...) }
	res := func() spec.Resources {
		n := func() int64 { return pick(rng, sizes...) }
		return spec.Resources{CPU: skerry.MilliCPU(n()), Memory: skerry.Bytes(n()), GPUs: int(n()), BandwidthIn: skerry.Bytes(n())}
	}
	for range testenv.Times(60, 300) {
		s := NewSite()
		var names []string
		for i := range rng.IntN(100) {
			w := randomWorker(rng, nameOf(i))
			if rng.IntN(2) == 0 {
				w.Location, w.Coordinate = &spec.Location{Lat: num(), Lon: num()}, &spec.Coordinate{Vec: [3]float64{num(), num(), num()}, Height: num(), Error: num()}
				w.Capacity, w.Available = res(), res()
				w.Load.Intensity.CPU, w.Load.Sensitivity.Disk = num(), num()
				w.Power = &wire.Power{Idle: num(), Busy: num()}
				w.Reported = pick(rng, time.Time{}, time.Unix(-5, 0), time.Unix(1<<40, 0), epoch)
			}
			s.Set(w)
			names = append(names, w.Name)
		}
		r := randomRequest(rng, names)
		pl := &r.Spec.Placement
		pl.Location, pl.MaxDistance = &spec.Location{Lat: num(), Lon: num()}, num()
		pl.Users = append(pl.Users, spec.User{Location: &spec.Location{Lat: num()}, MaxDistance: num(), MaxLatency: new(spec.Duration(pick(rng, sizes...)))})
		r.Spec.Links = append(r.Spec.Links, spec.Link{Service: "web", MaxDistance: num()}, spec.Link{Service: "db", MaxLatency: new(spec.Duration(pick(rng, sizes...)))})
		r.Users = append(r.Users, wire.UserPosition{Coordinate: spec.Coordinate{Vec: [3]float64{num(), num(), num()}, Height: num()}})
		r.Contention.Intensity.CPU, r.Contention.Sensitivity.CPU = num(), num()
		r.Need = res()
		for _, p := range policiesByName() {
			d := s.Place(epoch, p, r, rng.Uint64())
			for _, c := range d.Top {
				if math.IsNaN(c.Score) {
					t.Fatalf("%s: %+v", p.Name, c)
				}
			}
			if d.Chosen == "" && len(d.Why) == 0 {
				t.Fatalf("%s: nobody, and no reason", p.Name)
			}
			if _, err := json.Marshal(d); err != nil {
				t.Fatalf("%s: %v", p.Name, err)
			}
			s.Explain(epoch, p, r)
			s.Sample(p, r, 1, 3)
			s.Preempt(epoch, p, r, 1, func(string) []Resident { return []Resident{{Need: res()}} })
			for _, n := range names {
				s.Fails(p, r, n)
			}
		}
		if len(names) > 0 {
			s.SetReport(names[0], &spec.Coordinate{Height: nan}, time.Time{})
			s.SetAvailable(names[0], res())
		}
	}
}

// A cycle of links, a service linked to itself, and ten thousand constraints are no trouble.
func TestManyConstraints(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 15))
	s := NewSite()
	var names []string
	for i := range 1000 {
		w := randomWorker(rng, nameOf(i))
		w.Location, w.Coordinate = &spec.Location{Lat: 48 + rng.Float64(), Lon: 11 + rng.Float64()}, &spec.Coordinate{Vec: [3]float64{10 * rng.Float64()}}
		s.Set(w)
		names = append(names, w.Name)
	}
	link := func(service string, i int) spec.Link {
		return spec.Link{Service: service, MaxDistance: 500 + float64(i)/100, MaxLatency: new(spec.Duration(time.Second + time.Duration(i)))}
	}
	fresh := func() *Request {
		r := request(1, 1, func(s *spec.ServiceSpec) { s.Placement.Tolerations = []spec.Toleration{{Key: "*"}} })
		r.Service = "web"
		return r
	}
	peers := func(r *Request, n int, service func(i int) string, links func(i int) []spec.Link) {
		for i := range n {
			r.Peers = append(r.Peers, Peer{Worker: names[i%len(names)], Service: service(i), Labels: map[string]string{"app": "x"}, Links: links(i)})
		}
	}
	none := func(int) []spec.Link { return nil }
	for name, make := range map[string]func(r *Request){
		"a cycle": func(r *Request) {
			r.Spec.Links = []spec.Link{link("db", 0)}
			peers(r, 2, func(i int) string { return []string{"db", "cache"}[i] }, func(i int) []spec.Link { return []spec.Link{link([]string{"cache", "web"}[i], i)} })
		},
		"to itself": func(r *Request) {
			r.Spec.Links = []spec.Link{link("web", 0)}
			peers(r, 1, func(int) string { return "web" }, func(int) []spec.Link { return []spec.Link{link("web", 0)} })
		},
		"10,000 links to one instance": func(r *Request) {
			for i := range 10_000 {
				r.Spec.Links = append(r.Spec.Links, link("db", i))
			}
			peers(r, 1, func(int) string { return "db" }, none)
		},
		"10,000 links to as many services": func(r *Request) {
			for i := range 10_000 {
				r.Spec.Links = append(r.Spec.Links, link(fmt.Sprint("s", i), i))
			}
			peers(r, 10_000, func(i int) string { return fmt.Sprint("s", i) }, none)
		},
		"10,000 instances": func(r *Request) {
			r.Spec.Links = []spec.Link{{Service: "db", MaxDistance: 0.001}}
			peers(r, 10_000, func(int) string { return "db" }, func(i int) []spec.Link { return []spec.Link{link("web", 0)} })
		},
		"10,000 links to 10,000 instances": func(r *Request) {
			for i := range 10_000 {
				r.Spec.Links = append(r.Spec.Links, link("db", i))
			}
			peers(r, 10_000, func(int) string { return "db" }, none)
		},
		"10,000 links back, each another": func(r *Request) {
			peers(r, 10_000, func(int) string { return "db" }, func(i int) []spec.Link { return []spec.Link{link("web", i)} })
		},
		"10,000 users": func(r *Request) {
			for i := range 10_000 {
				r.Spec.Placement.Users = append(r.Spec.Placement.Users, spec.User{Location: &spec.Location{Lat: 48, Lon: 11}, MaxDistance: 500 + float64(i), Address: "192.0.2.1", MaxLatency: new(spec.Duration(time.Second))})
				r.Users = append(r.Users, wire.UserPosition{})
			}
		},
		"10,000 affinities": func(r *Request) {
			for range 10_000 {
				r.Spec.Placement.Affinity = append(r.Spec.Placement.Affinity, spec.Affinity{Labels: map[string]string{"app": "x"}, Over: "area", Preferred: true})
			}
			peers(r, 10, func(int) string { return "db" }, none)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := fresh()
			make(r)
			if d := s.Place(epoch, LDP(), r, 1); d.Chosen == "" {
				t.Errorf("%+v", d.Why)
			}
		})
	}
}
