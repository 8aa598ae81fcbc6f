package sched

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/coord"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// twin transcribes Algorithm 2 (LDP) over plain lists of workers. Each threshold has a margin: border is set when a
// distance lies so near to its threshold that the columns' float32 may decide otherwise.
type twin struct {
	workers []*Worker
	by      map[string]*Worker
	border  bool
}

// atMost compares with a threshold.
func (t *twin) atMost(d, threshold, margin float64) bool {
	t.border = t.border || math.Abs(d-threshold) < margin
	return d <= threshold
}

// dist_gc, in kilometres.
func (t *twin) near(a, b *spec.Location, km float64) bool {
	return a != nil && b != nil && t.atMost(coord.GreatCircleKm(*a, *b), km, 0.01)
}

// dist_euc, in milliseconds.
func (t *twin) quick(a, b *spec.Coordinate, ms float64) bool {
	return a != nil && b != nil && t.atMost(a.RTT(*b), ms, 0.001)
}

// link is one element of Q^s2s with the workers of its target's instances.
type twinLink struct {
	km      float64 // 0: no threshold
	latency *spec.Duration
	targets []*Worker
}

// links gives Q^s2s: the links of the service itself and those of placed instances to it.
func (t *twin) links(r *Request) []twinLink {
	var out []twinLink
	on := func(service string) (list []*Worker) {
		for _, p := range r.Peers {
			if w := t.by[p.Worker]; w != nil && p.Service == service {
				list = append(list, w)
			}
		}
		return list
	}
	for _, l := range r.Spec.Links {
		out = append(out, twinLink{l.MaxDistance, l.MaxLatency, on(l.Service)})
	}
	for _, p := range r.Peers {
		for _, l := range p.Links {
			if l.Service == r.Service {
				out = append(out, twinLink{l.MaxDistance, l.MaxLatency, on(p.Service)})
			}
		}
	}
	return out
}

func (t *twin) ldp(r *Request) []*Worker {
	keep := func(list []*Worker, ok func(*Worker) bool) (out []*Worker) {
		for _, w := range list {
			if ok(w) {
				out = append(out, w)
			}
		}
		return out
	}
	virt := r.Spec.Runtimes()[0]
	// line 1
	W := keep(t.workers, func(n *Worker) bool {
		return n.Available.Fits(r.Need.Add(r.Spec.Overhead(virt))) && slices.Contains(n.Runtimes, virt)
	})
	// lines 2 to 7
	for _, Qj := range t.links(r) {
		if len(Qj.targets) == 0 {
			continue // nobody is there yet to be far from
		}
		W = keep(W, func(n *Worker) bool {
			some := false
			for _, target := range Qj.targets {
				ok := target == n
				if !ok {
					ok = (Qj.km == 0 || t.near(n.Location, target.Location, Qj.km)) &&
						(Qj.latency == nil || t.quick(n.Coordinate, target.Coordinate, float64(*Qj.latency)/1e6))
				}
				some = some || ok
			}
			return some
		})
	}
	// lines 8 to 16; U comes from the measurement
	for k, Qk := range r.Spec.Placement.Users {
		W = keep(W, func(n *Worker) bool {
			geo := Qk.MaxDistance == 0 || t.near(n.Location, Qk.Location, Qk.MaxDistance)
			lat := true
			if ms := r.Spec.Placement.UserLatency(Qk); ms > 0 {
				U := &r.Users[k]
				lat = U.Unknown == "" && t.quick(n.Coordinate, &U.Coordinate, ms)
			}
			return geo && lat
		})
	}
	return W // line 17
}

// set gives W as the scheduler sees it.
func (s *Site) set(p Policy, r *Request) (out []string) {
	s.refresh()
	q := s.query(epoch, p, r)
	s.each(-1, func(n int) {
		if q.firstFailing(n) == nil {
			out = append(out, s.names[n])
		}
	})
	slices.Sort(out)
	return out
}

func TestLDPAgainstAlgorithm2(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	compared, sizes := 0, map[string]int{}
	for round := range 4000 {
		tw := &twin{by: map[string]*Worker{}}
		var names []string
		for i := range 1 + rng.IntN(40) {
			w := randomWorker(rng, nameOf(i))
			// What Algorithm 2 does not speak of stays out.
			w.Lost, w.Refusing, w.Taints, w.HostPorts = false, "", nil, nil
			tw.workers, tw.by[w.Name], names = append(tw.workers, w), w, append(names, w.Name)
		}
		r := randomRequest(rng, names)
		p := &r.Spec.Placement
		r.Spec.Ports, r.Avoid = nil, nil
		p.Arch, p.Devices, p.Area, p.Labels, p.Worker, p.Affinity, p.AntiAffinity, p.Location, p.MaxDistance = nil, nil, "", nil, "", nil, nil, nil, 0
		if rng.IntN(4) == 0 {
			p.MaxLatency = new(spec.Duration(time.Duration(50+rng.IntN(100)) * time.Millisecond)) // for users with an address alone
		}
		want := tw.ldp(r)
		if tw.border {
			continue
		}
		compared++
		s := siteOf(tw.workers)
		var list []string
		for _, w := range want {
			list = append(list, w.Name)
		}
		slices.Sort(list)
		if got := s.set(LDP(), r); !slices.Equal(got, list) {
			t.Fatalf("round %d: W is %v, the twin's is %v", round, got, list)
		}
		switch {
		case len(want) == 0:
			sizes["nobody"]++
		case len(want) < len(tw.workers):
			sizes["some"]++
		default:
			sizes["all"]++
		}
		// ROM's rule chooses inside W: the fullest after placing, old numbers counting for less.
		d := s.Place(epoch, LDP(), r, uint64(round))
		best := -1.0
		for _, w := range want {
			best = max(best, fullness(r, w))
		}
		if (d.Chosen == "") != (len(want) == 0) {
			t.Fatalf("round %d: chose %q of %d", round, d.Chosen, len(want))
		}
		if d.Chosen != "" && math.Abs(fullness(r, tw.by[d.Chosen])-best) > 1e-6 {
			t.Fatalf("round %d: chose %s with %v, the best is %v", round, d.Chosen, fullness(r, tw.by[d.Chosen]), best)
		}
	}
	if compared < 3000 || sizes["nobody"] < 100 || sizes["some"] < 500 || sizes["all"] < 100 {
		t.Errorf("compared %d, of them %v: the cases prove too little", compared, sizes)
	}
}

// fullness is the plain form of best fit with discount for old numbers.
func fullness(r *Request, w *Worker) float64 {
	var parts, sum float64
	for _, x := range [][3]int64{{int64(w.Available.CPU), int64(r.Need.CPU), int64(w.Capacity.CPU)}, {int64(w.Available.Memory), int64(r.Need.Memory), int64(w.Capacity.Memory)}} {
		if x[2] > 0 {
			sum, parts = sum+float64(x[0]-x[1])/float64(x[2]), parts+1
		}
	}
	free := 1.0
	if parts > 0 {
		free = math.Min(1, math.Max(0, sum/parts))
	}
	score := 1 - free
	if !w.Reported.IsZero() {
		if age := epoch.Sub(w.Reported).Seconds() - fullTrust; age > 0 {
			score *= math.Exp2(-age / 60)
		}
	}
	if w.Trust > 0 {
		score *= w.Trust
	}
	return score
}

func TestLDPTable(t *testing.T) {
	at := func(lat, lon float64) func(*Worker) {
		return func(w *Worker) { w.Location = &spec.Location{Lat: lat, Lon: lon} }
	}
	net := func(x float64) func(*Worker) {
		return func(w *Worker) { w.Coordinate = &spec.Coordinate{Vec: [3]float64{x}} }
	}
	ms := func(n int) *spec.Duration { return new(spec.Duration(time.Duration(n) * time.Millisecond)) }
	workers := []*Worker{ // one degree of latitude is 111 km
		worker("near-quick", 4000, skerry.GiB, at(48, 11), net(5)),
		worker("near-slow", 4000, skerry.GiB, at(48, 11), net(100)),
		worker("far-quick", 4000, skerry.GiB, at(50, 11), net(5)),
		worker("nowhere", 4000, skerry.GiB),
		worker("db1", 0, 0, at(48.1, 11), net(0)),
		worker("db2", 0, 0, at(50.1, 11), net(100)),
	}
	db := func(on ...string) (out []Peer) {
		for _, n := range on {
			out = append(out, Peer{Worker: n, Service: "db"})
		}
		return out
	}
	link := func(l spec.Link) func(*spec.ServiceSpec) {
		return func(s *spec.ServiceSpec) { l.Service = "db"; s.Links = append(s.Links, l) }
	}
	user := func(list ...spec.User) func(*spec.ServiceSpec) {
		return func(s *spec.ServiceSpec) { s.Placement.Users = list }
	}
	munich := &spec.Location{Lat: 48.1, Lon: 11}
	for _, c := range []struct {
		name  string
		req   *Request
		peers []Peer
		users []wire.UserPosition
		want  []string
	}{
		{"no constraint", request(100, 1), nil, nil, []string{"far-quick", "near-quick", "near-slow", "nowhere"}},
		{"distance to a service", request(100, 1, link(spec.Link{MaxDistance: 50})), db("db1"), nil, []string{"near-quick", "near-slow"}},
		{"round trip to a service", request(100, 1, link(spec.Link{MaxLatency: ms(20)})), db("db1"), nil, []string{"far-quick", "near-quick"}},
		{"both limits of a link hold together", request(100, 1, link(spec.Link{MaxDistance: 50, MaxLatency: ms(20)})), db("db1"), nil, []string{"near-quick"}},
		{"one instance must be within both", request(100, 1, link(spec.Link{MaxDistance: 50, MaxLatency: ms(20)})), db("db2"), nil, nil},
		{"one instance of several is enough", request(100, 1, link(spec.Link{MaxDistance: 50})), db("db1", "db2"), nil, []string{"far-quick", "near-quick", "near-slow"}},
		{"no instance yet binds nobody", request(100, 1, link(spec.Link{MaxDistance: 1})), nil, nil, []string{"far-quick", "near-quick", "near-slow", "nowhere"}},
		{"the other end's limit binds whoever comes second", request(100, 1), []Peer{{Worker: "db1", Service: "db", Links: []spec.Link{{Service: "web", MaxDistance: 50}}}}, nil, []string{"near-quick", "near-slow"}},
		{"geo_trg", request(100, 1, user(spec.User{Location: munich, MaxDistance: 50})), nil, []wire.UserPosition{{}}, []string{"near-quick", "near-slow"}},
		{"lat_trg", request(100, 1, user(spec.User{Address: "192.0.2.1", MaxLatency: ms(20)})), nil, []wire.UserPosition{{}}, []string{"far-quick", "near-quick"}},
		{"geo_trg and lat_trg", request(100, 1, user(spec.User{Location: munich, MaxDistance: 50, Address: "192.0.2.1", MaxLatency: ms(20)})), nil, []wire.UserPosition{{}}, []string{"near-quick"}},
		{"a user that nobody measured", request(100, 1, user(spec.User{Address: "192.0.2.1", MaxLatency: ms(20)})), nil, nil, nil},
		{"a user that did not answer", request(100, 1, user(spec.User{Address: "192.0.2.1", MaxLatency: ms(20)})), nil, []wire.UserPosition{{Unknown: "no answer"}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := *c.req
			r.Service, r.Peers, r.Users = "web", c.peers, c.users
			if got := siteOf(workers).set(LDP(), &r); !slices.Equal(got, c.want) {
				t.Errorf("W is %v, want %v", got, c.want)
			}
		})
	}
}
